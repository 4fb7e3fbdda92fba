"""Student's t-tests of figures that were measured with several seeds: differences, sameness, power.

A quantity is a weighted sum of arms, such as b - a. Arms with as many seeds share them, so the sum
is formed seed by seed and tested as one sample: the paired t-test. Otherwise the errors of the arms
are added, with the degrees of freedom of Welch (1947). Sameness is shown by two one-sided tests
(TOST, Schuirmann 1987), and several tests of one statement are corrected by Holm (1979).

Values that are the same with all seeds have no noise: their mean is exact, and decides. One seed
shows no noise at all and decides nothing, and neither does a value that is no finite number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

LEVEL = 0.05  # a result counts if chance gives it less often than this: 95%
MOST = 1000  # seeds; more are not counted
ENOUGH = 0.8  # the power from which a number of seeds is enough


class Estimate(NamedTuple):
    """The mean of a quantity over seeds, its standard error and its degrees of freedom."""

    mean: float
    error: float  # NaN if unknown: one seed, or values that are no finite numbers
    free: float
    seeds: int
    test: str  # "paired t-test", "Welch's t-test" or "t-test"

    def interval(self, level: float = 1 - LEVEL) -> tuple[float, float]:
        from scipy import stats

        if not self.error:
            return self.mean, self.mean
        half = float(stats.t.ppf((1 + level) / 2, self.free)) * self.error
        return self.mean - half, self.mean + half

    def above(self, bound: float = 0.0) -> float:
        """Returns the one-sided p-value against a true mean of at most `bound`."""
        from scipy import stats

        if math.isnan(self.error) or math.isnan(self.mean):
            return 1.0
        if not self.error:
            return 0.0 if self.mean > bound else 1.0
        return float(stats.t.sf((self.mean - bound) / self.error, self.free))

    def below(self, bound: float = 0.0) -> float:
        """Returns the one-sided p-value against a true mean of at least `bound`."""
        return Estimate(-self.mean, *self[1:]).above(-bound)

    def differs(self, bound: float = 0.0) -> float:
        """Returns the two-sided p-value against a true mean of `bound`."""
        return min(1.0, 2 * min(self.above(bound), self.below(bound)))

    def inside(self, least: float, most: float) -> float:
        """Returns the p-value of two one-sided tests that the true mean is between the bounds."""
        if not self.error:  # an exact mean may lie on a bound
            return 0.0 if least <= self.mean <= most else 1.0
        return max(self.above(least), self.below(most))


def estimate(*terms: tuple[float, Sequence[float]]) -> Estimate:
    """Returns the estimate of a weighted sum of arms, each with its values by seed."""
    sizes = {len(values) for _, values in terms}
    fewest = min(sizes)
    mean = sum(weight * statistics.fmean(values) for weight, values in terms)
    finite = all(math.isfinite(value) for _, values in terms for value in values)
    if fewest < 2 or not finite:
        return Estimate(mean, math.nan, math.nan, fewest, "t-test")
    if len(sizes) == 1:
        weights = [weight for weight, _ in terms]
        rows = zip(*(values for _, values in terms), strict=True)
        sums = [sum(w * x for w, x in zip(weights, row, strict=True)) for row in rows]
        error = statistics.stdev(sums) / math.sqrt(fewest)
        name = "t-test" if len(terms) == 1 else "paired t-test"
        return Estimate(statistics.fmean(sums), error, fewest - 1, fewest, name)
    return unpaired(*terms)


def welch(one: Sequence[float], other: Sequence[float]) -> Estimate:
    """Returns the difference of two arms that share no seeds, even if they have as many."""
    return unpaired((1.0, one), (-1.0, other))


def unpaired(*terms: tuple[float, Sequence[float]]) -> Estimate:
    """Returns the estimate of a weighted sum of independent arms of two or more seeds."""
    mean = sum(weight * statistics.fmean(values) for weight, values in terms)
    fewest = min(len(values) for _, values in terms)
    squares = [(w**2 * statistics.variance(v) / len(v), len(v) - 1) for w, v in terms]
    square = sum(each for each, _ in squares)
    parts = sum(each**2 / free for each, free in squares)
    return Estimate(
        mean, math.sqrt(square), square**2 / parts if parts else 1.0, fewest, "Welch's t-test"
    )


def holm(chances: Sequence[float]) -> list[float]:
    """Returns the p-values of several tests of one statement, corrected by Holm's method."""
    adjusted, largest = [1.0] * len(chances), 0.0
    for rank, i in enumerate(sorted(range(len(chances)), key=lambda i: chances[i])):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[i]))
        adjusted[i] = largest
    return adjusted


def power_of_difference(known: Estimate, bound: float, seeds: int, level: float = LEVEL) -> float:
    """Returns how likely the two-sided test finds that the mean is not `bound`, with this many
    seeds, if the true mean and noise are those seen."""
    from scipy import stats

    free = seeds - 1
    away = (known.mean - bound) / known.error * math.sqrt(seeds / known.seeds)
    limit = float(stats.t.isf(level / 2, free))
    return 1 - noncentral(limit, free, away) + noncentral(-limit, free, away)


def power_of_sameness(
    known: Estimate, least: float, most: float, seeds: int, level: float = LEVEL
) -> float:
    """Returns how likely the two one-sided tests succeed with this many seeds, if the true mean and
    noise are those seen (the approximation of Phillips 1990)."""
    from scipy import stats

    free, error = seeds - 1, known.error * math.sqrt(known.seeds / seeds)
    limit = float(stats.t.isf(level, free))
    below = noncentral(-limit, free, (known.mean - most) / error)
    above = noncentral(limit, free, (known.mean - least) / error)
    return max(0.0, below - above)


def noncentral(value: float, free: float, away: float) -> float:
    """Returns the distribution function of the noncentral t. Far from 0, where scipy gives no
    number, it is the normal approximation of Johnson and Welch (1940)."""
    from scipy import stats

    exact = float(stats.nct.cdf(value, free, away))
    if math.isfinite(exact):
        return exact
    middle = value * (1 - 1 / (4 * free)) - away
    return float(stats.norm.cdf(middle / math.sqrt(1 + value**2 / (2 * free))))


def seeds_for(power: Callable[[int], float]) -> int | None:
    """Returns the fewest seeds with a power of `ENOUGH`; None if `MOST` are too few."""
    if power(MOST) < ENOUGH:
        return None
    low, high = 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= ENOUGH else (middle, high)
    return high
