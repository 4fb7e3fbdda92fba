"""Measures servers: tokens a second, and the waiting for the first and for each next token.

    .venv/bin/python benchmarks/serve.py
    .venv/bin/python benchmarks/serve.py --precision int8 --peer llama.cpp=http://127.0.0.1:8080/v1
    .venv/bin/python benchmarks/serve.py --save /tmp/gpt2      # the model, to start a peer with

Our server runs GPT-2 124M with random weights, in a process of its own. A peer is any server with
OpenAI's /v1/completions that was started with the same model: `llama-server --parallel 32`,
`transformers serve`, or CTranslate2 behind an application of its own. All are measured in one run,
in turns; figures of other runs are not comparable. `bare` is our decoding in Python, without HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Tokenizer as Fast
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from regard.core.seeding import keyed, seed_torch
from regard.data.tokenizer import Tokenizer
from regard.formats.directory import save
from regard.models.gpt import GPT, SIZES

CLIENTS = (1, 8, 32)
END = "<|endoftext|>"


def model_in(place: Path, tiny: bool) -> Path:
    """Saves a GPT-2 with random weights, and a tokenizer that has a word for each of its tokens."""
    config = SIZES["gpt2"]
    config = config.replace(layers=2, width=128, heads=2, vocab_size=999) if tiny else config
    words = {f"w{i}": i for i in range(config.vocab_size - 1)} | {END: config.vocab_size - 1}
    fast = Fast(WordLevel(words, unk_token="w0"))
    fast.pre_tokenizer = WhitespaceSplit()
    fast.add_special_tokens([END])
    files = {
        "tokenizer.json": fast.to_str().encode(),
        "tokenizer_config.json": json.dumps(
            {"eos_token": END, "bos_token": END, "unk_token": "w0"}
        ).encode(),
    }
    seed_torch(0, "weights")
    return save(GPT(config).initialize(), place, Tokenizer(fast, files))


def prompt(number: int, length: int) -> str:
    return " ".join(f"w{i}" for i in keyed(0, "prompt", number).integers(0, 900, length))


class Load:
    """Clients that each ask one thing after the other, and the times at which tokens arrived."""

    def __init__(self, url: str, model: str, plan: argparse.Namespace) -> None:
        self.url, self.model, self.plan = url, model, plan
        self.first: list[float] = []
        self.between: list[float] = []
        self.tokens = 0

    async def run(self, clients: int) -> dict[str, float]:
        begun = time.perf_counter()
        async with httpx.AsyncClient(timeout=600) as client:
            await asyncio.gather(*(self.client(client, n) for n in range(clients)))
        seconds = time.perf_counter() - begun
        return {
            "tokens_per_second": self.tokens / seconds,
            **shares("first", self.first),
            **shares("between", self.between),
        }

    async def client(self, client: httpx.AsyncClient, number: int) -> None:
        for turn in range(self.plan.requests):
            await self.request(client, 1000 * number + turn)

    async def request(self, client: httpx.AsyncClient, number: int) -> None:
        body = {
            "model": self.model, "prompt": prompt(number, self.plan.prompt), "temperature": 0,
            "max_tokens": self.plan.tokens, "stream": True,
        }  # fmt: skip
        before, arrived = time.perf_counter(), 0
        async with client.stream("POST", f"{self.url}/completions", json=body) as answer:
            if answer.status_code != 200:
                raise SystemExit(f"{self.url}: {(await answer.aread()).decode()}")
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                choices = json.loads(line.removeprefix("data: ")).get("choices") or [{}]
                if not choices[0].get("text"):
                    continue
                now = time.perf_counter()
                (self.between if arrived else self.first).append(now - before)
                before, arrived = now, arrived + 1
        self.tokens += arrived


def shares(name: str, seconds: list[float]) -> dict[str, float]:
    """Returns the median and the 99th percentile, in milliseconds."""
    ordered = sorted(seconds) or [0.0]
    last = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {f"{name}_p50_ms": 1000 * statistics.median(ordered), f"{name}_p99_ms": 1000 * last}


def bare(model: Path, plan: argparse.Namespace) -> float:
    """Returns the tokens a second of our decoding of one text at a time, without a server."""
    from regard.cli.use import opened
    from regard.decoding import generate

    loaded = opened(str(model))
    if plan.precision != "fp32":
        from regard.models.extensions import extend

        extend(loaded.model, "int8", {"kind": "weight"})
    options: dict[str, Any] = {"max_new_tokens": plan.tokens}
    generate(loaded, prompt(0, plan.prompt), **options)
    begun, tokens = time.perf_counter(), 0
    for number in range(plan.requests):
        tokens += len(generate(loaded, prompt(number, plan.prompt), **options)[0][0].ids)
    return tokens / (time.perf_counter() - begun)


def started(model: Path, plan: argparse.Namespace) -> tuple[subprocess.Popen[str], str]:
    """Starts our server, and returns its process and address."""
    command = [
        sys.executable, "-m", "regard", "serve", f"gpt2={model}", "--port", "0", "--rows",
        str(max(plan.clients)), "--precision", plan.precision,
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("listening"):
            return process, f"{line.split()[2]}/v1"
    raise SystemExit("our server did not start")


def measured(model: Path, plan: argparse.Namespace) -> dict[str, Any]:
    process, url = started(model, plan)
    try:
        sides = {"regard": (url, "gpt2")}
        for peer in plan.peer:
            name, _, address = peer.partition("=")
            listed = httpx.get(f"{address}/models").json()["data"]
            sides[name] = (address, listed[0]["id"])
        figures: dict[str, Any] = {}
        for clients in plan.clients:
            for name, (address, served) in sides.items():
                asyncio.run(Load(address, served, plan).run(1))  # warm
                figures[f"{name}, {clients} clients"] = asyncio.run(
                    Load(address, served, plan).run(clients)
                )
    finally:
        process.terminate()
        process.wait()
    return figures | {"bare, 1 text": {"tokens_per_second": bare(model, plan)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--requests", type=int, default=4, help="of each client")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of a request")
    parser.add_argument("--precision", choices=["fp32", "int8"], default="fp32")
    parser.add_argument("--tiny", action="store_true", help="try the script with a tiny model")
    parser.add_argument("--save", type=Path, help="only save the model, for peers")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    plan = parser.parse_args()
    if plan.save:
        print(model_in(plan.save, plan.tiny))
        return
    with tempfile.TemporaryDirectory() as place:
        figures = measured(model_in(Path(place) / "gpt2", plan.tiny), plan)
    for name, row in figures.items():
        print(name + ": " + ", ".join(f"{key} {value:.1f}" for key, value in row.items()))
    if plan.json:
        plan.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
