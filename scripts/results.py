"""Every model on the same text, with its own objective, to the same budget: the section
"pretraining" of docs/results.md.

    python scripts/results.py --out results [--tokens 2000000] [--data DIR] [--only gpt,xlnet]

Each cell is a run of its own and is saved when it ends; started again, the script goes on with the
cell it was in, from its last checkpoint. Speeds are measured when all are trained, in short runs
one after the other, so that they can be compared; `--no-speed` leaves that out. `--data` (or
REGARD_DATA) names the directory with the Chinese text; without it that row is left out, and the
page says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from page import once, put

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Cell:
    name: str
    model: str
    settings: tuple[str, ...] = ()
    data: str = "docs"
    note: str = ""


COMMON = (
    "batch.length=256",
    "batch.samples=16",
    "engine.compile=no",
    "validation.samples=1000000",  # all of it, as the n-gram is measured
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
    Cell("XLNet, no memory", "xlnet", ("objective.memory=false", "shape.memory=0")),
    Cell("T5", "t5"),
    Cell("Transformer", "transformer"),
    Cell("GPT, Chinese", "gpt", data="zh", note="news, one document a line"),
)  # fmt: skip
SPEED_STEPS, WARM = 24, 3  # of a run that measures speed; the first ones are not counted


def regard(*words: str) -> dict[str, Any]:
    """One command of ours; its JSON."""
    command = [sys.executable, "-m", "regard", *words, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def texts(out: Path, place: Path | None) -> dict[str, Path]:
    """The prepared texts that can be had."""
    found = {"docs": out / "docs"}
    sources = {"docs": ["builtin:python-docs"]}
    chinese = place / "text" / "zh.txt.gz" if place else None
    if chinese and chinese.is_file():
        found["zh"] = out / "zh"
        sources["zh"] = [str(chinese), "--split-by", "line"]
    for name, where in found.items():
        if not (where / "data.json").is_file():
            regard("prepare", *sources[name], "--out", str(where), "--vocabulary", "8000")
    return found


def train(cell: Cell, data: Path, out: Path, tokens: int) -> dict[str, Any]:
    run = out / "runs" / cell.name.replace(" ", "-").replace(",", "").replace("'", "").lower()
    if (run / "recipe.toml").is_file():
        found = regard("train", "--resume", str(run), "--quiet")
    else:
        words = ["--size", "small", "--tokens", str(tokens), "--quiet"]
        settings = (*COMMON, *cell.settings)
        found = regard("train", cell.model, str(data), *settings, "--out", str(run), *words)
    if found["outcome"] != "done":
        raise SystemExit(f"{cell.name}: {found['outcome']}; start again to go on")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "cell": cell.name,
        "model": cell.model,
        "objective": found["objective"],
        "data": cell.data,
        "parameters": found["model"]["parameters"],
        "tokens": found["progress"]["tokens"],
        "seconds": found["progress"]["seconds"],
        "peak_memory": found["peak_memory"],
        "step_flops": found["step_flops"],
        "steps": found["progress"]["step"],
        "curve": [{"tokens": line["tokens"], **line["valid"]} for line in lines if "valid" in line],
    }


def speed(cell: Cell, data: Path) -> dict[str, Any]:
    """Tokens a second of the same settings, in the median of the steps of a short run."""
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


def best(row: dict[str, Any], name: str) -> float | None:
    values = [point[name] for point in row["curve"] if name in point]
    if not values:
        return None
    return max(values) if "accuracy" in name else min(values)


def crossing(row: dict[str, Any], ngram: float) -> str:
    for point in row["curve"]:
        if point.get("bits_per_byte", 9e9) < ngram:
            return f"{point['tokens'] / 1e6:.2f} M tokens"
    return "not yet"


def page(
    rows: list[dict[str, Any]],
    ngrams: dict[str, Any],
    missing: list[str],
    speeds: dict[str, float],
) -> str:
    """The section; `speeds` are by the name of a cell, and may be incomplete."""
    exact = [r for r in rows if r["objective"] in ("causal", "recurrent")]
    others = [r for r in rows if r not in exact]
    notes = {cell.name: cell.note for cell in CELLS}
    lines = [
        "## Pre-training",
        "",
        f"Made by `python scripts/results.py` (this section is its output). Every model is `--size "
        f"small` and reads {rows[0]['tokens'] / 1e6:.1f} M tokens; the rest of each recipe is the "
        "default: its paper's objective, optimiser and schedule. One seed, so small differences "
        "mean nothing; speeds are those of one two-core machine, "
        + (
            f"measured one after the other in runs of {SPEED_STEPS} steps, "
            if all(row["cell"] in speeds for row in rows)
            else "whatever else it did at the time, "
        )
        + "and only their order of size means something elsewhere.",
        "",
        "### Bits per byte of unseen text",
        "",
        "Exact, so these can be compared with each other and with the n-gram (modified "
        "Kneser–Ney, order 5, same tokens) of the same text.",
        "",
        "| model | bits per byte | n-gram | passes it after | parameters | tokens/s | memory |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in sorted(exact, key=lambda r: (r["data"], best(r, "bits_per_byte") or 9)):
        ngram = ngrams[row["data"]]["bits_per_byte"]
        lines.append(
            f"| {row['cell']} | {best(row, 'bits_per_byte'):.3f} | {ngram:.3f} | "
            f"{crossing(row, ngram)} | {tail(row, speeds)} |"
        )
    lines += [
        "",
        "### Other objectives",
        "",
        "Each by its own measure on unseen text; they cannot be compared with the table above, nor "
        "across objectives.",
        "",
        "| model | objective | measure | parameters | tokens/s | memory |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in others:
        names = [name for name in row["curve"][-1] if name != "tokens"]
        shown = ", ".join(f"{n.replace('_', ' ')} {best(row, n):.4g}" for n in names)
        lines.append(f"| {row['cell']} | {row['objective']} | {shown} | {tail(row, speeds)} |")
    told = [f"* {name}: {notes[name]}." for name in (r["cell"] for r in rows) if notes.get(name)]
    lines += ["", *told]
    if missing:
        lines += ["", f"Left out for want of its text: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def tail(row: dict[str, Any], speeds: dict[str, float]) -> str:
    quick = speeds.get(row["cell"], row["tokens"] / row["seconds"])
    return f"{row['parameters'] / 1e6:.1f} M | {quick:,.0f} | {row['peak_memory'] / 1e9:.2f} GB"


def file_of(cell: Cell) -> str:
    return f"{cell.name.replace(' ', '-').replace(',', '').lower()}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--no-speed", action="store_true", help="leave out the runs for speed")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    options = parser.parse_args()
    cells_place = options.out / "cells"
    cells_place.mkdir(parents=True, exist_ok=True)
    data = texts(options.out, Path(options.data) if options.data else None)
    ngrams = {
        name: once(
            cells_place / f"ngram-{name}.json", lambda where=where: regard("ngram", str(where))
        )
        for name, where in data.items()
    }
    wanted = [w.lower() for w in options.only.split(",") if w]
    missing = [cell.name for cell in CELLS if cell.data not in data]
    chosen = [
        cell
        for cell in CELLS
        if cell.data in data and (not wanted or any(w in cell.name.lower() for w in wanted))
    ]
    rows: list[dict[str, Any]] = []
    speeds: dict[str, float] = {}
    for cell in chosen:
        print(f"{cell.name} …", file=sys.stderr, flush=True)
        make = partial(train, cell, data[cell.data], options.out, options.tokens)
        rows.append(once(cells_place / file_of(cell), make))
        put("pretraining", page(rows, ngrams, missing, speeds), options.page)
    for cell in [] if options.no_speed else chosen:
        print(f"the speed of {cell.name} …", file=sys.stderr, flush=True)
        make = partial(speed, cell, data[cell.data])
        found = once(cells_place / f"speed-{file_of(cell)}", make)
        speeds[cell.name] = found["tokens_per_second"]
        put("pretraining", page(rows, ngrams, missing, speeds), options.page)
    print(f"{len(rows)} cells; the page is {options.page}", file=sys.stderr)


if __name__ == "__main__":
    main()
