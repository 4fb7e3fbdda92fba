"""Figures over seeds in numbers that a rule prints, and lines through the figures of an axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Values = Mapping[tuple[str, float], list[dict[str, float]]]  # (arm, place) -> figures by seed


class RuleResult(NamedTuple):
    mean: float
    error: float  # the standard error of the mean; 0 for a single seed

    @classmethod
    def of(cls, values: Values, arm: str, at: float, figure: str) -> RuleResult:
        numbers = [row[figure] for row in values[arm, at]]
        return cls(statistics.fmean(numbers), standard_error(numbers))

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.error:.2g}" if self.error else f"{self.mean:.4g}"


def standard_error(numbers: Sequence[float]) -> float:
    """Returns the standard error of the mean; 0 for a single number, and NaN if one of them is not
    finite."""
    if len(numbers) < 2:
        return 0.0
    if not all(map(math.isfinite, numbers)):
        return math.nan
    return statistics.stdev(numbers) / math.sqrt(len(numbers))


def where(at: float) -> str:
    """Formats the place on the axis; "" for 0, which stands for no axis."""
    return f" at {at:g}" if at else ""


def listed(means: Mapping[float, RuleResult]) -> str:
    return ", ".join(f"{at:g}: {each}" for at, each in means.items())


def ends(rows: Iterable[T]) -> tuple[T, T]:
    each = list(rows)
    return each[0], each[-1]


def over(one: float, other: float) -> float:
    """Returns a ratio; one of nothing is infinite, and nothing of nothing is no number."""
    return one / other if other else math.inf if one else math.nan


def log(value: float) -> float:
    return math.log(max(value, 1e-300))


def slope(places: Sequence[float], values: Sequence[float]) -> float:
    """Returns the slope of the least-squares line through the logarithms."""
    if len(places) < 2:
        return math.nan
    return statistics.linear_regression(list(map(log, places)), list(map(log, values))).slope


def distances(places: Sequence[float], values: Sequence[float]) -> list[float]:
    """Returns how far each logarithm is from the least-squares line through all of them."""
    power = slope(places, values)
    rest = [log(v) - power * log(p) for p, v in zip(places, values, strict=True)]
    middle = statistics.fmean(rest)
    return [each - middle for each in rest]
