"""Tests over seeds agree with scipy, with statistics done by hand, and with simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from regard.metrics.t_tests import (
    Estimate,
    estimate,
    holm,
    power_of_difference,
    power_of_sameness,
    seeds_for,
)

ONE, OTHER = [2.31, 2.29, 2.35, 2.30, 2.33], [2.35, 2.30, 2.41, 2.36, 2.34]


def test_arms_that_share_seeds_are_paired_as_scipy_does():
    known = estimate((1.0, OTHER), (-1.0, ONE))
    theirs = stats.ttest_rel(OTHER, ONE)
    assert known.test == "paired t-test" and known.free == 4
    assert known.differs() == pytest.approx(theirs.pvalue)
    assert known.above() == pytest.approx(stats.ttest_rel(OTHER, ONE, alternative="greater").pvalue)
    assert known.interval() == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_arms_with_other_seeds_are_tested_by_welch():
    known = estimate((1.0, OTHER[:3]), (-1.0, ONE))
    theirs = stats.ttest_ind(OTHER[:3], ONE, equal_var=False)
    assert known.test == "Welch's t-test"
    assert known.differs() == pytest.approx(theirs.pvalue)
    assert known.interval() == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_one_arm_is_tested_against_a_bound():
    known = estimate((1.0, ONE))
    assert known.differs(2.3) == pytest.approx(stats.ttest_1samp(ONE, 2.3).pvalue)
    assert known.below(2.4) == pytest.approx(stats.ttest_1samp(ONE, 2.4, alternative="less").pvalue)


def test_sameness_takes_both_one_sided_tests():
    known = estimate((1.0, OTHER), (-1.0, ONE))
    lower = stats.ttest_1samp(np.subtract(OTHER, ONE), -0.1, alternative="greater").pvalue
    upper = stats.ttest_1samp(np.subtract(OTHER, ONE), 0.1, alternative="less").pvalue
    assert known.inside(-0.1, 0.1) == pytest.approx(max(lower, upper)) and upper > lower
    low, high = known.interval(0.9)  # the same decision: the 90% interval lies inside
    assert (known.inside(-0.1, high + 1e-9) < 0.05) and not known.inside(-0.1, high - 1e-9) < 0.05
    assert low > -0.1


def test_what_has_no_noise_is_exact_and_what_has_no_number_decides_nothing():
    exact = estimate((1.0, [2.0] * 3), (-1.0, [1.0] * 3))
    assert exact.above() == 0.0 and exact.below() == 1.0 and exact.inside(0, 1) == 0.0
    assert exact.above(1.0) == exact.below(1.0) == 1.0 and exact.interval() == (1.0, 1.0)
    for values in ([2.0], [2.0, math.nan], [math.inf, 1.0]):
        unknown = estimate((1.0, values))
        assert unknown.above() == unknown.below() == unknown.differs() == 1.0
        assert unknown.inside(-9, 9) == 1.0


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.04]) == [0.04] and holm([]) == [] and holm([0.6, 0.7]) == [1.0, 1.0]


def test_power_of_a_difference_is_that_of_the_tables():
    """Cohen (1988): an effect of 0.5 in pairs needs 34 of them for 80%, one of 0.8 needs 15."""
    for effect, seeds in ((0.5, 34), (0.8, 15)):
        known = Estimate(effect, 1 / math.sqrt(5), 4, 5, "paired t-test")
        assert seeds_for(lambda n, known=known: power_of_difference(known, 0.0, n)) == seeds


@pytest.mark.parametrize("mean", [0.0, 0.3])
def test_power_of_sameness_is_that_of_a_simulation(mean):
    draws = np.random.default_rng(0).normal(mean, 1.0, (20_000, 12))
    error = draws.std(1, ddof=1) / math.sqrt(12)
    limit = stats.t.isf(0.05, 11)
    both = ((draws.mean(1) + 0.9) / error > limit) & ((draws.mean(1) - 0.9) / error < -limit)
    known = Estimate(mean, 1 / math.sqrt(5), 4, 5, "paired t-test")
    assert power_of_sameness(known, -0.9, 0.9, 12) == pytest.approx(both.mean(), abs=0.015)


def test_too_many_seeds_are_not_counted():
    known = Estimate(0.001, 1.0, 4, 5, "t-test")
    assert seeds_for(lambda n: power_of_difference(known, 0.0, n)) is None
    far = Estimate(1e6, 1.0, 4, 5, "t-test")
    assert power_of_difference(far, 0.0, 1000) == 1.0
