"""Rules judge by means and noise, as they were written before the run."""

import math

import pytest

from regard.lab.claims import claim
from regard.lab.claims.engine.rules import (
    NOT,
    REPRODUCED,
    UNDECIDED,
    Alike,
    All,
    Less,
    Outgrows,
    Peak,
    Ratio,
    Rising,
    Shrinks,
    Slope,
    Within,
    slope,
)
from regard.lab.claims.engine.run import run


def values(**arms):
    """arm=[[seed 1, seed 2, …] at place 0] or {place: […]}."""
    cells = {}
    for arm, places in arms.items():
        for at, numbers in (places if isinstance(places, dict) else {0.0: places}).items():
            cells[arm, float(at)] = [{"x": float(n)} for n in numbers]
    return cells


LESS, BY_A_FIFTH = Less("x", "a", "b"), Less("x", "a", "b", margin=0.2)
NEAR, SHRINKS = Alike("x", "a", "b", within=0.1), Shrinks("x", "a", "b", 1.0, 9.0)
BELOW, OUTGROWS, PEAK = Ratio("x", "a", "b", most=2.5), Outgrows("x", "a", "b"), Peak("x", "a")
SQUARES = {n: [5 * n**2] for n in (1, 2, 4, 8)}
UP, SLOW, EVEN = {1: [1, 1.1], 2: [2, 2.1]}, {1: [1, 1], 2: [2, 2]}, [1.0, 1.0]
BETTER = {1: [1.0, 1.1], 9: [0.8, 0.9]}
RULINGS = [
    (LESS, {"a": [1.0, 1.1], "b": [2.0, 2.1]}, REPRODUCED),
    (LESS, {"a": [2.0, 2.1], "b": [1.0, 1.1]}, NOT),
    (LESS, {"a": [1.0, 2.0], "b": [1.1, 2.1]}, UNDECIDED),
    (LESS, {"a": [math.nan, 1.0], "b": [1.0, 2.0]}, UNDECIDED),  # what is no number decides nothing
    (BY_A_FIFTH, {"a": [0.9, 0.9], "b": EVEN}, NOT),
    (BY_A_FIFTH, {"a": [0.7, 0.7], "b": EVEN}, REPRODUCED),
    (BY_A_FIFTH, {"a": [0.71, 0.81], "b": EVEN}, UNDECIDED),  # the noise reaches across the margin
    (BY_A_FIFTH, {"a": [0.79, 0.89], "b": EVEN}, UNDECIDED),
    (Ratio("x", "a", "b", least=2.5), {"a": [3.0], "b": [1.0]}, REPRODUCED),
    (BELOW, {"a": [3.0], "b": [1.0]}, NOT),
    (BELOW, {"a": [math.nan, 1.0], "b": [1.0, 2.0]}, UNDECIDED),
    (Ratio("x", "a", "b", most=1e-6), {"a": [0.0, 0.0, 3e-9], "b": [1.0] * 3}, REPRODUCED),
    (Ratio("x", "a", "b", least=3.0), {"a": [0.0], "b": [0.0]}, UNDECIDED),
    (Ratio("x", "a", "b", least=3.0), {"a": [1.0], "b": [0.0]}, REPRODUCED),
    (Within("x", "a", 2, 4), {"a": [3.0]}, REPRODUCED),
    (Within("x", "a", 2, 4), {"a": {1: [3], 2: [5]}}, NOT),
    (NEAR, {"a": [1.0, 1.01], "b": [1.0, 1.01]}, REPRODUCED),
    (NEAR, {"a": [1.0, 1.01], "b": [1.5, 1.51]}, NOT),
    (NEAR, {"a": [1.0, 1.01], "b": [0.5, 1.6]}, UNDECIDED),
    (SHRINKS, {"a": BETTER, "b": {1: [3.0, 3.1], 9: [0.9, 1.0]}}, REPRODUCED),
    (SHRINKS, {"a": BETTER, "b": {1: [3.0, 3.1], 9: [5.0, 5.1]}}, NOT),
    (SHRINKS, {"a": BETTER, "b": {1: [3.0, 3.1], 9: [2.0, 3.0]}}, UNDECIDED),
    (OUTGROWS, {"a": {1: [10, 11], 2: [40, 41]}, "b": SLOW}, REPRODUCED),
    (OUTGROWS, {"a": {1: [10, 11], 2: [20, 22]}, "b": SLOW}, UNDECIDED),
    (OUTGROWS, {"a": {1: [10, 10.1], 2: [12, 12.1]}, "b": {1: [1, 1], 2: [4, 4]}}, NOT),
    (Slope("x", "a", 1.9, 2.1), {"a": SQUARES}, REPRODUCED),
    (Slope("x", "a", 0.9, 1.1), {"a": SQUARES}, NOT),
    (PEAK, {"a": {1: [3, 3.1], 2: [1, 1.1], 4: [2, 2.1]}}, REPRODUCED),
    (PEAK, {"a": {1: [3, 3.1], 2: [2, 2.1], 4: [1, 1.1]}}, NOT),
    (PEAK, {"a": {1: [1, 3], 2: [0.9, 3], 4: [1, 3]}}, UNDECIDED),
    (Rising("x", "a"), {"a": UP}, REPRODUCED),
    (Rising("x", "a", falls=True), {"a": UP}, NOT),
]


@pytest.mark.parametrize(("rule", "arms", "verdict"), RULINGS)
def test_a_rule_judges_by_means_and_noise(rule, arms, verdict):
    assert rule.judge(values(**arms)).verdict == verdict


@pytest.mark.parametrize(
    ("seeds", "verdict"),
    [
        ([1.4, 1.5, 1.6], REPRODUCED),
        ([1.8, 1.9, 2.2], UNDECIDED),  # the mean is inside, by less than the noise
        ([1.9, 2.1, 2.2], UNDECIDED),
        ([2.4, 2.5, 2.6], NOT),
    ],
)
def test_a_bound_within_the_noise_is_undecided(seeds, verdict):
    cells = values(a=seeds, b=[1.0, 1.0, 1.0])
    assert Within("x", "a", 1, 2).judge(cells).verdict == verdict
    assert Ratio("x", "a", "b", 1, 2).judge(cells).verdict == verdict
    powers = values(a={2: [1.0] * 3, 4: [2.0**s for s in seeds]})
    assert Slope("x", "a", 1, 2).judge(powers).verdict == verdict


def test_a_slope_is_that_of_the_logarithms():
    assert slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2.0)


def test_all_is_as_good_as_its_worst_and_says_nothing_of_what_was_not_learned():
    cells = values(a=[1.0, 1.1], b=[2.0, 2.1], c=[1.0, 1.1])
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
            cells["sliding window", at] = [{"seconds": took}] * 2
            cells["with memory", at] = [{"seconds": took / ratio}] * 2
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
    cells = {(arm, 0.0): [{"bits": b, "right": r}] * 2 for arm, (b, r) in arms.items()}
    assert claim("copied-positions").rule.judge(cells).verdict == verdict


@pytest.mark.slow
def test_a_claim_goes_on_where_it_stopped(tmp_path):
    study, seen = claim("scaling"), []
    first = run(study, tmp_path, seeds=1, tell=lambda cell, figures: seen.append(cell))
    assert first["verdict"] == REPRODUCED and len(seen) == len(study.cells(1))
    one = tmp_path / "scaling" / "cells" / f"{study.cells(1)[0].name}.json"
    before = one.stat().st_mtime_ns
    assert run(study, tmp_path, seeds=1) == first and one.stat().st_mtime_ns == before
    run(study, tmp_path, seeds=1, effort=0.5)
    assert one.stat().st_mtime_ns > before
