"""What learns most in a small budget: the section "learning" of docs/results.md.

    python scripts/learning.py [--data DIR] [--stage probe] [--family gpt] [--most 1] [--jobs 2]

Budgets are operations, so that a result is the same on a quiet machine and on a busy one: one
"minute" is what two cores of an ordinary laptop compute in a minute. Each cell is one training in a
process of its own with one thread. When it ends, its settings and figures become one line of
docs/results/learning.jsonl, beside the commit; a script that was stopped goes on with what is
missing, and all tables are made from these lines. A stage changes one setting at a time against the
usual recipe of a family; later stages confirm what has won with other seeds, other texts and other
budgets. `--data` (or REGARD_DATA) names the directory of the other texts; without it their cells
are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from learning_cells import DOCS, MINUTE, NGRAM, ORDER, SOURCES, STAGES, Cell
from learning_sizes import law
from page import in_process, put_both, say, spread, table

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "results" / "learning.jsonl"
QUIETLY = ("engine.threads=1", "engine.compile=no", "validation.every=1000000000",
           "validation.samples=1", "checkpoint.minutes=1e9")  # fmt: skip


# -- a cell


def learn(cell: Cell, data: Path) -> dict[str, Any]:
    """Trains one model, and measures it on the whole validation text."""
    from learn_sides import measured
    from script import regard

    if cell.family == NGRAM:
        from regard.evaluation import ngram_baseline

        figures = ngram_baseline.measure(ngram_baseline.count(data, ORDER), data, "valid")
        return {"metric": "bits_per_byte", "value": figures["bits_per_byte"]}
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run")
        words = ["train", cell.family, str(data), "--size", cell.size, "--seed", str(cell.seed),
                 "--out", str(run), "--quiet"]  # fmt: skip
        began = time.process_time()
        regard([*words, f"budget.flops={cell.minutes * MINUTE:g}", *QUIETLY, *cell.all()])
        seconds = time.process_time() - began
        facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
        metric, value = next(iter(facts["valid"].items()))
        figures = facts["valid"]
        if metric != "bits_per_byte":
            metric, value = measured(run, data)
    progress = facts["progress"]
    return {
        "metric": metric, "value": value, "figures": figures, "cpu_seconds": round(seconds, 1),
        "steps": progress["step"], "tokens": progress["tokens"], "outcome": facts["outcome"],
        "parameters": facts["model"]["parameters"], "step_flops": facts["step_flops"],
    }  # fmt: skip


def prepared(cell: Cell, options: argparse.Namespace) -> Path:
    from script import regard

    place = options.out / "data" / f"{cell.text}-{cell.vocab}"
    if not (place / "data.json").is_file():
        first, *rest = SOURCES[cell.text]
        source = first if first.startswith("builtin:") else str(options.data / first)
        regard(["prepare", source, *rest, "--vocab-size", str(cell.vocab), "--out", str(place)])
    return place


# -- the record


def recorded() -> dict[str, dict[str, Any]]:
    """Returns the lines of the record by their keys."""
    if not RECORD.is_file():
        return {}
    lines = map(json.loads, RECORD.read_text(encoding="utf-8").splitlines())
    return {line["key"]: line for line in lines}


def record(cell: Cell, result: dict[str, Any]) -> None:
    """Adds a line; one write, so that two scripts may share the record."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    line = {"key": cell.key, **cell.identity(), **result, "commit": commit.stdout.strip()}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    with RECORD.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


# -- the page


def rows_of(cells: Sequence[tuple[Cell, dict[str, Any]]]) -> list[list[str]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell, line in cells:
        key = (cell.family, cell.text, cell.minutes, cell.change)
        groups.setdefault(key, []).append(line)
    lines = []
    for (family, text, minutes, change), group in groups.items():
        first, counting = group[0], family == NGRAM
        lines.append([
            family, text, "" if counting else f"{minutes:g}", change or "the usual recipe",
            first["metric"].replace("_", " "), spread([line["value"] for line in group]),
            *([""] * 3 if counting else [
                f"{first['tokens'] / 1e6:.2f} M", f"{first['parameters'] / 1e6:.2f} M",
                f"{first['cpu_seconds']:.0f}",
            ]),
        ])  # fmt: skip
    return lines


def page() -> str:
    lines = recorded()
    parts = [
        "## Learning in a small budget",
        f"Made by `python scripts/learning.py`, from `docs/results/{RECORD.name}`. A minute is "
        f"{MINUTE:.2g} operations, about what two cores of a laptop compute in that time. The "
        "usual recipe is the card's `budget_training`, a model of size tiny, samples of 256 tokens "
        "and a vocabulary of 8,192 entries (4,096 after the probe); each row changes what it names "
        "and nothing else. Bits per byte and the share of hidden words that are guessed (15 % are "
        "hidden) are those of the whole validation text. Stages that are not finished show the "
        "cells that there are; lines of the record that say `rounded` are from an earlier page.",
    ]
    heads = ["model", "text", "minutes", "change", "measure", "value", "tokens", "parameters",
             "CPU seconds"]  # fmt: skip
    for name, stage in STAGES.items():
        cells = [(cell, lines[cell.key]) for cell in stage() if cell.key in lines]
        if cells:
            doc = " ".join((stage.__doc__ or "").split())
            parts += [f"### {name.capitalize()}", doc, table(heads, rows_of(cells))]
            parts += [law(stage(), lines)] if stage is STAGES["sizes"] else []
    return "\n\n".join(filter(None, parts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results", "learning"))
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--stage", choices=STAGES, action="append")
    parser.add_argument("--family", action="append", help="only these families")
    parser.add_argument("--minutes", type=float, help="only cells of so many minutes")
    parser.add_argument("--most", type=int, help="measure so many cells, then stop")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once, a thread each")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = options.out.resolve()
    if options.one:
        fields = json.loads(options.one)
        cell = Cell(**fields | {"settings": tuple(fields["settings"])})
        result = learn(cell, prepared(cell, options))
        options.cell.write_text(json.dumps(result), encoding="utf-8")
        return
    lock = Lock()

    def measure(cell: Cell) -> None:
        with lock:
            prepared(cell, options)
        words = ["--one", json.dumps(asdict(cell)), "--out", str(options.out)]
        words += ["--data", str(options.data)] if options.data else []
        result = in_process(__file__, words)
        with lock:
            say(f"{cell.family} {cell.change or 'usual'}: {result['value']:.4f}")
            record(cell, result)
            put_both("learning", page(), options.page)

    every = (cell for name in options.stage or STAGES for cell in STAGES[name]())
    cells = {cell.key: cell for cell in every if cell.text == DOCS or options.data}
    for key in recorded():
        cells.pop(key, None)
    missing = [c for c in cells.values() if not options.family or c.family in options.family]
    if options.minutes is not None:
        missing = [c for c in missing if c.minutes == options.minutes]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(measure, missing[: options.most]))
    put_both("learning", page(), options.page)


if __name__ == "__main__":
    main()
