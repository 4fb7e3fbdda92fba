"""Fits the law of `--size auto` to the cells of the stage "sizes": scripts/learning.py shows it.

The law takes the largest size that reads so many tokens for each weight of its layers; it has one
number, `WORTH` of regard/training/sizing.py. A number is judged by its loss: by how much the size
that it takes is worse than the best of the sizes tried, as a mean over budgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from learning_cells import MINUTE, WORDS, Cell
from page import table

from regard.models.family import SHAPES, Shape
from regard.training.sizing import WORTH, Amount, best_size, layer_weights

MOST = 0.03  # what the size that is taken may be worse by

Tried = dict[float, dict[Shape, float]]  # minutes -> size -> bits per byte


def tried(cells: Iterable[Cell], lines: Mapping[str, dict[str, Any]]) -> Tried:
    """Returns the budgets for which more than one size was tried."""
    budgets: Tried = {}
    for cell in cells:
        if cell.key in lines:
            own = dict(each.split("=", 1) for each in cell.settings)
            names = [f"shape.{name}" for name in ("layers", "width", "heads")]
            fields = [int(own[name]) for name in names if name in own]
            shape = Shape(*fields) if fields else SHAPES[cell.size]
            budgets.setdefault(cell.minutes, {})[shape] = lines[cell.key]["value"]
    return {minutes: values for minutes, values in budgets.items() if len(values) > 1}


def taken(minutes: float, sizes: Iterable[Shape], worth: float) -> Shape:
    amount = Amount(minutes * MINUTE, False)
    return best_size(amount, WORDS, sorted(sizes, key=layer_weights), worth).shape


def loss(budgets: Tried, worth: float) -> float:
    """Returns by how much the sizes that are taken are worse than the best of those tried."""
    losses = [
        values[taken(minutes, values, worth)] / min(values.values()) - 1
        for minutes, values in budgets.items()
    ]
    return sum(losses) / len(losses)


def fitted(budgets: Tried) -> tuple[float, float]:
    """Returns the numbers between which the loss is least; all of them take the same sizes."""
    ratios = sorted(
        Amount(minutes * MINUTE, False).tokens(shape, WORDS) / layer_weights(shape)
        for minutes, values in budgets.items()
        for shape in values
    )
    edges = [0.0, *ratios, float("inf")]
    spans = list(pairwise(edges))
    least = min(loss(budgets, high if high < float("inf") else low + 1) for low, high in spans)
    best = [
        (low, high) for low, high in spans
        if loss(budgets, high if high < float("inf") else low + 1) == least
    ]  # fmt: skip
    return best[0][0], best[-1][1]


def law(cells: Iterable[Cell], lines: Mapping[str, dict[str, Any]]) -> str:
    """Returns the part of the page: what the law takes, beside the best of the sizes tried."""
    budgets = tried(cells, lines)
    if not budgets:
        return ""
    low, high = fitted(budgets)
    rows = []
    for minutes, values in budgets.items():
        best, own = min(values, key=lambda shape: values[shape]), taken(minutes, values, WORTH)
        worse = values[own] / values[best] - 1
        rows.append([f"{minutes:g}", str(len(values)), named(best), f"{values[best]:.3f}",
                     named(own), f"{values[own]:.3f}",
                     f"{worse:.1%}{' (missed)' * (worse > MOST)}"])  # fmt: skip
    heads = ["minutes", "sizes tried", "the best", "its value", "`--size auto` takes", "its value",
             "worse by"]  # fmt: skip
    span = f"above {low:.2g}" + (f" and up to {high:.2g}" if high < float("inf") else "")
    return (
        f"`--size auto` takes the largest size that reads {WORTH:g} tokens for each weight of its "
        f"layers. Every number {span} takes the best sizes of these cells (goal: at most "
        f"{MOST:.0%} worse).\n\n{table(heads, rows)}"
    )


def named(shape: Shape) -> str:
    return f"{shape.layers} layers of {shape.width}"
