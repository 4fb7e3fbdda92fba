"""Tests whether the difference between two runs on the same examples is more than chance.

The test is approximate randomization (Noreen 1989): if the runs were equally good, it would not
matter which of them gave which of the two predictions for an example. So the predictions are
swapped at random and the difference is measured again. If there are few differing examples, all
swaps are enumerated. For accuracies, the exact McNemar test is the same test without its noise. The
interval of the difference is a bootstrap over examples with both runs resampled together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.metrics.base import Array, TaskMetric, Weighted
from regard.metrics.bootstrap import CELLS, between, counts
from regard.metrics.figures import jsonable

Places = npt.NDArray[np.intp]
SLACK = 1e-10  # two differences closer than this are equal up to rounding


def compare(
    metric: type[TaskMetric],
    gold: Sequence[Any],
    first: Sequence[Any],
    second: Sequence[Any],
    *,
    names: tuple[str, str] = ("first", "second"),
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
    **options: Any,
) -> dict[str, Any]:
    """Returns for every metric both values, second minus first, its interval, p-value and a
    verdict.

    Each metric is a test of its own: judge by the first one, or divide the level among the metrics
    you look at. Answers below a threshold must already be empty. The values are plain, for JSON.
    """
    for name, side in zip(names, (first, second), strict=True):
        if len(side) != len(gold):
            raise InputError(
                f"there are {len(gold):,} examples but {len(side):,} predictions of {name}; "
                "give predictions of both runs on the same examples"
            )
    pooled = metric([*gold, *gold], [*first, *second], **options)
    examples = len(gold)
    pairs = zip(first, second, strict=True)
    differing = np.array([i for i, (a, b) in enumerate(pairs) if differ(a, b)], dtype=np.intp)
    figures = pooled.weighted
    spans = uncertainty(figures, examples, seed=seed, resamples=resamples, level=level)
    chances = randomization(figures, examples, differing, seed=seed, resamples=resamples)
    exact = ", exact" if enumerable(len(differing), resamples) else ""
    rows: dict[str, dict[str, Any]] = {}
    for name, figure in figures.items():
        one, other = both(figure, np.ones((1, examples)))
        row: dict[str, Any] = {"first": float(one[0]), "second": float(other[0])}
        row["difference"] = row["second"] - row["first"]
        row |= spans[name] | {"p_value": chances[name], "test": f"randomization{exact}"}
        if name in pooled.shares:
            row["p_value"] = mcnemar(pooled.each[:examples], pooled.each[examples:])
            row["test"] = "McNemar, exact"
        row["verdict"] = verdict(name, row, names, level, pooled.falling)
        rows[name] = row
    main = next(iter(rows))
    plain: dict[str, Any] = jsonable({
        "names": names, "examples": examples, "differing": len(differing),
        "main": main, "verdict": rows[main]["verdict"], "figures": rows,
        "level": level, "resamples": resamples, "seed": seed,
    })  # fmt: skip
    return plain


def differ(one: Any, other: Any) -> bool:
    return list(one) != list(other) if isinstance(one, list | tuple) else bool(one != other)


def both(figure: Weighted, weights: Array, swapped: Array | None = None) -> tuple[Array, Array]:
    """Returns a metric over the pooled examples, for the first run and for the second.

    `swapped` (0 or 1) says for which examples each run takes the other's prediction.
    """
    other = np.zeros_like(weights) if swapped is None else weights * swapped
    own = weights - other
    return figure(np.hstack([own, other])), figure(np.hstack([other, own]))


def uncertainty(
    figures: Mapping[str, Weighted], examples: int, *, seed: int, resamples: int, level: float
) -> dict[str, dict[str, float | None]]:
    """Returns the interval and the p-value of the paired bootstrap.

    The p-value is twice the share of resamples in which the difference has the other sign.
    """
    parts: dict[str, list[Array]] = {name: [] for name in figures}
    for weights in counts(examples, resamples, seed):
        for name, figure in figures.items():
            one, other = both(figure, weights)
            parts[name].append(other - one)
    intervals: dict[str, dict[str, float | None]] = {}
    for name, blocks in parts.items():
        drawn = np.concatenate(blocks)
        drawn = drawn[np.isfinite(drawn)]
        span = between(drawn, level)
        if span is None:
            intervals[name] = {"low": None, "high": None, "bootstrap_p": None}
            continue
        tail = min(int((drawn <= SLACK).sum()), int((drawn >= -SLACK).sum()))
        chance = min(1.0, 2 * (tail + 1) / (len(drawn) + 1))
        intervals[name] = {"low": span.low, "high": span.high, "bootstrap_p": chance}
    return intervals


def randomization(
    figures: Mapping[str, Weighted],
    examples: int,
    differing: Places,
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> dict[str, float]:
    """Returns how often a random assignment of the predictions makes a difference as large as the
    observed one.

    The test is two-sided. The observed assignment is one of those drawn, so the p-value is never 0
    (Phipson and Smyth 2010).
    """
    limits = {}
    for name, figure in figures.items():
        one, other = both(figure, np.ones((1, examples)))
        seen = abs(float(other[0] - one[0]))
        limits[name] = seen - SLACK * max(1.0, seen)
    beyond, drawn = dict.fromkeys(figures, 0), 0
    for swapped in swaps(examples, differing, resamples, seed):
        drawn += len(swapped)
        for name, figure in figures.items():
            one, other = both(figure, np.ones_like(swapped), swapped)
            # an undefined difference counts as large
            beyond[name] += int((~(np.abs(other - one) < limits[name])).sum())
    itself = 0 if enumerable(len(differing), resamples) else 1
    return {name: (count + itself) / (drawn + itself) for name, count in beyond.items()}


def enumerable(differing: int, resamples: int) -> bool:
    """Tells whether there are no more ways to swap than `resamples`."""
    return differing < resamples.bit_length()


def swaps(examples: int, differing: Places, resamples: int, seed: int) -> Iterator[Array]:
    """Yields blocks [rows, examples] of 0 and 1: all ways to swap, or `resamples` random ones."""
    every = enumerable(len(differing), resamples)
    total = 2 ** len(differing) if every else resamples
    size = max(1, CELLS // (2 * examples))
    for block, start in enumerate(range(0, total, size)):
        rows = min(size, total - start)
        swapped = np.zeros((rows, examples))
        if every:
            numbers = np.arange(start, start + rows)[:, None]
            swapped[:, differing] = (numbers >> np.arange(len(differing))) & 1
        else:
            generator = keyed(seed, "randomisation", block)
            swapped[:, differing] = generator.integers(0, 2, (rows, len(differing)))
        yield swapped


def mcnemar(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the p-value of the exact two-sided McNemar test of right (1) and wrong (0): among the
    examples on which only one run is right, would a fair coin give as uneven a split?"""
    only_first = sum(a > b for a, b in zip(first, second, strict=True))
    only_second = sum(a < b for a, b in zip(first, second, strict=True))
    tosses, fewer = only_first + only_second, min(only_first, only_second)
    ways, tail = 1, 0
    for k in range(fewer + 1):
        tail += ways
        ways = ways * (tosses - k) // (k + 1)
    return min(1.0, 2 * tail / 2**tosses)


def verdict(
    name: str, row: dict[str, Any], names: tuple[str, str], level: float, falling: bool
) -> str:
    """Returns a sentence that says what a reader may conclude."""
    figure, difference, chance = name.replace("_", " "), row["difference"], row["p_value"]
    if not math.isfinite(difference):
        return f"{figure} is undefined for one of the runs"
    evidence = f"{figure} {difference:+.4g}"
    if row["low"] is not None:
        evidence += f", {level:.0%} interval {row['low']:+.4g} to {row['high']:+.4g}"
    evidence += f", p = {chance:.2g}" if chance >= 0.001 else ", p < 0.001"
    if chance >= 1 - level or difference == 0:
        return f"no difference beyond chance ({evidence})"
    better = names[int((difference > 0) != falling)]
    return f"{better} is better ({evidence})"
