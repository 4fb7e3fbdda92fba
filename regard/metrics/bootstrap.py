"""Confidence intervals by the percentile bootstrap over examples (Efron 1979).

A resample draws as many examples as there are, with replacement; all that matters is how often
each was drawn. So a resample is a row of weights, and a figure is a function of such rows: a
thousand resamples are a few matrix products, for corpus figures such as BLEU and F1 too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.core.errors import ConfigError, InputError
from regard.core.seeding import keyed
from regard.metrics.base import Array, Weighted, mean

CELLS = 2**20  # weights held at once: 8 MB


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


def counts(examples: int, resamples: int, seed: int = 0) -> Iterator[Array]:
    """How often each example was drawn: blocks [some, examples] of `resamples` rows in all."""
    if examples < 1:
        raise InputError("no examples to resample; give at least one")
    rows = max(1, CELLS // examples)
    for block, start in enumerate(range(0, resamples, rows)):
        size = min(rows, resamples - start)
        drawn = keyed(seed, "bootstrap", block).integers(0, examples, (size, examples))
        drawn += np.arange(size)[:, None] * examples
        yield (
            np.bincount(drawn.ravel(), minlength=size * examples)
            .reshape(size, examples)
            .astype(np.float64)
        )


def values(
    figures: Mapping[str, Weighted], examples: int, *, seed: int = 0, resamples: int = 1000
) -> dict[str, Array]:
    """Each figure on the same resamples."""
    if resamples < 1:
        raise ConfigError(f"resamples = {resamples}; expected 1 or more")
    drawn: dict[str, list[Array]] = {name: [] for name in figures}
    for weights in counts(examples, resamples, seed):
        for name, figure in figures.items():
            drawn[name].append(figure(weights))
    return {name: np.concatenate(parts) for name, parts in drawn.items()}


def between(drawn: Array, level: float = 0.95) -> Interval | None:
    """The middle share of the values; None where the figure is undefined on all resamples."""
    if not 0 < level < 1:
        raise ConfigError(f"level = {level}; expected a share between 0 and 1, such as 0.95")
    known = drawn[np.isfinite(drawn)]
    if not len(known):
        return None
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def intervals(
    figures: Mapping[str, Weighted],
    examples: int,
    *,
    seed: int = 0,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, Interval | None]:
    """The interval of every figure."""
    drawn = values(figures, examples, seed=seed, resamples=resamples)
    return {name: between(x, level) for name, x in drawn.items()}


def mean_interval(
    each: Sequence[float], *, seed: int = 0, resamples: int = 1000, level: float = 0.95
) -> Interval | None:
    """The interval of a mean of one value per example."""
    spans = intervals({"mean": mean(each)}, len(each), seed=seed, resamples=resamples, level=level)
    return spans["mean"]
