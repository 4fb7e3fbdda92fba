"""The rules by which a claim is judged, as data: they are fixed before the run, and the report
prints them.

A rule uses the means over seeds and their standard errors. A difference counts if it is larger than
twice its standard error. A smaller difference is inconclusive at this scale, unless the claim
itself says that there is no difference. A bound on a ratio, a figure or a power is kept or broken
if the interval of two standard errors does not cross it, and undecided if it does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from regard.core.text import Bilingual
from regard.report.pages import words

REPRODUCED, NOT, UNDECIDED = "reproduced", "not reproduced", "inconclusive at this scale"
TIMES = 2.0  # a difference counts from this many standard errors

Values = Mapping[tuple[str, float], list[dict[str, float]]]  # (arm, place) -> figures by seed


class Ruling(NamedTuple):
    verdict: str
    because: str  # the numbers that decided it


class RuleResult(NamedTuple):
    mean: float
    error: float  # the standard error of the mean; 0 for a single seed

    @classmethod
    def of(cls, values: Values, arm: str, at: float, figure: str) -> RuleResult:
        numbers = [row[figure] for row in values[arm, at]]
        return cls(statistics.fmean(numbers), standard_error(numbers))

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.error:.2g}" if self.error else f"{self.mean:.4g}"


class Rule:
    """The base of all rules. A subclass states its condition in both languages, and judges it."""

    @property
    def said(self) -> Bilingual:
        raise NotImplementedError

    @property
    def words(self) -> str:
        return self.said.en

    def parts(self) -> list[Bilingual]:
        """Returns the conditions, one sentence for each part."""
        return [self.said]

    def judge(self, values: Values) -> Ruling:
        raise NotImplementedError


@dataclass(frozen=True)
class OfArm(Rule):
    """A rule about one figure of one arm."""

    figure: str
    arm: str

    @property
    def said(self) -> Bilingual:
        """Returns the condition in both languages: the sentence of this kind of rule with its
        fields filled in."""
        fields = asdict(self)
        at, beyond, margin = (fields.get(name) for name in ("at", "beyond", "margin"))
        ends = (("least", fields.get("least", -math.inf)), ("most", fields.get("most", math.inf)))
        bounds = {name: f"{end:g}" for name, end in ends if math.isfinite(end)}
        falls = fields.get("falls")
        english = {
            "place": f" at {at:g}" if at else "",
            "since": f", at {beyond:g} and beyond" if beyond else "",
            "margin": f"{margin:.0%} beyond " if margin else "",
            "bounds": " and ".join(f"at {name} {end}" for name, end in bounds.items()),
            "moves": "falls" if falls else "rises",
        }
        signs = {"least": "至少", "most": "至多"}
        chinese = {
            "place": f"（在 {at:g} 处）" if at else "",
            "since": f"（自 {beyond:g} 起）" if beyond else "",
            "margin": f"除去噪声仍超过 {margin:.0%}" if margin else "超过噪声",
            "bounds": "、".join(f"{signs[name]} {end}" for name, end in bounds.items()) + " ",
            "moves": "下降" if falls else "上升",
        }
        sentence = words("rules")[type(self).__name__.lower()]
        return Bilingual(
            sentence.en.format(**fields | english), sentence.zh.format(**fields | chinese)
        )

    def along(self, values: Values, beyond: float = 0.0) -> dict[float, RuleResult]:
        """Returns the figure at every place of the axis, in order."""
        places = sorted(at for arm, at in values if arm == self.arm and at >= beyond)
        return {at: RuleResult.of(values, self.arm, at, self.figure) for at in places}


@dataclass(frozen=True)
class OfTwo(OfArm):
    """A rule about one figure of two arms."""

    other: str

    def both(self, values: Values, at: float) -> tuple[RuleResult, RuleResult]:
        one, two = (RuleResult.of(values, arm, at, self.figure) for arm in (self.arm, self.other))
        return one, two

    def told(self, at: float, one: RuleResult, two: RuleResult) -> str:
        return f"{self.figure}{where(at)}: {self.arm} {one}, {self.other} {two}"


@dataclass(frozen=True)
class Less(OfTwo):
    """The figure of one arm is smaller than that of another, by more than the noise and a
    margin."""

    at: float = 0.0
    margin: float = 0.0  # as a share of the other arm's mean

    def judge(self, values: Values) -> Ruling:
        one, two = self.both(values, self.at)
        gap = two.mean - one.mean - self.margin * abs(two.mean)
        return Ruling(beyond_noise(gap, one, two), self.told(self.at, one, two))


@dataclass(frozen=True)
class Ratio(OfTwo):
    """The figure of one arm is between `least` and `most` times that of another."""

    least: float = -math.inf
    most: float = math.inf
    at: float = 0.0

    def judge(self, values: Values) -> Ruling:
        one, two = self.both(values, self.at)
        ratio = over(one, two)
        because = f"{self.told(self.at, one, two)}, ratio {ratio.mean:.3g}"
        return Ruling(bounded(ratio, self.least, self.most), because)


@dataclass(frozen=True)
class Alike(OfTwo):
    """Two arms differ by less than `within`. If the noise is larger, the rule is undecided."""

    within: float
    at: float = 0.0

    def judge(self, values: Values) -> Ruling:
        one, two = self.both(values, self.at)
        gap, noise = abs(one.mean - two.mean), noise_of(one, two)
        because = self.told(self.at, one, two)
        if gap > max(self.within, noise):
            return Ruling(NOT, because)
        return Ruling(REPRODUCED if gap + noise <= self.within else UNDECIDED, because)


@dataclass(frozen=True)
class Shrinks(OfTwo):
    """The difference of two arms is larger at the place `first` than at the place `last`. `arm` is
    the better one: its figure is lower."""

    first: float
    last: float

    def judge(self, values: Values) -> Ruling:
        pairs = [self.both(values, at) for at in (self.first, self.last)]
        gaps = [two.mean - one.mean for one, two in pairs]
        four = [points for pair in pairs for points in pair]
        because = f"{self.figure}, difference at {self.first:g}: {gaps[0]:.4g}, at {self.last:g}: "
        because += f"{gaps[1]:.4g}, noise {noise_of(*four):.2g}"
        return Ruling(beyond_noise(gaps[0] - gaps[1], *four), because)


@dataclass(frozen=True)
class Outgrows(OfTwo):
    """The ratio of one arm's figure to another's rises from one end of the axis to the other."""

    def judge(self, values: Values) -> Ruling:
        ratios = {at: over(*self.both(values, at)) for at in self.along(values)}
        because = f"{self.figure}, {self.arm} over {self.other}: {listed(ratios)}"
        first, last = ends(ratios.values())
        return Ruling(beyond_noise(last.mean - first.mean, first, last), because)


@dataclass(frozen=True)
class Within(OfArm):
    """The figure of one arm lies between two numbers at every place."""

    least: float = -math.inf
    most: float = math.inf

    def judge(self, values: Values) -> Ruling:
        points = self.along(values)
        verdicts = {bounded(each, self.least, self.most) for each in points.values()}
        because = listed(points) if len(points) > 1 else str(next(iter(points.values())))
        return Ruling(worst(verdicts), f"{self.figure} of {self.arm}: {because}")


@dataclass(frozen=True)
class Slope(OfArm):
    """On logarithmic axes, the figure grows with a power between `least` and `most`."""

    least: float
    most: float
    beyond: float = 0.0  # uses only places from here on, where constant costs no longer matter

    def judge(self, values: Values) -> Ruling:
        points = self.along(values, self.beyond)
        places = list(points)
        rows = ([row[self.figure] for row in values[self.arm, at]] for at in places)
        seeds = zip(*rows, strict=False)  # the seeds that all places have
        powers = [slope(places, each) for each in seeds]
        power = RuleResult(slope(places, [f.mean for f in points.values()]), standard_error(powers))
        because = f"{self.figure} of {self.arm} grows with the power {power}"
        return Ruling(bounded(power, self.least, self.most), because)


@dataclass(frozen=True)
class Straight(OfArm):
    """On logarithmic axes, the means lie on a straight line: the relative distance from it is at
    most `most`."""

    most: float

    def judge(self, values: Values) -> Ruling:
        means = {at: points.mean for at, points in self.along(values).items()}
        power = slope(list(means), list(means.values()))
        rest = [math.log(v) - power * math.log(p) for p, v in means.items()]
        middle = sum(rest) / len(rest)
        farthest = max(abs(math.expm1(r - middle)) for r in rest)
        because = f"{self.figure} of {self.arm} is at most {farthest:.2%} from a power"
        return Ruling(REPRODUCED if farthest <= self.most else NOT, because)


@dataclass(frozen=True)
class Peak(OfArm):
    """The figure is best inside the axis, and worse at both ends by more than the noise."""

    falling: bool = True  # whether lower is better

    def judge(self, values: Values) -> Ruling:
        along = self.along(values)
        points, because = list(along.values()), f"{self.figure}: {listed(along)}"
        sign = 1.0 if self.falling else -1.0
        best = min(range(len(points)), key=lambda i: sign * points[i].mean)
        gaps = [sign * (end.mean - points[best].mean) for end in ends(points)]
        noise = [noise_of(end, points[best]) for end in ends(points)]
        if 0 < best < len(points) - 1 and all(g > n for g, n in zip(gaps, noise, strict=True)):
            return Ruling(REPRODUCED, because)
        if best in (0, len(points) - 1) and max(gaps) > max(noise):
            return Ruling(NOT, because)
        return Ruling(UNDECIDED, because)


@dataclass(frozen=True)
class Rising(OfArm):
    """The figure rises (or falls) from one end of the axis to the other by more than the noise."""

    falls: bool = False

    def judge(self, values: Values) -> Ruling:
        along = self.along(values)
        first, last = ends(along.values())
        gap = (last.mean - first.mean) * (-1.0 if self.falls else 1.0)
        because = f"{self.figure} of {self.arm}: {min(along):g}: {first}, {max(along):g}: {last}"
        return Ruling(beyond_noise(gap, first, last), because)


@dataclass(frozen=True)
class All(Rule):
    """All of its rules hold. It is undecided if a condition that it builds on (`provided`) does not
    hold."""

    rules: tuple[Rule, ...]
    provided: tuple[Rule, ...] = ()

    @property
    def words(self) -> str:
        rule_words, condition = (
            "; and ".join(rule.words for rule in rules) for rules in (self.rules, self.provided)
        )
        return f"{rule_words}; undecided unless {condition}" if condition else rule_words

    def parts(self) -> list[Bilingual]:
        sentences, conditions = (
            [sentence for rule in rules for sentence in rule.parts()]
            for rules in (self.rules, self.provided)
        )
        return sentences + [
            Bilingual(f"undecided unless {sentence.en}", f"前提（否则无法判定）：{sentence.zh}")
            for sentence in conditions
        ]

    def judge(self, values: Values) -> Ruling:
        rulings = [rule.judge(values) for rule in self.rules]
        conditions = [rule.judge(values) for rule in self.provided]
        verdict = worst({ruling.verdict for ruling in rulings})
        if any(ruling.verdict != REPRODUCED for ruling in conditions):
            verdict = UNDECIDED
        return Ruling(verdict, "; ".join(each.because for each in rulings + conditions))


KINDS: dict[str, type[OfArm]] = {
    kind.__name__.lower(): kind
    for kind in (Less, Ratio, Alike, Shrinks, Outgrows, Within, Slope, Straight, Peak, Rising)
}


def rule_of(tables: Sequence[Mapping[str, Any]], provided: Sequence[Mapping[str, Any]]) -> All:
    """Builds the rule that a claim declares; `is` names the kind of each part."""

    def parts(tables: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
        fields = ({k: v for k, v in table.items() if k != "is"} for table in tables)
        return tuple(KINDS[table["is"]](**own) for table, own in zip(tables, fields, strict=True))

    return All(parts(tables), parts(provided))


def worst(verdicts: set[str]) -> str:
    return next((v for v in (NOT, UNDECIDED) if v in verdicts), REPRODUCED)


def noise_of(*means: RuleResult) -> float:
    """Returns the smallest difference between these means that counts."""
    return math.hypot(*(TIMES * each.error for each in means))


def beyond_noise(gap: float, *means: RuleResult) -> str:
    """Returns the verdict on a gap that should be above 0: whether it is larger than the noise of
    its means."""
    noise = noise_of(*means)
    return REPRODUCED if gap > noise else NOT if gap < -noise else UNDECIDED


def bounded(mean: RuleResult, least: float, most: float) -> str:
    """Returns the verdict on a mean that should be inside the bounds: whether it is inside or
    outside by more than the noise."""
    low, high = mean.mean - TIMES * mean.error, mean.mean + TIMES * mean.error
    if least <= low and high <= most:
        return REPRODUCED
    return NOT if high < least or low > most else UNDECIDED


def standard_error(numbers: list[float]) -> float:
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


def ends(means: Iterable[RuleResult]) -> tuple[RuleResult, RuleResult]:
    each = list(means)
    return each[0], each[-1]


def over(one: RuleResult, other: RuleResult) -> RuleResult:
    """Returns the ratio of two means, with the error that follows from theirs."""
    if not other.mean:
        return RuleResult(math.inf if one.mean else math.nan, 0.0)
    ratio = one.mean / other.mean
    return RuleResult(ratio, math.hypot(one.error, ratio * other.error) / abs(other.mean))


def slope(places: Sequence[float], values: Sequence[float]) -> float:
    """Returns the slope of the least-squares line through the logarithms."""
    x, y = [math.log(p) for p in places], [math.log(max(v, 1e-300)) for v in values]
    if len(x) < 2:
        return math.nan
    return statistics.linear_regression(x, y).slope
