"""Cross-validation: each part of the data validates once, what has learned from the others."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from regard.core.files import write_json
from regard.data.problems import Problems
from regard.methods.finetune.multi_stage import Facts, Learn, part
from regard.tasks import task as find
from regard.tasks.corpus import read_all
from regard.training.progress import number, watch
from regard.training.recipe import Recipe, replaced

SUMMARY = "folds.json"


def crossed(recipe: Recipe, out: Path, folds: int, learn: Learn, display: str) -> Facts:
    """RUN/fold-1, RUN/fold-2, … and RUN/folds.json with the mean and the spread of each figure.

    All runs know the same classes, in the same order, so that their figures are of one kind.
    """
    labels = settled_labels(recipe, folds, display)
    ended = []
    for place in range(folds):
        own = replaced(recipe, examples={"folds": folds, "fold": place, "labels": labels})
        ended.append(part(own, out / f"fold-{place + 1}", learn))
    found = summary(recipe, out, ended)
    write_json(out / SUMMARY, found)
    return found


def settled_labels(recipe: Recipe, folds: int, display: str) -> list[str] | None:
    task = find(recipe.examples.task or "")
    if recipe.examples.labels or task.text_only:
        return recipe.examples.labels
    examples = read_all(recipe.data, recipe, Problems())
    found = task.labels_in(examples)
    if task.strata:
        counts = Counter(label for example in examples for label in example.labels())
        rare = [f"{label!r} ({count})" for label, count in counts.items() if count < folds]
        if rare:
            watch(display).note(
                f"too rare to be in each of {folds} parts: {', '.join(sorted(rare))}"
            )
    return found


def summary(recipe: Recipe, out: Path, ended: list[Facts]) -> Facts:
    names = list(dict.fromkeys(name for facts in ended for name in facts["valid"]))
    values = {name: [float(facts["valid"][name]) for facts in ended] for name in names}
    return {
        "out": str(out),
        "task": recipe.examples.task,
        "folds": len(ended),
        "outcome": "done",
        "first": True,
        "figures": {
            name: {"mean": sum(held) / len(held), "deviation": deviation(held), "values": held}
            for name, held in values.items()
        },
        "runs": [
            {"out": facts["out"], "outcome": facts["outcome"], "steps": facts["progress"]["step"]}
            for facts in ended
        ],
    }


def deviation(values: list[float]) -> float:
    """Of a sample: the parts stand for others that could have been drawn."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def table(found: Facts) -> str:
    """A row a figure: each part, the mean, the deviation."""
    heads = ["", *(f"fold {i + 1}" for i in range(found["folds"])), "mean", "deviation"]
    rows = [heads]
    for name, figure in found["figures"].items():
        cells = [*figure["values"], figure["mean"], figure["deviation"]]
        rows.append([name.replace("_", " "), *map(number, cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)
