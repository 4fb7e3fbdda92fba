"""GPT-2 124M (random weights) continues texts: ours in four number formats, compared with peers.

    python benchmarks/compress.py [--repeats 7] [--only "ours, int8,CTranslate2, int8"] [--json]
    python benchmarks/compress.py --tiny

Greedy decoding of 128 new tokens after a prompt of 16, with one text and with eight at once, in two
threads. Every side is a separate process with the same weights; they take turns, and the medians
count. The peers are Hugging Face transformers (fp32), CTranslate2 (int8, by its own converter) and
llama.cpp (Q8_0, through llama-cpp-python, from a GGUF file that the gguf package writes); a peer
that is not installed is left out, and the page says so. Goals: int8 is at least 2.5 times as fast
as our own fp32 with one text, at least as fast as CTranslate2 with one and with eight, and has at
most 30 % of the size. The section is "compression" of docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from compress_sides import NEEDED, SIDES, THREADS, build, made, there
from page import goal, once, put, table

from regard.core.seeding import keyed

ROOT = Path(__file__).resolve().parent.parent
BATCHES = (1, 8)
PROMPT, NEW = 16, 128
SMALL, FASTER = 0.3, 2.5
BASE, PEER = "ours, fp32", "CTranslate2, int8"
INT8 = ("ours, int8", "ours, int8 dynamic")


class Side:
    """A process that continues texts on request, and reports how long it took."""

    def __init__(self, name: str, model: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, name, model), daemon=True)
        self.process.start()
        theirs.close()
        self.name, self.bytes = name, self.answer()

    def ask(self, prompts: list[list[int]], new: int) -> tuple[float, list[list[int]]]:
        self.pipe.send((prompts, new))
        seconds, ids = self.answer()
        return seconds, ids

    def answer(self) -> Any:
        try:
            return self.pipe.recv()
        except EOFError:
            raise SystemExit(f"{self.name}: its process ended, see above") from None

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def serve(pipe: Any, name: str, model: Path) -> None:
    write, size = build(name, model)
    pipe.send(size)
    while True:
        try:
            prompts, new = pipe.recv()
        except EOFError:
            return
        start = time.perf_counter()
        ids = write(prompts, new)
        pipe.send((time.perf_counter() - start, ids))


def measured(sides: list[str], repeats: int, tiny: bool) -> dict[str, Any]:
    """Returns the tokens per second of every side, with one text and with eight."""
    new = 8 if tiny else NEW
    with tempfile.TemporaryDirectory() as place:
        model = made(Path(place), tiny)
        dice = keyed(0, "benchmark", "compress")
        texts = dice.integers(900, size=(max(BATCHES), PROMPT)).tolist()
        running = []
        for name in sides:
            print(f"{name} …", file=sys.stderr, flush=True)
            running.append(Side(name, model))
        by_side: dict[str, Any] = {s.name: {"bytes": s.bytes, "seconds": {}} for s in running}
        for batch in BATCHES:
            times: dict[str, list[float]] = {name: [] for name in sides}
            for turn in range(repeats + 1):  # the first one is a warmup and is not counted
                for side in running:
                    seconds, ids = side.ask(texts[:batch], new)
                    by_side[side.name].setdefault("ids", ids[0])
                    if turn:
                        times[side.name].append(seconds)
            for name, durations in times.items():
                by_side[name]["seconds"][str(batch)] = durations
        for side in running:
            side.close()
    for row in by_side.values():
        row["rate"] = {
            batch: int(batch) * new / statistics.median(durations)
            for batch, durations in row["seconds"].items()
        }
    same = by_side.get(BASE, next(iter(by_side.values())))["ids"]
    for row in by_side.values():  # counts the first tokens that equal those of fp32
        differ = (
            i for i, pair in enumerate(zip(row["ids"], same, strict=True)) if len({*pair}) > 1
        )
        row["same"] = next(differ, len(same))
        del row["ids"]
    return {"sides": by_side, "new": new}


def section(report: dict[str, Any]) -> str:
    sides = report["sides"]
    base = sides.get(BASE)
    rows = []
    for name, row in sides.items():
        cells = [name, f"{row['bytes'] / 1e6:,.0f}"]
        share = row["bytes"] / base["bytes"] if base else 0.0
        of_base = f"{share:.1%}" if base else "–"
        cells.append(goal(of_base, share <= SMALL) if name in INT8 else of_base)
        for batch in map(str, BATCHES):
            rate = row["rate"][batch]
            ratio = rate / base["rate"][batch] if base else 0.0
            times_base = f"{ratio:.2f}" if base else "–"
            aimed = name in INT8 and batch == "1"
            cells += [f"{rate:,.1f}", goal(times_base, ratio >= FASTER) if aimed else times_base]
        rows.append([*cells, f"{row['same']} of {report['new']}"])
    heads = ["", "MB", "of fp32", *(text for batch in BATCHES for text in (
        f"tokens/s, {batch} at once", "× ours, fp32")), "tokens as fp32"]  # fmt: skip
    parts = [
        "## Compression",
        "Made by `python benchmarks/compress.py`: GPT-2 124M with random weights, greedy decoding "
        f"of {report['new']} tokens after {PROMPT}, {THREADS} threads; every side in a process of "
        "its own, in turn, medians. The last column says how many tokens of the first text are "
        f"those of fp32 before one differs. Goals: int8 at least {FASTER:g} times our fp32 with "
        f"one text, at least CTranslate2's speed with one and with eight, at most {SMALL:.0%} of "
        "the size.",
        table(heads, rows),
        *beside(sides),
    ]
    if missing := [name for name in NEEDED if name not in sides]:
        parts.append(f"Not measured, because it was not installed: {'; '.join(missing)}.")
    return "\n\n".join(parts)


def beside(sides: dict[str, Any]) -> list[str]:
    """Compares our int8 with each peer, in words."""
    lines = []
    for peer in (name for name in NEEDED if name in sides):
        for ours in (name for name in INT8 if name in sides):
            ratios = {
                batch: sides[ours]["rate"][batch] / sides[peer]["rate"][batch]
                for batch in map(str, BATCHES)
            }
            shown = " and ".join(
                f"{goal(f'{ratio:.2f}', ratio >= 1 or peer != PEER)} times with {batch}"
                for batch, ratio in ratios.items()
            )
            lines.append(f"* {ours} against {peer}: {shown}")
    return ["\n".join(lines)] if lines else []


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/compress"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=[], help=f"some of: {'; '.join(SIDES)}")
    parser.add_argument("--tiny", action="store_true", help="a very small model: to try it")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.only if name not in SIDES]
    if unknown:
        parser.error(f"unknown side {unknown[0]!r}; known are: {'; '.join(SIDES)}")
    sides = [name for name in SIDES if there(name) and (not options.only or name in options.only)]
    settings = {"sides": sides, "repeats": options.repeats, "tiny": options.tiny,
                "threads": THREADS, "prompt": PROMPT, "batches": BATCHES}  # fmt: skip
    name = "tiny" if options.tiny else "some" if options.only else "all"
    report = once(
        options.out.resolve() / f"{name}.json",
        lambda: measured(sides, options.repeats, options.tiny),
        settings,
    )
    if name == "all":
        put("compression", section(report), options.page)
    print(json.dumps(report, indent=1) if options.json else section(report))


if __name__ == "__main__":
    main()
