"""What all metrics share: a figure as a function of how often each example counts.

Counting an example twice or not at all is what bootstrap and permutation do. So each figure comes
in two forms that must agree: the number that the field's own library gives, and a `Weighted` that
gives the same number for weights of one, and is fast for thousands of other weights.
R resamples (rows of weights), N examples.
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
    """A task's examples and, when asked, what they say; the first figure counts most.

    Made from gold and predicted by one class for each kind of task. What several figures need is
    computed once.
    """

    falling = False  # lower is better
    flawless = 1.0  # what `each` is for an example without fault
    libraries: ClassVar[tuple[str, ...]] = ()  # that measure it; all come with regard[tasks]
    has_schemes: ClassVar[bool] = False  # can it be strict about what a scheme of tags allows?
    scored: ClassVar[str | None] = None  # the option that what the model thought is given as
    calibrates: ClassVar[bool] = False  # is what the model thought a probability of its answer?
    shares: tuple[str, ...] = ()  # figures that are the share of examples with `each` = 1

    def __init__(self, gold: Sequence[Any], predicted: Sequence[Any], **options: Any) -> None:
        self.count = paired(gold, predicted)
        self.gold, self.predicted = gold, predicted

    @cached_property
    def figures(self) -> Figures:
        """By the field's own library."""
        return points(self.weighted, self.count)

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        """The same figures, for resampling."""
        raise NotImplementedError

    @cached_property
    def each(self) -> list[float]:
        """One value for each example; higher is better."""
        raise NotImplementedError

    @cached_property
    def details(self) -> dict[str, Any]:
        """What a page shows beside the figures; may be written as JSON."""
        return {}

    def belief(self, row: Any, label: Any) -> float:
        """The probability of a label; a single number is that of the predicted one."""
        if isinstance(row, int | float | np.number):
            return float(row)
        return float(row.get(label, 0.0) if isinstance(row, Mapping) else row[label])

    def thought(self, i: int, row: Any) -> dict[str, float]:
        """What the model's own score says of an example: its loss, or how sure it was."""
        return {"loss": float(row)}

    def sides(self, i: int, text: Any) -> dict[str, Any]:
        """What was right and what was said of an example."""
        return {"gold": self.gold[i], "predicted": self.predicted[i]}

    @classmethod
    def check_language(cls, language: str) -> None:
        """Refuses a language that it cannot cut here."""


def paired(gold: Sequence[Any], predicted: Sequence[Any]) -> int:
    """How many examples there are."""
    if len(gold) != len(predicted):
        raise InputError(
            f"{len(gold):,} gold answers but {len(predicted):,} predictions; "
            "give one prediction for each example, in the same order"
        )
    if not len(gold):
        raise InputError("no examples; a figure needs at least one")
    return len(gold)


def mean(values: Sequence[float] | Array, only: Sequence[bool] | None = None) -> Weighted:
    """The mean of a value per example, over some of them if asked; NaN where none is left."""
    value = np.asarray(values, dtype=np.float64)
    share = np.ones_like(value) if only is None else np.asarray(only, dtype=np.float64)
    return lambda weights: ratio(weights @ (value * share), weights @ share, math.nan)


def ratio(above: Array, below: Array, otherwise: float = 0.0) -> Array:
    """above / below, and a value of choice where that is 0 / 0."""
    filled = np.full(np.broadcast(above, below).shape, otherwise)
    return np.divide(above, below, out=filled, where=below != 0)


def f1(hits: Array, claimed: Array, real: Array) -> Array:
    """Harmonic mean of precision and recall from counts; 0 where there is nothing to find."""
    return ratio(2 * hits, claimed + real)


def points(figures: Mapping[str, Weighted], count: int) -> Figures:
    """The figures when each example counts once."""
    once = np.ones((1, count))
    return {name: float(figure(once)[0]) for name, figure in figures.items()}
