"""Trains every model on the same text, with its own objective and the same budget: the section
"pretraining" of docs/results.md.

    python scripts/results.py --out results [--tokens 2000000] [--data DIR] [--only gpt,xlnet]

Each cell is a separate run and is saved when it ends; if the script is started again, it continues
with the current cell, from its last checkpoint. `--only` says what is measured now; the page is
made of all cells. The runs with a memory are then validated with memories of other lengths
(benchmarks/memory.py). Speeds are measured last, in short runs one after the other, so that they
can be compared; `--no-speed` leaves that out. `--data` (or REGARD_DATA) names the directory with
the Chinese text; without it that row is left out, and the page says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import memory
from page import in_process, once, put_both, table
from pretraining_words import EXACT, MEMORIES, Best, beside_ngram, crossing, remembering

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Cell:
    name: str
    model: str
    settings: tuple[str, ...] = ()
    data: str = "docs"
    note: str = ""


COMMON = (
    "batch.seq_len=256",
    "batch.size=16",
    "engine.compile=no",
    "validation.samples=1000000",  # the whole split, as the n-gram is measured on it
)
CELLS = (
    Cell("GPT", "gpt"),
    Cell("GPT-3, banded", "gpt", ("shape.band=64",), note="every second layer sees 64 tokens"),
    Cell("LSTM", "lstm"),
    Cell("Transformer-XL", "transformer-xl"),
    Cell(
        "Transformer-XL, no memory", "transformer-xl", ("objective.name=causal",),
        note="the same model and text in shuffled pieces, each alone",
    ),
    Cell(
        "Longformer, characters' model", "longformer-characters",
        note="the causal model of section 4, on the same tokens",
    ),
    Cell("BERT", "bert"),
    Cell("Longformer", "longformer"),
    Cell("XLNet", "xlnet"),
    Cell("XLNet, no memory", "xlnet", ("objective.memory=false", "shape.mem_len=0")),
    Cell("T5", "t5"),
    Cell("Transformer", "transformer"),
    Cell("GPT, Chinese", "gpt", data="zh", note="news, one document a line"),
)  # fmt: skip


class Found(NamedTuple):
    """All cells that exist."""

    rows: list[dict[str, Any]]
    ngrams: dict[str, Any]  # by text
    speeds: dict[str, float]  # by the name of a cell
    memories: dict[str, list[dict[str, Any]]]  # by the name of a cell, shortest first


SPEED_STEPS, WARM = 24, 3  # the steps of a speed run; its warmup steps are not counted


def regard(*words: str) -> dict[str, Any]:
    """Runs one command of ours and returns its JSON."""
    command = [sys.executable, "-m", "regard", *words, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def texts(out: Path, place: Path | None) -> dict[str, Path]:
    """Returns the prepared texts that are available."""
    places = {"docs": out / "docs"}
    sources = {"docs": ["builtin:python-docs"]}
    chinese = place / "text" / "zh.txt.gz" if place else None
    if chinese and chinese.is_file():
        places["zh"] = out / "zh"
        sources["zh"] = [str(chinese), "--split-by", "line"]
    for name, where in places.items():
        if not (where / "data.json").is_file():
            regard("prepare", *sources[name], "--out", str(where), "--vocab-size", "8000")
    return places


def run_of(cell: Cell, out: Path) -> Path:
    return out / "runs" / cell.name.replace(" ", "-").replace(",", "").replace("'", "").lower()


def check(cell: Cell, row: dict[str, Any], out: Path, tokens: int) -> dict[str, Any]:
    """Returns the cell if its run has these settings and this budget; refuses it otherwise."""
    run, each = run_of(cell, out), row["tokens"] / row["steps"]
    wrong = []
    if abs(row["tokens"] - tokens) > each + tokens / 10:  # the share of padding differs
        wrong.append(f"{row['tokens']:,} tokens, not {tokens:,}")
    if (run / "recipe.toml").is_file():
        recipe = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))
        for name, _, value in (setting.partition("=") for setting in (*COMMON, *cell.settings)):
            part, _, key = name.partition(".")
            stored = str(recipe.get(part, {}).get(key, "nothing"))
            if stored.lower() != value:
                wrong.append(f"{name} {stored}, not {value}")
    if wrong:
        raise SystemExit(
            f"{cell.name} in {out} was measured with {'; '.join(wrong)}. Give another --out, or "
            f"remove {run} and its cell"
        )
    return row


def train(cell: Cell, data: Path, out: Path, tokens: int) -> dict[str, Any]:
    run = run_of(cell, out)
    if (run / "recipe.toml").is_file():
        facts = regard("train", "--resume", str(run), "--quiet")
    else:
        words = ["--size", "small", "--max-tokens", str(tokens), "--quiet"]
        settings = (*COMMON, *cell.settings)
        facts = regard("train", cell.model, str(data), *settings, "--out", str(run), *words)
    if facts["outcome"] != "done":
        raise SystemExit(f"{cell.name}: {facts['outcome']}; start the script again to continue")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "cell": cell.name,
        "model": cell.model,
        "objective": facts["objective"],
        "data": cell.data,
        "parameters": facts["model"]["parameters"],
        "tokens": facts["progress"]["tokens"],
        "seconds": facts["progress"]["seconds"],
        "peak_memory": facts["peak_memory"],
        "step_flops": facts["step_flops"],
        "steps": facts["progress"]["step"],
        "curve": [{"tokens": line["tokens"], **line["valid"]} for line in lines if "valid" in line],
    }


def speed(cell: Cell, data: Path) -> dict[str, Any]:
    """Returns the tokens per second of the same settings: the median step of a short run."""
    short = ("validation.every=1000000", "validation.samples=1", "checkpoint.minutes=1e9")
    settings = (*COMMON, *cell.settings, *short)
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run")
        words = ["--out", str(run), "--size", "small", "--steps", str(SPEED_STEPS), "--quiet"]
        regard("train", cell.model, str(data), *settings, *words)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "seconds" in line]
    each = [
        (after["tokens"] - before["tokens"]) / (after["seconds"] - before["seconds"])
        for before, after in zip(steps[WARM:], steps[WARM + 1 :], strict=False)
    ]
    return {"cell": cell.name, "tokens_per_second": statistics.median(each), "steps": len(each)}


def remembered(cell: Cell, data: Path, options: Any) -> None:
    """Measures a run that has a memory: it is validated with memories of other lengths."""
    run = run_of(cell, options.out)
    if not (run / "model.safetensors").is_file():
        print(f"{run} no longer exists, so other memories are not measured", file=sys.stderr)
        return
    weights = hashlib.blake2b((run / "model.safetensors").read_bytes(), digest_size=16).hexdigest()
    for rows in sorted({*memory.ROWS, memory.own(run)}):
        print(f"{cell.name} with a memory of {rows} …", file=sys.stderr, flush=True)
        words = [str(run), "--data", str(data), "--rows", str(rows)]
        once(
            options.cells / f"memory-{file_of(cell).removesuffix('.json')}-{rows}.json",
            partial(in_process, memory.__file__, words),
            {"cell": cell.name, "weights": weights, "own": memory.own(run)},
        )


def page(results: Found, missing: list[str]) -> str:
    """Returns the section, made of all cells."""
    rows, speeds = results.rows, results.speeds
    exact = [r for r in rows if r["objective"] in EXACT]
    others = [r for r in rows if r not in exact]
    notes = {cell.name: cell.note for cell in CELLS}
    quiet = (
        f"measured one after the other in runs of {SPEED_STEPS} steps, "
        if all(row["cell"] in speeds for row in rows)
        else "whatever else it did at the time, "
    )
    parts = [
        "## Pre-training",
        f"Made by `python scripts/results.py` (this section is its output). Every model is `--size "
        f"small` and reads {rows[0]['tokens'] / 1e6:.1f} M tokens; the rest of each recipe is the "
        "default: its paper's objective, optimizer and schedule. One seed, so small differences "
        f"mean nothing; speeds are those of one two-core machine, {quiet}and only their order of "
        "size means something elsewhere.",
    ]
    if exact:
        parts += exactly(exact, results)
    if others:
        parts += [
            "### Other objectives",
            "Each by its own measure on unseen text; they cannot be compared with the bits per "
            "byte, nor across objectives.",
            table(
                ["model", "objective", "measure", "parameters", "tokens/s", "memory"],
                [[r["cell"], r["objective"], Best(r).told(), *tail(r, speeds)] for r in others],
            ),
        ]
    remarks = [f"* {name}: {notes[name]}." for name in (r["cell"] for r in rows) if notes.get(name)]
    parts += ["\n".join(remarks)] if remarks else []
    parts += remembering(rows, results.memories)
    if missing:
        parts.append(f"Left out for want of its text: {', '.join(missing)}.")
    return "\n\n".join(parts)


def exactly(rows: list[dict[str, Any]], results: Found) -> list[str]:
    """Returns the rows of the models that can be compared with the n-gram."""
    lines = []
    for row in sorted(rows, key=lambda r: (r["data"], Best(r)["bits_per_byte"])):
        ngram = results.ngrams[row["data"]]["bits_per_byte"]
        figures = [f"{Best(row)['bits_per_byte']:.3f}", f"{ngram:.3f}", crossing(row, ngram)]
        lines.append([row["cell"], *figures, *tail(row, results.speeds)])
    heads = ["model", "bits per byte", "n-gram", "passes it after", "parameters", "tokens/s",
             "memory"]  # fmt: skip
    return [
        "### Bits per byte of unseen text",
        "Exact, so these can be compared with each other and with the n-gram (modified "
        "Kneser–Ney, order 5, same tokens) of the same text.",
        table(heads, lines),
        beside_ngram(rows, results.ngrams),
    ]


def tail(row: dict[str, Any], speeds: dict[str, float]) -> list[str]:
    quick = speeds.get(row["cell"], row["tokens"] / row["seconds"])
    memory = f"{row['peak_memory'] / 1e9:.2f} GB"
    return [f"{row['parameters'] / 1e6:.1f} M", f"{quick:,.0f}", memory]


def file_of(cell: Cell) -> str:
    return f"{cell.name.replace(' ', '-').replace(',', '').lower()}.json"


def found_in(place: Path, out: Path, tokens: int) -> Found:
    def held(pattern: str) -> list[dict[str, Any]]:
        return [json.loads(file.read_text("utf-8")) for file in sorted(place.glob(pattern))]

    rows = [check(cell, row, out, tokens) for cell in CELLS for row in held(file_of(cell))]
    memories: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(held("memory-*.json"), key=lambda row: row["memory"]):
        memories.setdefault(row["settings"]["cell"], []).append(row)
    speeds = {row["cell"]: row["tokens_per_second"] for row in held("speed-*.json")}
    texts = {cell.data for cell in CELLS}
    ngrams = {text: row for text in texts for row in held(f"ngram-{text}.json")}
    return Found(rows, ngrams, speeds, memories)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--only", default="", help="parts of cell names, separated by commas")
    parser.add_argument("--no-speed", action="store_true", help="leave out the runs for speed")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.cells = options.out / "cells"
    data = texts(options.out, Path(options.data) if options.data else None)
    for name, where in data.items():
        once(options.cells / f"ngram-{name}.json", partial(regard, "ngram", str(where)))
    wanted = [w.lower() for w in options.only.split(",") if w]
    chosen = [
        cell
        for cell in CELLS
        if cell.data in data and (not wanted or any(w in cell.name.lower() for w in wanted))
    ]

    def show() -> None:
        results = found_in(options.cells, options.out, options.tokens)
        known = {row["cell"] for row in results.rows}
        missing = [c.name for c in CELLS if c.data not in data and c.name not in known]
        put_both("pretraining", page(results, missing), options.page)

    for cell in chosen:
        print(f"{cell.name} …", file=sys.stderr, flush=True)
        make = partial(train, cell, data[cell.data], options.out, options.tokens)
        once(options.cells / file_of(cell), make)
        show()
    for cell in (cell for cell in chosen if cell.name in MEMORIES):
        remembered(cell, data[cell.data], options)
        show()
    for cell in [] if options.no_speed else chosen:
        print(f"the speed of {cell.name} …", file=sys.stderr, flush=True)
        once(options.cells / f"speed-{file_of(cell)}", partial(speed, cell, data[cell.data]))
        show()
    print(f"{len(chosen)} cells; the page is {options.page}", file=sys.stderr)


if __name__ == "__main__":
    main()
