"""Metrics of numbers: similarity by correlation (SciPy), and language modeling from loss sums."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.data.files import needed
from regard.metrics.base import Array, Figures, TaskMetric, Weighted, ratio


class Similarity(TaskMetric):
    """Pearson's and Spearman's correlations. They are NaN (undefined) if one side is constant."""

    libraries = ("scipy.stats",)
    flawless = 0.0

    def __init__(self, gold: Sequence[float], predicted: Sequence[float]) -> None:
        super().__init__(gold, predicted)
        self.real = np.asarray(gold, dtype=np.float64)
        self.claimed = np.asarray(predicted, dtype=np.float64)
        if not (np.isfinite(self.real).all() and np.isfinite(self.claimed).all()):
            raise InputError("a similarity is not a finite number; give a number for each pair")

    @cached_property
    def figures(self) -> Figures:
        stats = needed("scipy.stats", "similarity is measured", "tasks")
        if self.count < 2:
            return {"spearman": math.nan, "pearson": math.nan}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning of constant input; NaN says the same
            return {
                "spearman": float(stats.spearmanr(self.real, self.claimed).statistic),
                "pearson": float(stats.pearsonr(self.real, self.claimed).statistic),
            }

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        return {
            "spearman": rank_correlation(self.real, self.claimed),
            "pearson": correlation(self.real, self.claimed),
        }

    @cached_property
    def each(self) -> list[float]:
        return [-abs(float(x)) for x in self.real - self.claimed]


def correlation(first: Array, second: Array) -> Weighted:
    """Computes Pearson's correlation from sums. The values are centered first, so that no digits
    are lost."""
    x, y = first - first.mean(), second - second.mean()
    table = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)

    def value(weights: Array) -> Array:
        total, x, y, xx, yy, xy = (weights @ table).T
        spreads = [square - plain**2 / total for plain, square in ((x, xx), (y, yy))]
        for spread, square in zip(spreads, (xx, yy), strict=True):
            spread[spread <= 1e-14 * square] = 0.0  # a constant, up to rounding
        return correlated(xy - x * y / total, *spreads)

    return value


def rank_correlation(first: Array, second: Array) -> Weighted:
    """Computes Spearman's correlation; the ranks are computed anew for each row of weights."""
    one, other = WeightedRanks(first), WeightedRanks(second)

    def value(weights: Array) -> Array:
        x, xx = one(weights)
        y, yy = other(weights)
        return correlated(np.einsum("rn,rn,rn->r", weights, x, y), xx, yy)

    return value


def correlated(both: Array, one: Array, other: Array) -> Array:
    return np.clip(ratio(both, np.sqrt(one * other), math.nan), -1.0, 1.0)


class WeightedRanks:
    """The ranks of values, each counted as often as its weight says; ties share their middle rank.

    A call returns the ranks minus their mean, and the sum of their squares.
    """

    def __init__(self, values: Array) -> None:
        order = np.argsort(values, kind="stable")
        fresh = np.diff(values[order], prepend=-np.inf) != 0
        self.order: npt.NDArray[np.intp] = order
        self.starts = np.flatnonzero(fresh)
        self.group = np.empty(len(values), dtype=np.intp)
        self.group[order] = np.cumsum(fresh) - 1

    def __call__(self, weights: Array) -> tuple[Array, Array]:
        sizes = np.add.reduceat(np.take(weights, self.order, axis=1), self.starts, axis=1)
        upto = np.cumsum(sizes, axis=1)
        middles = upto - sizes / 2 - upto[:, -1:] / 2
        return np.take(middles, self.group, axis=1), np.einsum(
            "rn,rn,rn->r", sizes, middles, middles
        )


class LanguageModelMetric(TaskMetric):
    """The metrics of language modeling. Gold is (tokens, bytes) of each document, predicted is its
    loss in nats (the sum over its tokens)."""

    falling = True
    flawless = 0.0

    def __init__(self, gold: Sequence[tuple[int, int]], predicted: Sequence[float]) -> None:
        super().__init__(gold, predicted)
        self.nats = np.asarray(predicted, dtype=np.float64)
        self.tokens, self.bytes = np.asarray(gold, dtype=np.float64).reshape(self.count, 2).T

    @cached_property
    def figures(self) -> Figures:
        nats = float(self.nats.sum())
        return {
            "perplexity": perplexity(nats, float(self.tokens.sum())),
            "bits_per_byte": bits_per_byte(nats, float(self.bytes.sum())),
        }

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        def surprise(weights: Array) -> Array:
            with np.errstate(over="ignore"):
                return np.exp(ratio(weights @ self.nats, weights @ self.tokens, math.nan))

        def bits(weights: Array) -> Array:
            return ratio(weights @ self.nats, weights @ self.bytes, math.nan) / math.log(2)

        return {"perplexity": surprise, "bits_per_byte": bits}

    @cached_property
    def each(self) -> list[float]:
        """Minus the nats per token of each document; 0 for a document without tokens."""
        return [-float(x) for x in ratio(self.nats, self.tokens)]


def perplexity(nats: float, tokens: float) -> float:
    """Returns exp(mean loss per token); infinite where a float cannot hold it."""
    if not tokens:
        return math.nan
    mean = nats / tokens
    return math.exp(mean) if mean < 709.0 else math.inf


def bits_per_byte(nats: float, size: float) -> float:
    return nats / size / math.log(2) if size else math.nan
