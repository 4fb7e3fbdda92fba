"""Rules by which a claim is judged, as data: fixed before the run, and read aloud by it.

A rule looks at the means over seeds and their standard errors. A difference counts where it is
larger than twice its standard error; what lies within is inconclusive at this scale, unless the
claim itself says that there is no difference. A bound of a ratio, a figure or a power is kept or
broken where twice the standard error does not reach across it, and undecided where it does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

REPRODUCED, NOT, UNDECIDED = "reproduced", "not reproduced", "inconclusive at this scale"
TIMES = 2.0  # standard errors that make a difference

Values = Mapping[tuple[str, float], list[dict[str, float]]]  # (arm, place) -> figures by seed


class Ruling(NamedTuple):
    verdict: str
    because: str  # the numbers that decided


class Found(NamedTuple):
    mean: float
    error: float  # standard error of the mean; 0 with a single seed that has no noise

    @classmethod
    def of(cls, values: Values, arm: str, at: float, figure: str) -> Found:
        numbers = [row[figure] for row in values[arm, at]]
        return cls(statistics.fmean(numbers), standard_error(numbers))

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.error:.2g}" if self.error else f"{self.mean:.4g}"


class Rule:
    """Subclasses say in words what they ask, and judge."""

    @property
    def words(self) -> str:
        raise NotImplementedError

    def judge(self, values: Values) -> Ruling:
        raise NotImplementedError


@dataclass(frozen=True)
class Less(Rule):
    """The figure of one arm is smaller than that of another, by more than noise and a margin."""

    figure: str
    arm: str
    other: str
    at: float = 0.0
    margin: float = 0.0  # of the other's mean, as a share

    @property
    def words(self) -> str:
        by = f"{self.margin:.0%} beyond " if self.margin else ""
        below = f"{self.figure} of {self.arm!r} is below that of {self.other!r}{where(self.at)}"
        return f"{below} by more than {by}the noise"

    def judge(self, values: Values) -> Ruling:
        one = Found.of(values, self.arm, self.at, self.figure)
        other = Found.of(values, self.other, self.at, self.figure)
        noise = TIMES * math.hypot(one.error, other.error)
        gap = other.mean - one.mean - self.margin * abs(other.mean)
        told = f"{self.figure}{where(self.at)}: {self.arm} {one}, {self.other} {other}"
        return Ruling(REPRODUCED if gap > noise else NOT if gap < -noise else UNDECIDED, told)


@dataclass(frozen=True)
class Ratio(Rule):
    """One arm's figure is between `least` and `most` times another's."""

    figure: str
    arm: str
    other: str
    least: float = -math.inf
    most: float = math.inf
    at: float = 0.0

    @property
    def words(self) -> str:
        bounds = [f"at least {self.least:g}"] if self.least > -math.inf else []
        bounds += [f"at most {self.most:g}"] if self.most < math.inf else []
        times = f"{' and '.join(bounds)} times {self.other!r}'s{where(self.at)}"
        return f"{self.figure} of {self.arm!r} is {times}"

    def judge(self, values: Values) -> Ruling:
        one = Found.of(values, self.arm, self.at, self.figure)
        other = Found.of(values, self.other, self.at, self.figure)
        ratio = over(one, other)
        told = f"{self.figure}{where(self.at)}: {self.arm} {one}, {self.other} {other}"
        return Ruling(bounded(ratio, self.least, self.most), f"{told}, ratio {ratio.mean:.3g}")


@dataclass(frozen=True)
class Outgrows(Rule):
    """One arm's figure over another's rises from one end of the axis to the other."""

    figure: str
    arm: str
    other: str

    @property
    def words(self) -> str:
        return (
            f"{self.figure} of {self.arm!r} over {self.other!r}'s rises along the axis by more "
            "than the noise"
        )

    def judge(self, values: Values) -> Ruling:
        places = sorted(at for arm, at in values if arm == self.arm)
        arms = (self.arm, self.other)
        ratios = [over(*(Found.of(values, arm, at, self.figure) for arm in arms)) for at in places]
        told = ", ".join(f"{at:g}: {each}" for at, each in zip(places, ratios, strict=True))
        told = f"{self.figure}, {self.arm} over {self.other}: {told}"
        gap = ratios[-1].mean - ratios[0].mean
        noise = TIMES * math.hypot(ratios[0].error, ratios[-1].error)
        verdict = REPRODUCED if gap > noise else NOT if gap < -noise else UNDECIDED
        return Ruling(verdict, told)


@dataclass(frozen=True)
class Within(Rule):
    """A figure lies between two numbers, for one arm, at one place or at all of them."""

    figure: str
    arm: str
    least: float = -math.inf
    most: float = math.inf

    @property
    def words(self) -> str:
        bounds = [f"at least {self.least:g}"] if self.least > -math.inf else []
        bounds += [f"at most {self.most:g}"] if self.most < math.inf else []
        return f"{self.figure} of {self.arm!r} is {' and '.join(bounds)} everywhere"

    def judge(self, values: Values) -> Ruling:
        found = {at: Found.of(values, a, at, self.figure) for a, at in values if a == self.arm}
        told = ", ".join(
            f"{at:g}: {each}" if len(found) > 1 else str(each) for at, each in sorted(found.items())
        )
        verdicts = {bounded(each, self.least, self.most) for each in found.values()}
        return Ruling(worst(verdicts), f"{self.figure} of {self.arm}: {told}")


@dataclass(frozen=True)
class Slope(Rule):
    """On logarithmic axes a figure grows with a power between `least` and `most`."""

    figure: str
    arm: str
    least: float
    most: float
    beyond: float = 0.0  # only places from here on: what is constant has faded there

    @property
    def words(self) -> str:
        since = f", at {self.beyond:g} and beyond" if self.beyond else ""
        power = f"a power from {self.least:g} to {self.most:g}{since}"
        return f"{self.figure} of {self.arm!r} grows with {power}"

    def judge(self, values: Values) -> Ruling:
        places = sorted(at for arm, at in values if arm == self.arm and at >= self.beyond)
        means = [Found.of(values, self.arm, at, self.figure).mean for at in places]
        rows = ([row[self.figure] for row in values[self.arm, at]] for at in places)
        seeds = zip(*rows, strict=False)  # as many as all places have
        powers = [slope(places, list(each)) for each in seeds]
        power = Found(slope(places, means), standard_error(powers))
        told = f"{self.figure} of {self.arm} grows with the power {power}"
        return Ruling(bounded(power, self.least, self.most), told)


@dataclass(frozen=True)
class Peak(Rule):
    """Along the axis a figure is best inside, and worse at both ends by more than the noise."""

    figure: str
    arm: str
    falling: bool = True  # is less better?

    @property
    def words(self) -> str:
        return f"{self.figure} of {self.arm!r} is best inside and worse at both ends"

    def judge(self, values: Values) -> Ruling:
        places = sorted(at for arm, at in values if arm == self.arm)
        found = [Found.of(values, self.arm, at, self.figure) for at in places]
        sign = 1.0 if self.falling else -1.0
        best = min(range(len(found)), key=lambda i: sign * found[i].mean)
        told = ", ".join(f"{at:g}: {each}" for at, each in zip(places, found, strict=True))
        told = f"{self.figure}: {told}"
        ends = [found[0], found[-1]]
        gaps = [sign * (end.mean - found[best].mean) for end in ends]
        noise = [TIMES * math.hypot(end.error, found[best].error) for end in ends]
        if 0 < best < len(found) - 1 and all(g > n for g, n in zip(gaps, noise, strict=True)):
            return Ruling(REPRODUCED, told)
        if best in (0, len(found) - 1) and max(gaps) > max(noise):
            return Ruling(NOT, told)
        return Ruling(UNDECIDED, told)


@dataclass(frozen=True)
class Rising(Rule):
    """A figure rises (or falls) from one end of the axis to the other, by more than the noise."""

    figure: str
    arm: str
    falls: bool = False

    @property
    def words(self) -> str:
        does = "falls" if self.falls else "rises"
        return f"{self.figure} of {self.arm!r} {does} along the axis by more than the noise"

    def judge(self, values: Values) -> Ruling:
        places = sorted(at for arm, at in values if arm == self.arm)
        first, last = (
            Found.of(values, self.arm, at, self.figure) for at in (places[0], places[-1])
        )
        gap = (last.mean - first.mean) * (-1.0 if self.falls else 1.0)
        noise = TIMES * math.hypot(first.error, last.error)
        told = f"{self.figure} of {self.arm}: {places[0]:g}: {first}, {places[-1]:g}: {last}"
        verdict = REPRODUCED if gap > noise else NOT if gap < -noise else UNDECIDED
        return Ruling(verdict, told)


@dataclass(frozen=True)
class All(Rule):
    """Every part of it."""

    rules: tuple[Rule, ...]

    @property
    def words(self) -> str:
        return "; and ".join(rule.words for rule in self.rules)

    def judge(self, values: Values) -> Ruling:
        rulings = [rule.judge(values) for rule in self.rules]
        told = "; ".join(ruling.because for ruling in rulings)
        return Ruling(worst({ruling.verdict for ruling in rulings}), told)


def worst(verdicts: set[str]) -> str:
    return next((v for v in (NOT, UNDECIDED) if v in verdicts), REPRODUCED)


def bounded(found: Found, least: float, most: float) -> str:
    """Inside of the bounds or outside of them by more than the noise?"""
    low, high = found.mean - TIMES * found.error, found.mean + TIMES * found.error
    if least <= low and high <= most:
        return REPRODUCED
    return NOT if high < least or low > most else UNDECIDED


def standard_error(numbers: list[float]) -> float:
    """Of the mean; 0 for a single number, and unknown where one of them is none."""
    if len(numbers) < 2:
        return 0.0
    if not all(map(math.isfinite, numbers)):
        return math.nan
    return statistics.stdev(numbers) / math.sqrt(len(numbers))


def where(at: float) -> str:
    """The place on the axis that a rule looks at; 0 where there is no axis."""
    return f" at {at:g}" if at else ""


def over(one: Found, other: Found) -> Found:
    """The ratio of two means, with the error that theirs make of it."""
    if not other.mean:
        return Found(math.inf if one.mean else math.nan, 0.0)
    ratio = one.mean / other.mean
    return Found(ratio, math.hypot(one.error, ratio * other.error) / abs(other.mean))


def slope(places: list[float], values: list[float]) -> float:
    """Of the straight line through the logarithms, by least squares."""
    x, y = [math.log(p) for p in places], [math.log(max(v, 1e-300)) for v in values]
    if len(x) < 2:
        return math.nan
    return statistics.linear_regression(x, y).slope
