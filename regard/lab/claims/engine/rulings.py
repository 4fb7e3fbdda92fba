"""From p-values to verdicts: the tests of a rule, the verdict on each part of a claim, and what an
undecided part would need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from regard.core.text import Bilingual
from regard.metrics.t_tests import (
    LEVEL,
    Estimate,
    holm,
    power_of_difference,
    power_of_sameness,
    seeds_for,
)
from regard.report.pages import words

REPRODUCED, NOT, UNDECIDED = "reproduced", "not reproduced", "undecided"
# Why a claim is undecided.
NOT_LEARNED, TOO_NOISY, FEWER_SEEDS = "not learned", "too noisy", "fewer seeds"


class PartRuling(NamedTuple):
    """What was decided about one part of a claim, and by which test."""

    verdict: str
    because: str  # its numbers
    test: str
    low: float  # the 95% interval of what was tested
    high: float
    chance: float  # the p-value, corrected by Holm's method
    power: float | None = None  # of an undecided part
    seeds: int | None = None  # which an undecided part would need; None: too many, or unknown


class Ruling(NamedTuple):
    verdict: str
    because: str  # the numbers that decided it
    cause: str = ""  # why it is undecided
    parts: tuple[PartRuling, ...] = ()
    provided: tuple[PartRuling, ...] = ()  # what the models must have learned


class MeanTest(NamedTuple):
    """A test that a mean is between two bounds; with both bounds, two one-sided tests."""

    known: Estimate
    least: float = -math.inf
    most: float = math.inf
    sides: int = 2  # 1: it is one of two one-sided tests

    @property
    def sameness(self) -> bool:
        return math.isfinite(self.least) and math.isfinite(self.most)

    def holds(self) -> float:
        """Returns the p-value of the mean being between the bounds."""
        chance = self.known.inside(self.least, self.most)
        return min(1.0, chance if self.sameness else self.sides * chance)

    def fails(self) -> float:
        """Returns the p-value of the mean being outside of the bounds."""
        outside = min(self.known.below(self.least), self.known.above(self.most))
        return min(1.0, 2 * outside)

    def power(self, seeds: int, level: float) -> float:
        if self.sameness:
            return power_of_sameness(self.known, self.least, self.most, seeds, level)
        bound = self.least if math.isfinite(self.least) else self.most
        return power_of_difference(self.known, bound, seeds, level * 2 / self.sides)


class Finding(NamedTuple):
    """The p-values of a rule and of its contrary, and the test on which it hangs."""

    holds: float
    fails: float
    because: str
    deciding: MeanTest

    @classmethod
    def of_all(cls, tests: Sequence[MeanTest], because: str) -> Finding:
        """All tests must hold; that one of several fails is corrected by their number."""
        deciding = max(tests, key=lambda test: (test.holds(), -test.known.seeds))
        fails = min(1.0, len(tests) * min(test.fails() for test in tests))
        return cls(deciding.holds(), fails, because, deciding)


def ruled(findings: Sequence[Finding]) -> tuple[PartRuling, ...]:
    """Decides every part: the p-values of all parts, and of all contraries, are corrected."""
    level = LEVEL / max(len(findings), 1)
    rulings = []
    for finding, holds, fails in zip(
        findings, holm([f.holds for f in findings]), holm([f.fails for f in findings]), strict=True
    ):
        known, because = finding.deciding.known, finding.because
        test = "two one-sided tests" if finding.deciding.sameness else known.test
        shown = test, *known.interval()
        if holds <= LEVEL:
            rulings.append(PartRuling(REPRODUCED, because, *shown, holds))
        elif fails <= LEVEL:
            rulings.append(PartRuling(NOT, because, *shown, fails))
        elif known.error > 0:
            power = partial(finding.deciding.power, level=level)
            own = power(known.seeds), seeds_for(power)
            rulings.append(PartRuling(UNDECIDED, because, *shown, min(holds, fails), *own))
        else:
            rulings.append(PartRuling(UNDECIDED, because, *shown, min(holds, fails)))
    return tuple(rulings)


def tested(parts: Sequence[PartRuling]) -> str:
    """Returns the numbers of all parts with their p-values and, where undecided, the power."""
    return "; ".join(f"{part.because} ({evidence(part).en})" for part in parts)


def evidence(part: PartRuling) -> Bilingual:
    """Returns the test of a part in words: its p-value and, if it is undecided, its power."""
    chance = f"p = {part.chance:.2g}" if part.chance >= 0.001 else "p < 0.001"
    sentences = words("claims")
    test = sentences[part.test]
    known = Bilingual(f"{test.en}, {chance}", f"{test.zh}，{chance}")
    if part.power is None:
        return known
    key = "seeds beyond" if part.seeds is None else "seeds needed"
    en, zh = (text.format(power=f"{part.power:.0%}", seeds=part.seeds) for text in sentences[key])
    return Bilingual(f"{known.en}, {en}", f"{known.zh}，{zh}")


def worst(verdicts: set[str]) -> str:
    return next((v for v in (NOT, UNDECIDED) if v in verdicts), REPRODUCED)
