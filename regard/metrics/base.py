"""The base class of all metrics: a metric is a function of how often each example counts.

Bootstrap and permutation tests count an example twice or not at all. So each metric comes in two
forms that must agree: the number that the field's own library computes, and a `Weighted` function
that gives the same number for weights of one and is fast for thousands of other weights. In shapes,
R is the number of resamples (rows of weights) and N the number of examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError

Array = npt.NDArray[np.float64]
Weighted = Callable[[Array], Array]  # weights[R, N] -> values[R]
Figures = dict[str, float]


class TaskMetric:
    """The metrics of one task, computed lazily from its examples; the first one is the main metric.

    Each kind of task has a subclass, built from `gold` and `predicted`. What several metrics need
    is computed once.
    """

    falling = False  # True if lower is better
    flawless = 1.0  # the value in `each` of an example without any error
    libraries: ClassVar[tuple[str, ...]] = ()  # which compute it; all come with regard[tasks]
    has_schemes: ClassVar[bool] = False  # whether it can read a tagging scheme strictly
    scored: ClassVar[str | None] = None  # the option that passes on the model's own scores
    calibrates: ClassVar[bool] = False  # whether the model's score is its answer's probability
    shares: tuple[str, ...] = ()  # metrics that are the share of examples with `each` = 1

    def __init__(self, gold: Sequence[Any], predicted: Sequence[Any], **options: Any) -> None:
        self.count = paired(gold, predicted)
        self.gold, self.predicted = gold, predicted

    @cached_property
    def figures(self) -> Figures:
        """The metrics by name, as the field's own library computes them."""
        return points(self.weighted, self.count)

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        """The same metrics as functions of the examples' weights, for resampling."""
        raise NotImplementedError

    @cached_property
    def each(self) -> list[float]:
        """One value for each example; higher is better."""
        raise NotImplementedError

    @cached_property
    def details(self) -> dict[str, Any]:
        """What a report page shows beside the metrics; it can be written as JSON."""
        return {}

    def belief(self, row: Any, label: Any) -> float:
        """Returns the probability of a label; a single number is that of the predicted label."""
        if isinstance(row, int | float | np.number):
            return float(row)
        return float(row.get(label, 0.0) if isinstance(row, Mapping) else row[label])

    def thought(self, i: int, row: Any) -> dict[str, float]:
        """Returns what the model's own score says of an example: its loss or its confidence."""
        return {"loss": float(row)}

    def sides(self, i: int, text: Any) -> dict[str, Any]:
        """Returns the gold and the predicted answer of an example, as a page shows them."""
        return {"gold": self.gold[i], "predicted": self.predicted[i]}

    @classmethod
    def check_language(cls, language: str) -> None:
        """Raises an error if texts of this language cannot be tokenized on this machine."""


def paired(gold: Sequence[Any], predicted: Sequence[Any]) -> int:
    """Returns the number of examples after it checked that each has one prediction."""
    if len(gold) != len(predicted):
        raise InputError(
            f"there are {len(gold):,} gold answers but {len(predicted):,} predictions; "
            "give one prediction for each example, in the same order"
        )
    if not len(gold):
        raise InputError("there are no examples; a metric needs at least one")
    return len(gold)


def mean(values: Sequence[float] | Array, only: Sequence[bool] | None = None) -> Weighted:
    """Returns the mean of one value per example, over the examples in `only` if it is given, as a
    `Weighted`. It is NaN where no example is left."""
    value = np.asarray(values, dtype=np.float64)
    share = np.ones_like(value) if only is None else np.asarray(only, dtype=np.float64)
    return lambda weights: ratio(weights @ (value * share), weights @ share, math.nan)


def ratio(above: Array, below: Array, otherwise: float = 0.0) -> Array:
    """Returns above / below, and `otherwise` where below is 0."""
    filled = np.full(np.broadcast(above, below).shape, otherwise)
    return np.divide(above, below, out=filled, where=below != 0)


def f1(hits: Array, claimed: Array, real: Array) -> Array:
    """Returns the harmonic mean of precision and recall from counts; 0 if all counts are 0."""
    return ratio(2 * hits, claimed + real)


def points(figures: Mapping[str, Weighted], count: int) -> Figures:
    """Returns the metrics with every example counted once."""
    once = np.ones((1, count))
    return {name: float(figure(once)[0]) for name, figure in figures.items()}
