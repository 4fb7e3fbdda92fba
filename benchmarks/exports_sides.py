"""The sides of benchmarks/exports.py: how each one opens the same model, reads and continues texts.

Every side is a process of its own, with the same number of threads. It reads `rows` tokens of each
text in one call (GPT-2 and Marian answer with logits, CTranslate2's Marian with the scores of the
target, BERT with hidden states), or writes `new` tokens greedily after a prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import encode
import numpy as np
import torch

from regard.api import load
from regard.decoding import generate
from regard.exports import ctranslate2
from regard.exports.base import ExportSample, ExportSource
from regard.exports.gguf import FILES, GgufRuntime
from regard.exports.openvino import OpenVinoRuntime
from regard.exports.run import target
from regard.models.extensions import extend

BATCHES = (1, 8)
OURS = {"ours, fp32": None, "ours, bf16": "bf16", "ours, int8": "weight",
        "ours, int8 dynamic": "dynamic"}  # fmt: skip
ENCODED = {"ours, fp32": "fp32", "ours, bf16": "bf16", "ours, int8 dynamic": "int8"}
PEERS = {  # -> the target, the precision of its files, and that in which it computes
    "onnxruntime, fp32": ("onnx", "fp32", "fp32"),
    "onnxruntime, int8": ("onnx", "int8", "int8"),
    "OpenVINO, fp32": ("openvino", "fp32", "f32"),
    "OpenVINO, bf16": ("openvino", "fp32", "bf16"),
    "OpenVINO, int8": ("openvino", "int8", "bf16"),
    "CTranslate2, fp32": ("ctranslate2", "fp32", "default"),
    "CTranslate2, bf16": ("ctranslate2", "fp32", "bfloat16"),
    "CTranslate2, int8": ("ctranslate2", "int8", "default"),
    "llama.cpp, fp32": ("gguf", "fp32", "fp32"),
    "llama.cpp, Q8_0": ("gguf", "int8", "int8"),
}
FILE = tuple[str, str]  # of an export: its target and precision
Read = Callable[[list[ExportSample]], Any]
Write = Callable[[list[ExportSample], int], list[list[int]]]  # texts, new tokens -> what was added


@dataclass(frozen=True)
class Sizes:
    """What a side reads and writes."""

    rows: int  # tokens of a text that is read
    prompt: int  # and of one that is continued
    new: int
    threads: int


def computes(side: str) -> bool:
    """Returns whether the runtime has the precision of a side on this processor."""
    to, _, precision = PEERS[side]
    if to == "ctranslate2" and precision == "bfloat16" and find_spec("ctranslate2"):
        import ctranslate2 as runtime

        return precision in runtime.get_supported_compute_types("cpu")
    if to == "openvino" and precision == "bf16" and find_spec("openvino"):
        import openvino

        return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return True


def writes(side: str, model: str) -> bool:
    """Returns whether a side continues texts with a cache: the graphs have none, BERT writes
    nothing."""
    return model != "bert" and (side in OURS or PEERS[side][0] in ("ctranslate2", "gguf"))


def texts(config: Any, count: int, rows: int) -> list[ExportSample]:
    """Returns `count` texts of random tokens, all of the same length; for an encoder-decoder with
    as many tokens of the decoder."""
    dice = np.random.default_rng(0)
    table = dice.integers(10, config.vocab_size, (count, rows)).tolist()
    if not hasattr(config, "start_id"):
        return [ExportSample(row) for row in table]
    return [ExportSample(row, [config.start_id, *row[1:]]) for row in table]


def step(side: str, model: Path, files: Path | None, sizes: Sizes) -> Callable[[str, int], None]:
    """Returns what a process of this side does: `read` or `write` so many texts."""
    torch.set_num_threads(sizes.threads)
    if side in OURS:
        config, read, write = ours(model, side)
    else:
        assert files is not None
        config, read, write = theirs(side, model, files, sizes)
    reading = {count: texts(config, count, sizes.rows) for count in BATCHES}
    prompts = {count: texts(config, count, sizes.prompt) for count in BATCHES}

    def run(case: str, count: int) -> None:
        if case == "read":
            read(reading[count])
            return
        tokens = write(prompts[count], sizes.new)
        if {len(row) for row in tokens} != {sizes.new}:
            raise SystemExit(f"{side} did not write {sizes.new} tokens after each text")

    return run


# -- ours


def ours(directory: Path, side: str) -> tuple[Any, Read, Write]:
    loaded = load(directory)
    model: Any = loaded.model
    if model.kind == "encoder":  # without padding, as `embed` and `predict` read
        quick = encode.ours(directory, ENCODED[side])
        return loaded.config, lambda batch: quick([s.input_ids for s in batch]), no_write
    if (kind := OURS[side]) is not None:
        extend(model, "int8", {"kind": kind})
    model.eval()

    def read(batch: list[ExportSample]) -> torch.Tensor:
        rows = [[sample.input_ids for sample in batch]]
        if batch[0].decoder_input_ids is not None:
            rows.append([sample.written for sample in batch])
        with torch.inference_mode():
            logits: torch.Tensor = model.logits(model(*map(torch.tensor, rows)))
        return logits

    def write(batch: list[ExportSample], new: int) -> list[list[int]]:
        prompts = [sample.input_ids for sample in batch]
        answers = generate(loaded, prompts, max_new_tokens=new, eos_ids=[], suppress_tokens=[])
        return [best[0].ids for best in answers]

    return loaded.config, read, write


def no_write(batch: list[ExportSample], new: int) -> list[list[int]]:
    raise TypeError("this side only reads")


# -- the runtimes


def theirs(side: str, model: Path, files: Path, sizes: Sizes) -> tuple[Any, Read, Write]:
    to, precision, computed = PEERS[side]
    source = ExportSource(load(model))
    if to == "ctranslate2":
        runtime: Any = ctranslate2.opened(source, files, computed)
        read, write = ctranslate2_calls(runtime, source.words())
    elif to == "gguf":
        longest = max(sizes.rows, sizes.prompt + sizes.new)
        runtime = GgufRuntime(source, files / FILES[precision][0], max(BATCHES), longest)
        check_batches(runtime, texts(source.config, max(BATCHES), sizes.rows))
        read, write = runtime.batch, lambda batch, new: llama_write(runtime, batch, new)
    else:
        runtime = (
            OpenVinoRuntime(source, files, computed)
            if to == "openvino"
            else target(to).open(source, files, precision)
        )
        read, write = runtime.batch, no_write
    source.model.to("meta")  # its weights are read no more
    return source.config, read, write


def ctranslate2_calls(runtime: Any, words: list[str]) -> tuple[Read, Write]:
    def named(rows: list[list[int]]) -> list[list[str]]:
        return [[words[i] for i in row] for row in rows]

    def sources(batch: list[ExportSample]) -> list[list[int]]:
        return [sample.input_ids for sample in batch]

    if hasattr(runtime, "encoder"):
        return lambda batch: np.array(
            runtime.encoder.forward_batch(sources(batch)).last_hidden_state
        ), no_write
    if hasattr(runtime, "generator"):

        def go_on(batch: list[ExportSample], new: int) -> list[list[int]]:
            results = runtime.generator.generate_batch(
                named(sources(batch)), max_length=new, min_length=new, sampling_topk=1,
                beam_size=1, include_prompt_in_result=False,
            )  # fmt: skip
            return [result.sequences_ids[0] for result in results]

        return lambda batch: np.array(runtime.generator.forward_batch(sources(batch))), go_on

    def scores(batch: list[ExportSample]) -> Any:  # of the target, in one call
        written = named([sample.written[1:] for sample in batch])
        return runtime.translator.score_batch(named(sources(batch)), written)

    def translate(batch: list[ExportSample], new: int) -> list[list[int]]:
        results = runtime.translator.translate_batch(
            named(sources(batch)), beam_size=1, max_decoding_length=new, min_decoding_length=new
        )
        return [[0] * len(result.hypotheses[0]) for result in results]

    return scores, translate


def check_batches(runtime: GgufRuntime, batch: list[ExportSample]) -> None:
    """llama.cpp must read the texts of a batch as it reads each of them alone."""
    for sample, together in zip(batch, runtime.batch(batch), strict=True):
        alone = runtime.rows(sample)
        gap = float(np.abs(together - alone).max() / np.abs(alone).max())
        if not gap <= 1e-2:  # int8 also rounds what it reads
            raise SystemExit(f"llama.cpp reads a batch of {len(batch)} texts differently: {gap:g}")


def llama_write(runtime: GgufRuntime, batch: list[ExportSample], new: int) -> list[list[int]]:
    """Continues texts greedily with llama.cpp's cache: one token of each text in every call."""
    api, context, columns = runtime.api, runtime.context, runtime.source.config.vocab_size
    api.llama_memory_clear(api.llama_get_memory(context), True)
    rows, written = [sample.input_ids for sample in batch], [[] for _ in batch]  # type: ignore[var-annotated]
    call = api.llama_batch_init(sum(map(len, rows)), 0, 1)
    try:
        position = 0
        for _ in range(new):
            i, last = 0, []
            for number, ids in enumerate(rows):
                for offset, token in enumerate(ids):
                    call.token[i], call.pos[i] = token, position + offset
                    call.n_seq_id[i], call.seq_id[i][0] = 1, number
                    call.logits[i] = offset == len(ids) - 1
                    i += 1
                last.append(i - 1)
            call.n_tokens = i
            if code := api.llama_decode(context, call):
                raise SystemExit(f"llama.cpp cannot read {i} tokens (code {code})")
            position += len(rows[0])
            logits = (api.llama_get_logits_ith(context, at) for at in last)
            best = [int(np.ctypeslib.as_array(row, (columns,)).argmax()) for row in logits]
            rows = [[token] for token in best]
            for row, token in zip(written, best, strict=True):
                row.append(token)
    finally:
        api.llama_batch_free(call)
    return written
