"""The rules by which a claim is judged, as data: they are fixed before the run, and the report
prints them.

Every rule comes down to tests of means over seeds (`regard.metrics.t_tests`), at 95%. A difference,
or a bound on a figure, a ratio or a power, is tested two-sided, paired by seed where the arms share
their seeds. Sameness is shown by two one-sided tests, with the margin that the claim declares.
A rule of several tests holds if all of them do. The parts of a claim are corrected by Holm's
method. What no test decides is undecided, and is told with its power and the seeds it would need.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.core.text import Bilingual
from regard.lab.claims.engine.means import (
    RuleResult,
    Values,
    distances,
    ends,
    listed,
    log,
    over,
    slope,
    standard_error,
    where,
)
from regard.lab.claims.engine.rulings import (
    FEWER_SEEDS,
    NOT_LEARNED,
    REPRODUCED,
    TOO_NOISY,
    UNDECIDED,
    Finding,
    MeanTest,
    Ruling,
    ruled,
    tested,
    worst,
)
from regard.metrics.t_tests import estimate
from regard.report.pages import words

ABOVE = math.ulp(0.0)  # the least number above 0: an exact tie is no difference


class Rule:
    """The base of all rules. A subclass states its condition in both languages, and tests it."""

    @property
    def said(self) -> Bilingual:
        raise NotImplementedError

    @property
    def words(self) -> str:
        return self.said.en

    def parts(self) -> list[Bilingual]:
        """Returns the conditions, one sentence for each part."""
        return [self.said]

    def finding(self, values: Values) -> Finding:
        raise NotImplementedError

    def judge(self, values: Values) -> Ruling:
        return All((self,)).judge(values)


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

    def numbers(self, values: Values, at: float, arm: str = "", figure: str = "") -> list[float]:
        """Returns a figure by seed."""
        return [row[figure or self.figure] for row in values[arm or self.arm, at]]

    def places(self, values: Values, beyond: float = 0.0) -> list[float]:
        return sorted(at for arm, at in values if arm == self.arm and at >= beyond)

    def along(self, values: Values, beyond: float = 0.0) -> dict[float, RuleResult]:
        """Returns the figure at every place of the axis, in order."""
        places = self.places(values, beyond)
        return {at: RuleResult.of(values, self.arm, at, self.figure) for at in places}


@dataclass(frozen=True)
class OfTwo(OfArm):
    """A rule about one figure of two arms."""

    other: str

    def both(self, values: Values, at: float) -> tuple[list[float], list[float]]:
        return self.numbers(values, at), self.numbers(values, at, self.other)

    def told(self, values: Values, at: float) -> str:
        one, two = (RuleResult.of(values, arm, at, self.figure) for arm in (self.arm, self.other))
        return f"{self.figure}{where(at)}: {self.arm} {one}, {self.other} {two}"


@dataclass(frozen=True)
class Less(OfTwo):
    """The figure of one arm is smaller than that of another, by a margin if it has one."""

    at: float = 0.0
    margin: float = 0.0  # as a share of the other arm's figure

    def finding(self, values: Values) -> Finding:
        one, two = self.both(values, self.at)
        lowered = [value - self.margin * abs(value) for value in two]
        gap = MeanTest(estimate((1.0, lowered), (-1.0, one)), least=ABOVE)
        return Finding.of_all([gap], self.told(values, self.at))


@dataclass(frozen=True)
class Learned(OfArm):
    """The figure of an arm is lower than what guessing without a model gives (`than`), at one place
    or everywhere. It is a condition of a claim: models that have learned nothing show nothing."""

    than: str
    at: float | None = None

    def finding(self, values: Values) -> Finding:
        places = self.places(values) if self.at is None else [self.at]
        tests = []
        for at in places:
            guess, own = self.numbers(values, at, figure=self.than), self.numbers(values, at)
            tests.append(MeanTest(estimate((1.0, guess), (-1.0, own)), least=ABOVE))
        shown, least = (
            RuleResult.of(values, self.arm, places[-1], name) for name in (self.figure, self.than)
        )
        because = f"{self.figure} of {self.arm}{where(places[-1])}: {shown}, guessing {least}"
        return Finding.of_all(tests, because)


@dataclass(frozen=True)
class Ratio(OfTwo):
    """The figure of one arm is between `least` and `most` times that of another.

    What is tested is the one less so many times the other, which needs no law of ratios.
    """

    least: float = -math.inf
    most: float = math.inf
    at: float = 0.0

    def finding(self, values: Values) -> Finding:
        one, two = self.both(values, self.at)
        bounds = [end for end in (self.least, self.most) if math.isfinite(end)]
        tests = [
            MeanTest(estimate((sign, one), (-sign * end, two)), least=0.0, sides=3 - len(bounds))
            for end in bounds
            for sign in (1.0 if end == self.least else -1.0,)
        ]
        ratio = over(statistics.fmean(one), statistics.fmean(two))
        return Finding.of_all(tests, f"{self.told(values, self.at)}, ratio {ratio:.3g}")


@dataclass(frozen=True)
class Alike(OfTwo):
    """Two arms differ by less than `within`, the margin of sameness."""

    within: float
    at: float = 0.0

    def finding(self, values: Values) -> Finding:
        one, two = self.both(values, self.at)
        gap = MeanTest(estimate((1.0, one), (-1.0, two)), -self.within, self.within)
        return Finding.of_all([gap], self.told(values, self.at))


@dataclass(frozen=True)
class Shrinks(OfTwo):
    """The difference of two arms is larger at the place `first` than at the place `last`. `arm` is
    the better one: its figure is lower."""

    first: float
    last: float

    def finding(self, values: Values) -> Finding:
        (one, two), (three, four) = (self.both(values, at) for at in (self.first, self.last))
        known = estimate((1.0, two), (-1.0, one), (-1.0, four), (1.0, three))
        gaps = [statistics.fmean(b) - statistics.fmean(a) for a, b in ((one, two), (three, four))]
        because = f"{self.figure}, difference at {self.first:g}: {gaps[0]:.4g}, at {self.last:g}: "
        because += f"{gaps[1]:.4g}, noise {known.error:.2g}"
        return Finding.of_all([MeanTest(known, least=ABOVE)], because)


@dataclass(frozen=True)
class Outgrows(OfTwo):
    """The ratio of one arm's figure to another's rises from one end of the axis to the other."""

    def finding(self, values: Values) -> Finding:
        ratios = {
            at: [over(a, b) for a, b in zip(*self.both(values, at), strict=True)]
            for at in self.places(values)
        }
        first, last = ends([list(map(log, each)) for each in ratios.values()])
        shown = {at: RuleResult(statistics.fmean(r), standard_error(r)) for at, r in ratios.items()}
        because = f"{self.figure}, {self.arm} over {self.other}: {listed(shown)}"
        rise = MeanTest(estimate((1.0, last), (-1.0, first)), least=ABOVE)
        return Finding.of_all([rise], because)


@dataclass(frozen=True)
class Within(OfArm):
    """The figure of one arm lies between two numbers at every place."""

    least: float = -math.inf
    most: float = math.inf

    def finding(self, values: Values) -> Finding:
        points = self.along(values)
        tests = [
            MeanTest(estimate((1.0, self.numbers(values, at))), self.least, self.most)
            for at in points
        ]
        because = listed(points) if len(points) > 1 else str(next(iter(points.values())))
        return Finding.of_all(tests, f"{self.figure} of {self.arm}: {because}")


@dataclass(frozen=True)
class Slope(OfArm):
    """On logarithmic axes, the figure grows with a power between `least` and `most`."""

    least: float
    most: float
    beyond: float = 0.0  # uses only places from here on, where constant costs no longer matter

    def finding(self, values: Values) -> Finding:
        places = self.places(values, self.beyond)
        rows = zip(*(self.numbers(values, at) for at in places), strict=True)
        powers = [slope(places, row) for row in rows]
        power = RuleResult(statistics.fmean(powers), standard_error(powers))
        because = f"{self.figure} of {self.arm} grows with the power {power}"
        test = MeanTest(estimate((1.0, powers)), self.least, self.most)
        return Finding.of_all([test], because)


@dataclass(frozen=True)
class Straight(OfArm):
    """On logarithmic axes, the figure lies on a straight line: at every place, its relative
    distance from it is at most `most`."""

    most: float

    def finding(self, values: Values) -> Finding:
        places = self.places(values)
        rows = zip(*(self.numbers(values, at) for at in places), strict=True)
        rests = list(zip(*(distances(places, row) for row in rows), strict=True))
        limit = math.log1p(self.most)
        tests = [MeanTest(estimate((1.0, rest)), -limit, limit) for rest in rests]
        farthest = max(abs(math.expm1(statistics.fmean(rest))) for rest in rests)
        because = f"{self.figure} of {self.arm} is at most {farthest:.2%} from a power"
        return Finding.of_all(tests, because)


@dataclass(frozen=True)
class Peak(OfArm):
    """The figure is best inside the axis, and worse at both ends.

    Any place inside may be the best one, so its p-value is corrected by the number of places; that
    an end is better than all places inside, by the two ends.
    """

    falling: bool = True  # whether lower is better

    def finding(self, values: Values) -> Finding:
        sign = 1.0 if self.falling else -1.0
        rows = [self.numbers(values, at) for at in self.places(values)]
        (first, last), inside = ends(rows), rows[1:-1]

        def worse(one: list[float], other: list[float]) -> MeanTest:
            return MeanTest(estimate((sign, one), (-sign, other)), least=ABOVE)

        peaks = [Finding.of_all([worse(e, row) for e in (first, last)], "") for row in inside]
        best = min(peaks, key=lambda peak: peak.holds)
        at_end = min(max(worse(row, e).holds() for row in inside) for e in (first, last))
        because = f"{self.figure}: {listed(self.along(values))}"
        return Finding(
            min(1.0, len(inside) * best.holds), min(1.0, 2 * at_end), because, best.deciding
        )


@dataclass(frozen=True)
class Rising(OfArm):
    """The figure rises (or falls) from one end of the axis to the other."""

    falls: bool = False

    def finding(self, values: Values) -> Finding:
        along, sign = self.along(values), -1.0 if self.falls else 1.0
        first, last = ends([self.numbers(values, at) for at in along])
        shown = ends(along.values())
        because = f"{self.figure} of {self.arm}: {min(along):g}: {shown[0]}, "
        because += f"{max(along):g}: {shown[1]}"
        rise = MeanTest(estimate((sign, last), (-sign, first)), least=ABOVE)
        return Finding.of_all([rise], because)


@dataclass(frozen=True)
class All(Rule):
    """All of its rules hold. It is undecided if the models have not learned what it builds on
    (`provided`)."""

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
        parts = ruled([rule.finding(values) for rule in self.rules])
        conditions = ruled([rule.finding(values) for rule in self.provided])
        verdict = worst({part.verdict for part in parts})
        cause = TOO_NOISY if verdict == UNDECIDED else ""
        if any(part.verdict != REPRODUCED for part in conditions):
            verdict, cause = UNDECIDED, NOT_LEARNED
        return Ruling(verdict, tested([*parts, *conditions]), cause, parts, conditions)

    def seen(self, values: Values) -> Ruling:
        """Returns the numbers without any test: there are fewer seeds than the claim fixed."""
        rules = (*self.rules, *self.provided)
        because = "; ".join(rule.finding(values).because for rule in rules)
        return Ruling(UNDECIDED, because, FEWER_SEEDS)


KINDS: dict[str, type[OfArm]] = {
    kind.__name__.lower(): kind
    for kind in (
        Less, Learned, Ratio, Alike, Shrinks, Outgrows, Within, Slope, Straight, Peak, Rising,
    )
}  # fmt: skip


def rule_of(tables: Sequence[Mapping[str, Any]], provided: Sequence[Mapping[str, Any]]) -> All:
    """Builds the rule that a claim declares; `is` names the kind of each part."""

    def parts(tables: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
        fields = ({k: v for k, v in table.items() if k != "is"} for table in tables)
        return tuple(KINDS[table["is"]](**own) for table, own in zip(tables, fields, strict=True))

    return All(parts(tables), parts(provided))
