"""Rules judge by means and noise, as they were written before the run."""

import math

import pytest
from scipy import stats

from regard.lab.claims import claim
from regard.lab.claims.engine.means import slope
from regard.lab.claims.engine.rules import (
    Alike,
    All,
    Less,
    Outgrows,
    Peak,
    Ratio,
    Rising,
    Shrinks,
    Slope,
    Straight,
    Within,
)
from regard.lab.claims.engine.rulings import NOT, REPRODUCED, UNDECIDED, evidence
from regard.lab.claims.engine.run import run


def values(**arms):
    """arm=[[seed 1, seed 2, …] at place 0] or {place: […]}."""
    cells = {}
    for arm, places in arms.items():
        for at, numbers in (places if isinstance(places, dict) else {0.0: places}).items():
            cells[arm, float(at)] = [{"x": float(n)} for n in numbers]
    return cells


def five(mean, noise=0.01, turn=0):
    """Five seeds with this mean; `turn` changes which of them is high."""
    steps = [-1.0, -0.5, 0.0, 0.5, 1.0]
    return [mean + noise * step for step in (*steps[turn:], *steps[:turn])]


LESS, BY_A_FIFTH = Less("x", "a", "b"), Less("x", "a", "b", margin=0.2)
NEAR, SHRINKS = Alike("x", "a", "b", within=0.1), Shrinks("x", "a", "b", 1.0, 9.0)
BELOW, OUTGROWS, PEAK = Ratio("x", "a", "b", most=2.5), Outgrows("x", "a", "b"), Peak("x", "a")
SQUARES = {n: [5 * n**2] * 5 for n in (1, 2, 4, 8)}
EVEN, SLOW = [1.0] * 5, {1: [1.0] * 5, 2: [2.0] * 5}
UP, BETTER = {1: five(1), 2: five(2, turn=2)}, {1: five(1), 9: five(0.8, turn=1)}
RULINGS = [
    (LESS, {"a": five(1), "b": five(2, turn=2)}, REPRODUCED),
    (LESS, {"a": five(2), "b": five(1, turn=2)}, NOT),
    (LESS, {"a": five(1, 0.5), "b": five(1.1, 0.5, 2)}, UNDECIDED),
    (LESS, {"a": five(1, 0.5), "b": five(1.1, 0.5)}, REPRODUCED),  # seeds differ, pairs do not
    (LESS, {"a": [math.nan, *EVEN[1:]], "b": five(2)}, UNDECIDED),  # no number decides nothing
    (LESS, {"a": [1.0], "b": [2.0]}, UNDECIDED),  # one seed shows no noise
    (LESS, {"a": EVEN, "b": EVEN}, NOT),  # an exact tie is not less
    (BY_A_FIFTH, {"a": [0.9] * 5, "b": EVEN}, NOT),
    (BY_A_FIFTH, {"a": [0.7] * 5, "b": EVEN}, REPRODUCED),
    (BY_A_FIFTH, {"a": five(0.79, 0.05), "b": EVEN}, UNDECIDED),  # noise across the margin
    (Ratio("x", "a", "b", least=2.5), {"a": five(3), "b": five(1, turn=2)}, REPRODUCED),
    (BELOW, {"a": five(3), "b": five(1, turn=2)}, NOT),
    (BELOW, {"a": five(2.5, 0.3), "b": five(1, turn=2)}, UNDECIDED),
    (BELOW, {"a": [math.nan, *EVEN[1:]], "b": EVEN}, UNDECIDED),
    (Ratio("x", "a", "b", most=1e-6), {"a": [0.0] * 4 + [3e-9], "b": EVEN}, REPRODUCED),
    (Ratio("x", "a", "b", least=3.0), {"a": EVEN, "b": [0.0] * 5}, REPRODUCED),
    (Ratio("x", "a", "b", 1.0, 2.0), {"a": five(1.5, 0.2), "b": EVEN}, REPRODUCED),
    (Ratio("x", "a", "b", 1.0, 2.0), {"a": five(2.5, 0.2), "b": EVEN}, NOT),
    (Within("x", "a", 2, 4), {"a": five(3)}, REPRODUCED),
    (Within("x", "a", 2, 4), {"a": {1: five(3), 2: five(5)}}, NOT),
    (NEAR, {"a": five(1), "b": five(1.02, turn=2)}, REPRODUCED),
    (NEAR, {"a": five(1), "b": five(1.5, turn=2)}, NOT),
    (NEAR, {"a": five(1), "b": five(1.05, 0.5)}, UNDECIDED),
    (NEAR, {"a": EVEN, "b": five(1.0, 0.2)}, UNDECIDED),  # no difference is not sameness
    (SHRINKS, {"a": BETTER, "b": {1: five(3), 9: five(0.9)}}, REPRODUCED),
    (SHRINKS, {"a": BETTER, "b": {1: five(3), 9: five(5)}}, NOT),
    (SHRINKS, {"a": BETTER, "b": {1: five(3), 9: five(2.8, 2.0)}}, UNDECIDED),
    (OUTGROWS, {"a": {1: five(10), 2: five(40, turn=2)}, "b": SLOW}, REPRODUCED),
    (OUTGROWS, {"a": {1: five(10, 1.0), 2: five(20.1, 2.0, 2)}, "b": SLOW}, UNDECIDED),
    (OUTGROWS, {"a": {1: five(10), 2: five(12, turn=2)}, "b": SLOW}, NOT),
    (Slope("x", "a", 1.9, 2.1), {"a": SQUARES}, REPRODUCED),
    (Slope("x", "a", 0.9, 1.1), {"a": SQUARES}, NOT),
    (Straight("x", "a", 0.05), {"a": SQUARES}, REPRODUCED),
    (Straight("x", "a", 0.05), {"a": SQUARES | {8: [500.0] * 5}}, NOT),
    (PEAK, {"a": {1: five(3), 2: five(1, turn=1), 4: five(2, turn=2)}}, REPRODUCED),
    (PEAK, {"a": {1: five(3), 2: five(2, turn=1), 4: five(1, turn=2)}}, NOT),
    (PEAK, {"a": {1: five(2, 1.0), 2: five(1.9, 1.0, 1), 4: five(2, 1.0, 2)}}, UNDECIDED),
    (Rising("x", "a"), {"a": UP}, REPRODUCED),
    (Rising("x", "a", falls=True), {"a": UP}, NOT),
]


@pytest.mark.parametrize(("rule", "arms", "verdict"), RULINGS)
def test_a_rule_judges_by_tests_over_seeds(rule, arms, verdict):
    assert rule.judge(values(**arms)).verdict == verdict


@pytest.mark.parametrize(
    ("seeds", "verdict"),
    [
        (five(1.5, 0.1), REPRODUCED),
        (five(1.95, 0.2), UNDECIDED),  # the mean is inside, by less than the noise
        (five(2.05, 0.2), UNDECIDED),
        (five(2.5, 0.1), NOT),
    ],
)
def test_a_bound_within_the_noise_is_undecided(seeds, verdict):
    cells = values(a=seeds, b=EVEN)
    assert Within("x", "a", 1, 2).judge(cells).verdict == verdict
    assert Ratio("x", "a", "b", 1, 2).judge(cells).verdict == verdict
    powers = values(a={2: EVEN, 4: [2.0**s for s in seeds]})
    assert Slope("x", "a", 1, 2).judge(powers).verdict == verdict


def test_a_part_tells_its_test_and_what_it_would_need():
    cells = values(a=five(1, 0.5), b=five(1.2, 0.5, 2))
    (part,) = LESS.judge(cells).parts
    theirs = stats.ttest_rel(five(1.2, 0.5, 2), five(1, 0.5))
    assert part.chance == pytest.approx(theirs.pvalue) and part.test == "paired t-test"
    assert (part.low, part.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert 0 < part.power < 0.8 and part.seeds > 5
    sentence = evidence(part)
    assert (
        f"p = {part.chance:.2g}" in sentence.en
        and f"{part.seeds} seeds would give 80%" in sentence.en
    )
    assert "配对 t 检验" in sentence.zh and f"{part.seeds} 个随机种子" in sentence.zh
    (same,) = NEAR.judge(cells).parts
    assert same.test == "two one-sided tests" and same.verdict == UNDECIDED


def test_parts_are_corrected_by_holm():
    gap = [0.1, 0.3, 0.2, 0.0, 0.3]  # p = 0.034 alone
    cells = values(a=EVEN, b=[1 + g for g in gap], c=five(1.1, 0.3))
    alone = Less("x", "a", "b")
    assert alone.judge(cells).verdict == REPRODUCED
    both = All((alone, Less("x", "a", "c"))).judge(cells)
    assert both.verdict == UNDECIDED and both.cause == "too noisy"
    assert both.parts[0].chance == pytest.approx(2 * alone.judge(cells).parts[0].chance)


def test_permutation_against_masking_is_not_reproduced_by_p_of_a_tenth():
    """What three seeds gave: all means in favor, and chance gives as much once in eight times."""
    study = claim("permutation-vs-masking")
    gaps = [0.02, 0.10, 0.05, -0.03, 0.08]
    cells = {
        ("bert", 0.0): [{"bits": 9.0, "wrong": 0.9, "commonest_wrong": 0.95}] * 5,
        ("xlnet", 0.0): [
            {"bits": 9.0 - gap, "wrong": 0.9 - gap, "commonest_wrong": 0.95} for gap in gaps
        ],
    }
    ruling = study.rule.judge(cells)
    assert 0.1 < ruling.parts[0].chance < 0.3 and ruling.verdict == UNDECIDED
    assert ruling.parts[0].power is not None and ruling.parts[0].seeds is not None


def test_models_that_learned_nothing_are_a_cause_of_their_own():
    rule = claim("permutation-vs-masking").rule
    for level, cause in ((0.95, "not learned"), (0.8, "")):
        rows = [{"wrong": w, "bits": 9.0, "commonest_wrong": 0.95} for w in five(level)]
        better = [row | {"wrong": row["wrong"] - 0.05, "bits": 8.0} for row in rows]
        ruling = rule.judge({("bert", 0.0): rows, ("xlnet", 0.0): better})
        assert ruling.cause == cause and ruling.verdict == (UNDECIDED if cause else REPRODUCED)


def test_a_slope_is_that_of_the_logarithms():
    assert slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2.0)


def test_all_is_as_good_as_its_worst_and_says_nothing_of_what_was_not_learned():
    cells = values(a=five(1, 0.1), b=five(2, 0.1, 2), c=five(1, 0.1, 3))
    good, bad, undecided = Less("x", "a", "b"), Less("x", "b", "a"), Less("x", "a", "c")
    for rules, provided, verdict in (
        ((good, good), (), REPRODUCED), ((good, undecided), (), UNDECIDED),
        ((good, undecided, bad), (), NOT), ((bad,), (good,), NOT), ((bad,), (bad,), UNDECIDED),
        ((good,), (undecided,), UNDECIDED),
    ):  # fmt: skip
        assert All(rules, provided).judge(cells).verdict == verdict


def test_evaluation_speed_asks_for_a_ratio_that_grows():
    study = claim("evaluation-speed")
    slow = dict(zip(study.axis.places, (0.1, 0.2, 0.3, 0.4), strict=True))
    for ratios, verdict in (((200, 400, 600, 800), REPRODUCED), ((500, 400, 300, 200), NOT)):
        cells = {}
        for (at, took), ratio in zip(slow.items(), ratios, strict=True):
            cells["sliding window", at] = [{"seconds": took}] * 5
            cells["with memory", at] = [{"seconds": took / ratio}] * 5
        assert study.rule.judge(cells).verdict == verdict


@pytest.mark.parametrize(
    ("short", "copied", "random", "verdict"),
    [
        ((0.5, 0.9), (0.52, 0.89), (3.2, 0.13), REPRODUCED),
        ((0.5, 0.9), (0.52, 0.89), (0.6, 0.85), NOT),  # random positions are nearly as good
        ((0.5, 0.9), (0.9, 0.7), (3.2, 0.13), NOT),  # what was copied is much worse
        ((2.6, 0.2), (2.6, 0.2), (6.0, 0.05), UNDECIDED),  # positions were never learned
    ],
)
def test_copied_positions_are_as_good_and_random_ones_are_not(short, copied, random, verdict):
    arms = {"short": short, "copied": copied, "random": random}
    cells = {(arm, 0.0): [{"bits": b, "right": r}] * 5 for arm, (b, r) in arms.items()}
    assert claim("copied-positions").rule.judge(cells).verdict == verdict


@pytest.mark.slow
def test_a_claim_goes_on_where_it_stopped(tmp_path):
    study, seen = claim("scaling"), []
    first = run(study, tmp_path, seeds=1, tell=lambda cell, figures: seen.append(cell))
    assert first["cause"] == "fewer seeds" and len(seen) == len(study.cells(1))
    one = tmp_path / "scaling" / "cells" / f"{study.cells(1)[0].name}.json"
    before = one.stat().st_mtime_ns
    assert run(study, tmp_path, seeds=1) == first and one.stat().st_mtime_ns == before
    run(study, tmp_path, seeds=1, effort=0.5)
    assert one.stat().st_mtime_ns > before
