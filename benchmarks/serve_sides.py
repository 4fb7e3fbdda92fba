"""The servers of benchmarks/serve.py: how each is started with the same model, and asked."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetune_sides import minilm
from inference_sides import THREADS
from serve_load import Ask

HERE = Path(__file__).resolve().parent
ROWS = 32  # the texts that a server continues at once
CONTEXT = 256  # the tokens that it can store for each of them
PATIENCE = 300  # seconds until a server has to answer
Prompt = list[int]


@dataclass(frozen=True)
class Models:
    """The directories of the models, made on the spot, and the path of llama-server."""

    gpt: Path
    classifier: Path
    llama: str


@dataclass(frozen=True)
class Side:
    """A server: its command (with a model and a port), and its requests. A side without a command
    is our Python call, without a server."""

    command: Callable[[Models, int], list[str]] | None
    ask: Callable[[Models, Any, int], Ask] = lambda models, prompt, new: ("", {})
    needs: tuple[str, ...] = ()  # modules


def ours(kind: str) -> Callable[[Models, int], list[str]]:
    def command(models: Models, port: int) -> list[str]:
        return [
            sys.executable, "-m", "regard", "serve", f"gpt2={models.gpt}", "--port", str(port),
            "--rows", str(ROWS), "--precision", kind,
        ]  # fmt: skip

    return command


def llama(models: Models, port: int) -> list[str]:
    from inference_sides import written

    file = models.gpt.parent / "gpt2-q8_0.gguf"
    if not file.exists():
        written(models.gpt, file)
    return [
        models.llama, "-m", str(file), "--port", str(port), "-np", str(ROWS), "-c",
        str(CONTEXT * ROWS), "-t", str(THREADS), "-tb", str(THREADS), "--alias", "gpt2",
    ]  # fmt: skip


def transformers(models: Models, port: int) -> list[str]:
    program = Path(sys.executable).with_name("transformers")
    return [
        str(program), "serve", str(models.gpt), "--port", str(port), "--device", "cpu", "--dtype",
        "float32", "--continuous-batching", "--cb-block-size", "32", "--cb-num-blocks",
        str(CONTEXT * ROWS // 32),  # by itself it takes most of the memory of the machine
    ]  # fmt: skip


def peer(kind: str) -> Callable[[Models, int], list[str]]:
    def command(models: Models, port: int) -> list[str]:
        model = {"ctranslate2": models.gpt, "predict": models.classifier, "embed": minilm()}[kind]
        copy = models.gpt.parent / f"{kind}-model"  # what is made of it stands beside it
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True, parents=True)
            copy.symlink_to(model)
        return [sys.executable, str(HERE / "serve_peer.py"), kind, str(copy), str(port)]

    return command


def encoder(models: Models, port: int) -> list[str]:
    return [
        sys.executable, "-m", "regard", "serve", f"embed={minilm()}",
        f"predict={models.classifier}", "--port", str(port),
    ]  # fmt: skip


def completion(models: Models, prompt: Prompt, new: int, **more: Any) -> Ask:
    body = {"model": "gpt2", "prompt": prompt, "temperature": 0, "max_tokens": new, "stream": True}
    return "/v1/completions", body | more


def ask_llama(models: Models, prompt: Prompt, new: int) -> Ask:
    usage = {"include_usage": True}
    more = {"ignore_eos": True, "cache_prompt": False, "stream_options": usage}
    return completion(models, prompt, new, **more)


def ask_transformers(models: Models, prompt: Prompt, new: int) -> Ask:
    words = " ".join(f"w{i}" for i in prompt)
    usage = {"include_usage": True}
    route, body = completion(models, prompt, new, stream_options=usage)
    return route, body | {"model": str(models.gpt), "prompt": words}


WRITING = {
    "ours, int8": Side(ours("int8"), completion),
    "ours, int8 dynamic": Side(ours("int8-dynamic"), completion),
    "ours, fp32": Side(ours("fp32"), completion),
    "llama-server, Q8_0": Side(llama, ask_llama, ("gguf",)),
    "CTranslate2 behind FastAPI, int8": Side(peer("ctranslate2"), completion, ("ctranslate2",)),
    "transformers serve, fp32": Side(transformers, ask_transformers, ("transformers",)),
    "our Python call, int8": Side(None),
    "our Python call, int8 dynamic": Side(None),
    "our Python call, fp32": Side(None),
}


def reading(kind: str) -> dict[str, Side]:
    def ask_ours(models: Models, text: str, new: int) -> Ask:
        return f"/{kind}?model={kind}", {"inputs": text}

    def ask_peer(models: Models, text: str, new: int) -> Ask:
        return f"/{kind}", {"inputs": text}

    needs = ("onnxruntime", "onnxscript", "transformers")
    return {"ours": Side(encoder, ask_ours), "onnxruntime": Side(peer(kind), ask_peer, needs)}


LOADS = {"write": WRITING, "embed": reading("embed"), "predict": reading("predict")}


def missing(side: Side, models: Models) -> str:
    """Returns what a side needs and is not there."""
    if side.command is llama and not models.llama:
        return "no --llama-server"
    gone = [name for name in side.needs if importlib.util.find_spec(name) is None]
    return f"no {', '.join(gone)}" if gone else ""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Server:
    """A server in a process of its own, with the same number of threads as the others."""

    def __init__(self, name: str, side: Side, models: Models, logs: Path) -> None:
        assert side.command is not None
        self.port, self.name = free_port(), name
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, str(THREADS))
        environment |= {"PYTHONPATH": str(HERE.parent), "HF_HUB_OFFLINE": "1"}
        self.log = logs / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                side.command(models, self.port), stdout=log, stderr=log, env=environment
            )
        end = time.monotonic() + PATIENCE
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise SystemExit(f"{name} did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.2)

    def ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def gpt_in(place: Path, tiny: bool) -> Path:
    """Saves a GPT-2 with random weights, and a tokenizer that has a word for each of its tokens."""
    from tokenizers import Tokenizer as Fast
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    from regard.core.seeding import seed_torch
    from regard.data.tokenizer import Tokenizer
    from regard.formats.directory import save
    from regard.models.gpt import GPT, SIZES

    config = SIZES["gpt2"]
    config = config.replace(layers=2, width=128, heads=2, vocab_size=999) if tiny else config
    end = "<|endoftext|>"
    words = {f"w{i}": i for i in range(config.vocab_size - 1)} | {end: config.vocab_size - 1}
    fast = Fast(WordLevel(words, unk_token="w0"))
    fast.pre_tokenizer = WhitespaceSplit()
    fast.add_special_tokens([end])
    table = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "bos_token": end,
             "unk_token": "w0"}  # fmt: skip
    files = {
        "tokenizer.json": fast.to_str().encode(),
        "tokenizer_config.json": json.dumps(table).encode(),
    }
    seed_torch(0, "weights")
    return save(GPT(config).initialize(), place, Tokenizer(fast, files))


def classifier_in(place: Path) -> Path:
    """Saves MiniLM with a head that one step of fine-tuning has made."""
    from regard.cli.main import main

    data = place.with_suffix(".jsonl")
    labels = ("good", "bad")
    rows = [
        {"text": f"{label} film number {i}", "label": label} for i in range(99) for label in labels
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["finetune", str(minilm()), "--task", "classify", "--data", str(data), "--out",
             str(place), "--steps", "1", "--quiet"]  # fmt: skip
    if code := main(words):
        raise SystemExit(f"regard {' '.join(words)} ended with {code}")
    return place
