"""Confidence intervals by the percentile bootstrap over examples (Efron 1979).

A resample draws N of the N examples with replacement; only how often each example was drawn
matters. So a resample is a row of weights, and a metric is a function of such rows: a thousand
resamples are a few matrix products, also for corpus metrics such as BLEU and F1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.core.errors import ConfigError, InputError
from regard.core.seeding import keyed
from regard.metrics.base import Array, Weighted, mean

CELLS = 2**20  # weights in memory at once: 8 MB


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


def counts(examples: int, resamples: int, seed: int = 0) -> Iterator[Array]:
    """Yields how often each example was drawn, in blocks [rows, examples] of `resamples` rows in
    all."""
    if examples < 1:
        raise InputError("there are no examples to resample; give at least one")
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
    """Returns the values of each metric on the same resamples."""
    if resamples < 1:
        raise ConfigError(f"resamples = {resamples}; expected 1 or more")
    drawn: dict[str, list[Array]] = {name: [] for name in figures}
    for weights in counts(examples, resamples, seed):
        for name, figure in figures.items():
            drawn[name].append(figure(weights))
    return {name: np.concatenate(parts) for name, parts in drawn.items()}


def between(drawn: Array, level: float = 0.95) -> Interval | None:
    """Returns the interval that holds the middle `level` of the values, or None if the metric is
    undefined on all resamples."""
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
    """Returns the confidence interval of every metric."""
    drawn = values(figures, examples, seed=seed, resamples=resamples)
    return {name: between(x, level) for name, x in drawn.items()}


def mean_interval(
    each: Sequence[float], *, seed: int = 0, resamples: int = 1000, level: float = 0.95
) -> Interval | None:
    """Returns the confidence interval of the mean of one value per example."""
    spans = intervals({"mean": mean(each)}, len(each), seed=seed, resamples=resamples, level=level)
    return spans["mean"]
