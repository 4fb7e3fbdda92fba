"""Fine-tuned MiniLM, quantized: its size, score and speed compared with fp32.

    python benchmarks/quantize.py --data DIR [--seeds 3] [--only reviews,wnut17] [--json]

Tasks, files and hyper-parameters are those of benchmarks/finetune.py. A model is fine-tuned once
per task and seed and then quantized in every way, each measured by `regard quantize` on the test
set. Goals: at most 30 % of the fp32 size (int8) and at least 99 % of the score. Each finished cell
is saved with its settings; if the script is started again, it continues with the next. The section
is "quantization" of docs/results.md.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from finetune_sides import minilm, settings
from finetune_tasks import TASKS, Task, files
from page import cells, goal, in_process, once, say, spread, table
from script import options_of, parser_for, publish, regard, write_cell

from regard.training.hardware import quick_malloc

CHOSEN = ("reviews", "wnut17", "entail", "similar")
KINDS = ("int8", "int8-dynamic", "bf16")
SMALL = {"int8": 0.3, "int8-dynamic": 0.3, "bf16": 0.55}
KEPT = 0.99
LEARNED = "bf16"  # the precision of fine-tuning; the model is measured in fp32


def cell(task: Task, data: Path, out: Path, seed: int, examples: int) -> dict[str, Any]:
    """Fine-tunes one model, and quantizes it in every way."""
    from regard.methods.quantize.run import Plan, quantize

    data_files = files(task, data, out / "data", examples)
    run = data_files.runs / f"quantize-{task.name}-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    words = ["finetune", str(minilm()), "--task", task.task, "--data", str(data_files.train)]
    words += ["--out", str(run), "--seed", str(seed), "--quiet", *settings(task, LEARNED)]
    regard(words)
    reports = {}
    for kind in KINDS:
        place = run.with_name(f"{run.name}-{kind}")
        shutil.rmtree(place, ignore_errors=True)
        reports[kind] = quantize(str(run), place, Plan(kind=kind, data=[str(data_files.test)]))
        shutil.rmtree(place)
    shutil.rmtree(run)
    return {"task": task.name, "seed": seed, "kinds": reports}


def rows_of(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = []
    for name in dict.fromkeys(row["task"] for row in rows):
        reports = [row["kinds"] for row in rows if row["task"] == name]
        for kind in KINDS:
            each = [row[kind] for row in reports]
            share = statistics.fmean(e["bytes"]["after"] / e["bytes"]["before"] for e in each)
            score = [e["score"] for e in each]
            remaining = statistics.fmean(s["after"] for s in score) / statistics.fmean(
                s["before"] for s in score
            )
            ratio = statistics.median(e["speed"]["after"] / e["speed"]["before"] for e in each)
            lines.append(
                [
                    TASKS[name].title,
                    kind,
                    str(len(each)),
                    score[0]["figure"].replace("_", " "),
                    spread([s["before"] for s in score]),
                    spread([s["after"] for s in score]),
                    goal(f"{remaining:.1%}", remaining >= KEPT),
                    goal(f"{share:.1%}", share <= SMALL[kind]),
                    f"{ratio:.2f}",
                ]
            )
    return lines


def section(rows: list[dict[str, Any]]) -> str:
    heads = ["task", "kind", "seeds", "measure", "fp32", "small", "kept", "size", "speed"]
    return "\n\n".join(
        [
            "## Quantization",
            "Made by `python benchmarks/quantize.py`: MiniLM (6 layers) fine-tuned as in "
            "“Fine-tuning”, then quantized; mean ± standard deviation over seeds. Size and speed "
            "(16 sentences of 64 tokens at once) are those of fp32 = 1. Goals: at least "
            f"{KEPT:.0%} of the score; at most {SMALL['int8']:.0%} of the size for int8.",
            table(heads, rows_of(rows)),
        ]
    )


def settings_of(task: Task, seed: int) -> dict[str, Any]:
    """Returns all settings that a cell depends on."""
    return task.settings("ours", seed, LEARNED, False) | {"kinds": KINDS}


def measured(options: Any) -> list[dict[str, Any]]:
    """Measures the chosen cells, and returns all cells."""
    for name in options.only:
        task = options.tasks[name]
        for seed in range(1, options.seeds + 1):
            say(f"{name}, seed {seed} …")
            words = ["--only", name, "--seeds", str(seed), "--examples", str(options.examples),
                     "--data", str(options.data), "--out", str(options.out)]  # fmt: skip
            once(
                options.cells / f"{name}-{seed}.json",
                partial(in_process, __file__, words),
                settings_of(task, seed),
            )

    def wanted(row: dict[str, Any]) -> dict[str, Any] | None:
        task = options.tasks.get(row["task"])
        return None if task is None else settings_of(task, row["seed"])

    rows = cells(options.cells, wanted)
    return sorted(rows, key=lambda row: (CHOSEN.index(row["task"]), row["seed"]))


def main() -> None:
    options = options_of(parser_for(__doc__, "quantize", CHOSEN), CHOSEN)
    options.tasks = {name: TASKS[name].tried(options.few) for name in CHOSEN}
    if options.cell:
        quick_malloc()
        task = options.tasks[options.only[0]]
        write_cell(options, cell(task, options.data, options.out, options.seeds, options.few))
        return
    rows = measured(options)
    publish(options, "quantization", section(rows), cells=rows)


if __name__ == "__main__":
    main()
