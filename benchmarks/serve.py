"""Servers of the same model beside each other: tokens a second, and how long clients wait.

    python benchmarks/serve.py --llama-server PATH [--repeats 3] [--minutes 22] [--json]
    python benchmarks/serve.py --llama-server PATH --without fp32
    python benchmarks/serve.py --tiny

Writing: GPT-2 124M with random weights continues prompts of 64 tokens by 64, greedily and streamed,
for 1, 8 and 32 clients, each of which asks one thing after the other. Ours (int8 with inputs of 16
bits, int8 with inputs of 8 bits, fp32) stands beside llama.cpp's llama-server (Q8_0, 32 slots,
continuous batching), CTranslate2 (int8) behind FastAPI with batching, and `transformers serve`
(fp32, continuous batching). "Our Python call" is our decoding of one text after the other without a
server. Reading: MiniLM embeds and classifies single texts of 32 clients, beside onnxruntime with
the same batching.

All servers run at once, each in a process of its own with the same two threads; only one is asked
at a time, in turns, and medians over the turns count. Every finished turn is kept under results/,
and the script goes on where it stopped. Nothing is downloaded or built: the path of llama-server is
yours, and what is not installed is left out, as the page says. The section is "serving" of
docs/serving.md and its Chinese sister; a goal that was missed is marked there and printed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from inference_sides import THREADS
from page import once, put, say
from script import ROOT, options_of, parser_for
from serve_load import Others, answered, exchange, whole, written
from serve_page import CLIENTS, goals, in_chinese, in_english, medians, missed, section
from serve_sides import LOADS, Models, Server, Side, classifier_in, gpt_in, missing

from regard.core.seeding import keyed

REQUESTS = {1: 6, 8: 3, 32: 2}  # of each client that writes
ASKED = 12  # questions of each client that reads
PROMPT = NEW = 64
ALONE = 0.05  # the share of the processors that other programs may use
PYTHON = {"int8": "weight", "int8 dynamic": "dynamic", "fp32": None}


class Bench:
    """The servers that have been started, and what is asked of them."""

    def __init__(self, place: Path, options: Any) -> None:
        self.options, self.place = options, place
        self.servers: dict[tuple[str, str], Server] = {}
        classifier = place / "classifier"
        self.models = Models(
            gpt_in(place / "gpt2", bool(options.few)),
            classifier_in(classifier) if "predict" in options.only else classifier,
            options.llama_server,
        )
        self.python: dict[str, Any] = {}

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()

    def server(self, load: str, name: str, side: Side) -> Server:
        if (load, name) not in self.servers:
            say(f"starting {name} ({load}) …")
            self.servers[load, name] = Server(name, side, self.models, self.place)
        return self.servers[load, name]

    def turn(self, load: str, name: str, clients: int, repeat: int) -> dict[str, Any]:
        say(f"{load}, {name}, {clients} clients, turn {repeat} …")
        side = LOADS[load][name]
        questions = self.questions(load, clients, repeat)
        if side.command is None:
            with Others() as others:
                figures = self.call(name.rpartition(", ")[2], questions[0])
        else:
            port = self.server(load, name, side).port
            asks = [[side.ask(self.models, each, self.new) for each in own] for own in questions]
            warm = self.questions(load, clients, -1 - repeat)
            for own in warm[:2]:
                exchange(port, side.ask(self.models, own[0], 4))
            with Others() as others:
                figures = (written if load == "write" else answered)(port, asks)
        if others.share > ALONE:
            say(f"other programs used {others.share:.0%} of the processors meanwhile")
        return {"load": load, "side": name, "clients": clients, "repeat": repeat, **figures,
                "others": others.share}  # fmt: skip

    @property
    def new(self) -> int:
        return 8 if self.options.few else NEW

    def questions(self, load: str, clients: int, repeat: int) -> list[list[Any]]:
        """Returns what each client asks. No two turns ask the same: a server may remember."""
        dice = keyed(repeat + 100, load, clients)
        if load == "write":
            count = 1 if self.options.few else REQUESTS[clients]
            return [
                [dice.integers(0, 900, PROMPT).tolist() for _ in range(count)]
                for _ in range(clients)
            ]
        words = "the a film book was is very good bad long of in and people that we saw".split()
        count = 2 if self.options.few else ASKED
        return [
            [" ".join(dice.choice(words, dice.integers(5, 80))) for _ in range(count)]
            for _ in range(clients)
        ]

    def call(self, kind: str, prompts: list[list[int]]) -> dict[str, Any]:
        """Continues texts one by one in this process."""
        import torch

        from regard.api import load
        from regard.decoding import generate
        from regard.models.extensions import extend
        from regard.training.hardware import quick_malloc

        if kind not in self.python:
            quick_malloc()
            torch.set_num_threads(THREADS)
            self.python[kind] = load(self.models.gpt)
            if PYTHON[kind] is not None:
                extend(self.python[kind].model, "int8", {"kind": PYTHON[kind]})
        loaded = self.python[kind]
        generate(loaded, prompts[0], max_new_tokens=4)
        begun, tokens = time.perf_counter(), 0
        for prompt in prompts:
            tokens += len(generate(loaded, prompt, max_new_tokens=self.new)[0][0].ids)
        return {"tokens": tokens, "per_second": tokens / (time.perf_counter() - begun)}

    def check(self, load: str) -> None:
        """Both sides that read have to say the same, before anything is measured."""
        text = "the film was very good"
        tables = []
        for name, side in LOADS[load].items():
            server = self.server(load, name, side)
            answer = whole(exchange(server.port, side.ask(self.models, text, 0)))
            rows = answer[0] if load == "embed" else sorted(row["score"] for row in answer)
            tables.append([float(value) for value in rows])
        if any(abs(a - b) > 1e-4 for a, b in zip(*tables, strict=True)):
            raise SystemExit(f"{load}: the two sides do not answer the same")


def measured(options: Any) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Measures what has not been measured, and returns all turns, and the sides left out. Another
    turn begins only if one as long as the last would end in time."""
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place), options)
        absent = {
            name: gone
            for load in options.only
            for name, side in LOADS[load].items()
            if (gone := missing(side, bench.models) or unwanted(name, options.without))
        }
        rows = []
        try:
            for load in options.only:
                if load != "write" and not absent.keys() & LOADS[load].keys():
                    bench.check(load)
            for repeat in range(1, options.repeats + 1):
                begun = time.monotonic()
                for load in options.only:
                    rows += turns(bench, load, repeat, absent)
                now = time.monotonic()
                if repeat < options.repeats and 2 * now - begun > end:
                    say(f"no turn after {repeat} ends within --minutes {options.minutes:g}")
                    break
        finally:
            bench.stop()
    return rows, absent


def unwanted(name: str, words: str) -> str:
    return next((f"--without {word}" for word in words.split(",") if word and word in name), "")


def turns(bench: Bench, load: str, repeat: int, absent: dict[str, str]) -> list[dict[str, Any]]:
    settings = {"prompt": PROMPT, "new": bench.new, "threads": THREADS, "requests": REQUESTS,
                "questions": ASKED}  # fmt: skip
    rows = []
    for clients in CLIENTS[load]:
        for name, side in LOADS[load].items():
            if name in absent or (side.command is None and clients > 1):
                continue
            file = bench.options.cells / f"{load}-{clients}-{repeat}-{name.replace(', ', '-')}.json"
            rows.append(once(file, partial(bench.turn, load, name, clients, repeat), settings))
    return rows


def publish(options: Any, rows: list[dict[str, Any]], absent: dict[str, str]) -> None:
    """Writes the section of both pages (not of a trial or a part), prints it, and says what was
    missed."""
    english = section(rows, absent, options.only, THREADS, in_english)
    if not options.few and set(options.only) == set(LOADS):
        put("serving", english, options.page)
        chinese = section(rows, absent, options.only, THREADS, in_chinese)
        put("serving", chinese, options.page.with_suffix(".zh.md"))
    verdicts = goals(medians(rows))
    judged = [asdict(row) | {"reached": row.reached} for row in verdicts]
    print(json.dumps({"turns": rows, "goals": judged}, indent=1) if options.json else english)
    say(f"{sum(row.reached is True for row in verdicts)} of {len(verdicts)} goals are reached")
    for line in missed(verdicts):
        say(f"missed: {line}")


def main() -> None:
    parser = parser_for(__doc__, "serve", LOADS, data=False, few="tiny")
    parser.add_argument("--llama-server", default="", metavar="PATH")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--without", default="", metavar="WORDS", help="sides to leave out: fp32")
    parser.add_argument("--minutes", type=float, default=22, help="no turn begins that ends later")
    parser.set_defaults(page=ROOT / "docs" / "serving.md")
    options = options_of(parser, LOADS, "load", "tiny")
    rows, absent = measured(options)
    publish(options, rows, absent)


if __name__ == "__main__":
    main()
