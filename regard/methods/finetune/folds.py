"""Cross-validation: each fold of the data validates once a model that was trained on the other
folds."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from regard.core.files import write_json
from regard.data.problems import Problems
from regard.methods.runs import Facts, Learn, part
from regard.tasks import task as find
from regard.tasks.corpus import read_all
from regard.training.progress import number, watch
from regard.training.recipe import Recipe, replaced

SUMMARY = "folds.json"


def cross_validate(recipe: Recipe, out: Path, folds: int, learn: Learn, display: str) -> Facts:
    """Writes RUN/fold-1, RUN/fold-2, … and RUN/folds.json with the mean and the standard deviation
    of each metric.

    All runs know the same classes in the same order, so that their metrics can be compared.
    """
    task, labels = find(recipe.examples.task or ""), recipe.examples.labels
    if not labels and not task.text_only:
        examples = read_all(recipe.data, recipe, Problems())
        labels = task.labels_in(examples)
        counts = Counter(label for e in examples for label in e.labels()) if task.strata else {}
        rare = [f"{label!r} ({count})" for label, count in counts.items() if count < folds]
        if rare:
            watch(display).note(
                f"these labels are too rare to be in each of {folds} parts: "
                f"{', '.join(sorted(rare))}"
            )
    runs = []
    for place in range(folds):
        own = replaced(recipe, examples={"folds": folds, "fold": place, "labels": labels})
        runs.append(part(own, out / f"fold-{place + 1}", learn))
    names = dict.fromkeys(name for facts in runs for name in facts["valid"])
    values = {name: [float(facts["valid"][name]) for facts in runs] for name in names}
    summary = {
        "out": str(out),
        "task": recipe.examples.task,
        "folds": folds,
        "outcome": "done",
        "first": True,
        "figures": {
            name: {"mean": sum(own) / len(own), "deviation": deviation(own), "values": own}
            for name, own in values.items()
        },
        "runs": [
            {"out": facts["out"], "outcome": facts["outcome"], "steps": facts["progress"]["step"]}
            for facts in runs
        ],
    }
    write_json(out / SUMMARY, summary)
    return summary


def deviation(values: list[float]) -> float:
    """Returns the standard deviation of a sample (divided by n - 1), because the folds are a sample
    of the folds that could have been drawn."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def table(summary: Facts) -> str:
    """Formats a table with one row for each metric: the value in each fold, the mean, the
    deviation."""
    rows = [["", *(f"fold {i + 1}" for i in range(summary["folds"])), "mean", "deviation"]]
    for name, figure in summary["figures"].items():
        cells = [*figure["values"], figure["mean"], figure["deviation"]]
        rows.append([name.replace("_", " "), *map(number, cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
