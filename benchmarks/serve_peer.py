"""A server for the peers of benchmarks/serve.py that have none: CTranslate2 and onnxruntime behind
FastAPI, each with the batching that its library allows.

    python benchmarks/serve_peer.py ctranslate2 MODEL PORT
    python benchmarks/serve_peer.py embed MODEL PORT       # onnxruntime
    python benchmarks/serve_peer.py predict MODEL PORT     # onnxruntime

CTranslate2 has no continuous batching: requests that wait are continued together, and others wait
for the end of the batch. Questions to onnxruntime are gathered as `regard serve` gathers them: for
3 ms or while it computes, sorted by length, at most 32 in one batch.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

sys.path.insert(0, str(Path(__file__).parent))

THREADS = 2
GATHER = 0.003  # seconds
MOST = 32  # of a batch


@dataclass
class Waiting:
    """A request, and the queue of its answers; None is the last."""

    body: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    answers: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)

    def put(self, answer: Any) -> None:
        self.loop.call_soon_threadsafe(self.answers.put_nowait, answer)


class Gatherer:
    """A thread that gives requests to `work` in batches."""

    def __init__(self, work: Callable[[list[Waiting]], None]) -> None:
        self.work, self.change, self.waiting = work, threading.Condition(), list[Waiting]()
        threading.Thread(target=self.run, daemon=True).start()

    def ask(self, body: dict[str, Any]) -> Waiting:
        one = Waiting(body, asyncio.get_running_loop())
        with self.change:
            self.waiting.append(one)
            self.change.notify()
        return one

    def run(self) -> None:
        while True:
            with self.change:
                while not self.waiting:
                    self.change.wait()
            time.sleep(GATHER)
            with self.change:
                batch, self.waiting = self.waiting[:MOST], self.waiting[MOST:]
            self.work(batch)


def ctranslate2(model: Path) -> FastAPI:
    from ctranslate2 import Generator
    from inference_sides import ctranslate2_model

    place, words = ctranslate2_model(model)
    generator = Generator(str(place), device="cpu", compute_type="int8", inter_threads=1,
                          intra_threads=THREADS)  # fmt: skip

    def work(batch: list[Waiting]) -> None:
        def step(result: Any) -> bool:
            batch[result.batch_id].put(result.token_id)
            return False

        most = max(one.body["max_tokens"] for one in batch)
        generator.generate_batch(
            [[words[i] for i in one.body["prompt"]] for one in batch], max_length=most,
            min_length=most, sampling_topk=1, beam_size=1, include_prompt_in_result=False,
            callback=step,
        )  # fmt: skip
        for one in batch:
            one.put(None)

    app, gatherer = FastAPI(), Gatherer(work)

    async def lines(one: Waiting) -> AsyncIterator[str]:
        while (token := await one.answers.get()) is not None:
            choice = {"index": 0, "text": f" {words[token]}", "finish_reason": None}
            table = {"object": "text_completion", "model": "gpt2", "choices": [choice]}
            yield f"data: {json.dumps(table)}\n\n"
        yield "data: [DONE]\n\n"

    @app.post("/v1/completions")
    async def completions(body: dict[str, Any]) -> StreamingResponse:
        return StreamingResponse(lines(gatherer.ask(body)), media_type="text/event-stream")

    return app


def onnx(model: Path, kind: str) -> FastAPI:
    """Serves the model that transformers opens, as torch exports it."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    session = onnxruntime.InferenceSession(str(exported(model, kind)), options)
    names = {each.name for each in session.get_inputs()}

    def compute(texts: list[str]) -> Any:
        rows = [each.ids for each in tokenizer.encode_batch(texts)]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (y,) = session.run(None, {name: inputs[name] for name in names})
        if kind == "predict":
            odds = np.exp(y - y.max(-1, keepdims=True))
            return odds / odds.sum(-1, keepdims=True)
        mean = (y * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=-1, keepdims=True)

    def work(batch: list[Waiting]) -> None:
        for one, row in zip(batch, compute([one.body["inputs"] for one in batch]), strict=True):
            one.put(row.tolist())

    app, gatherer = FastAPI(), Gatherer(work)

    @app.post(f"/{kind}")
    async def answer(body: dict[str, Any]) -> Any:
        row = await gatherer.ask(body).answers.get()
        if kind == "embed":
            return [row]
        return [{"label": str(i), "score": score} for i, score in enumerate(row)]

    return app


def exported(model: Path, kind: str) -> Path:
    import torch
    from transformers import AutoModel, AutoModelForSequenceClassification

    loader: Any = AutoModel if kind == "embed" else AutoModelForSequenceClassification
    opened = loader.from_pretrained(model).eval()

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = opened

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.model(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            )[0]

    file = model.parent / f"{kind}.onnx"
    ids = torch.ones(2, 9, dtype=torch.long)  # a tensor given twice would be exported as one input
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {0: torch.export.Dim("batch", max=512), 1: torch.export.Dim("length", max=512)}
    torch.onnx.export(
        Plain().eval(), (ids, ids.clone(), ids * 0), str(file), input_names=names, dynamo=True,
        verbose=False, dynamic_shapes=dict.fromkeys(names, axes), external_data=False,
    )  # fmt: skip
    return file


def main() -> None:
    kind, model, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    app = ctranslate2(model) if kind == "ctranslate2" else onnx(model, kind)
    app.add_api_route("/health", lambda: {"status": "ok"})
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
