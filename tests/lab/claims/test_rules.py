"""Rules judge by means and noise, as they were written before the run."""

import math

import pytest

from regard.lab.claims import claim, names
from regard.lab.claims.engine.rules import (
    NOT,
    REPRODUCED,
    UNDECIDED,
    All,
    Less,
    Outgrows,
    Peak,
    Ratio,
    Rising,
    Slope,
    Within,
    slope,
)
from regard.lab.claims.engine.run import run


def values(**arms):
    """arm=[[seed 1, seed 2, …] at place 0] or {place: […]}."""
    made = {}
    for arm, held in arms.items():
        for at, numbers in (held if isinstance(held, dict) else {0.0: held}).items():
            made[arm, float(at)] = [{"x": float(n)} for n in numbers]
    return made


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([1.0, 1.1], [2.0, 2.1], REPRODUCED),
        ([2.0, 2.1], [1.0, 1.1], NOT),
        ([1.0, 2.0], [1.1, 2.1], UNDECIDED),
    ],
)
def test_less(a, b, verdict):
    assert Less("x", "a", "b").judge(values(a=a, b=b)).verdict == verdict


def test_less_by_a_margin():
    rule = Less("x", "a", "b", margin=0.2)
    assert rule.judge(values(a=[0.9, 0.9], b=[1.0, 1.0])).verdict == NOT
    assert rule.judge(values(a=[0.7, 0.7], b=[1.0, 1.0])).verdict == REPRODUCED
    for means in (0.76, 0.84):  # the noise reaches across the margin
        noisy = values(a=[means - 0.05, means + 0.05], b=[1.0, 1.0])
        assert rule.judge(noisy).verdict == UNDECIDED


def test_ratio_and_bounds():
    found = values(a=[3.0], b=[1.0])
    assert Ratio("x", "a", "b", least=2.5).judge(found).verdict == REPRODUCED
    assert Ratio("x", "a", "b", most=2.5).judge(found).verdict == NOT
    assert Within("x", "a", 2, 4).judge(found).verdict == REPRODUCED
    near_nothing = values(a=[0.0, 0.0, 3e-9], b=[1.0, 1.0, 1.0])  # whose noise reaches below 0
    assert Ratio("x", "a", "b", most=1e-6).judge(near_nothing).verdict == REPRODUCED
    assert Within("x", "a", 2, 4).judge(values(a={1: [3], 2: [5]})).verdict == NOT


def test_nothing_over_nothing_decides_nothing():
    rule = Ratio("x", "a", "b", least=3.0)
    assert rule.judge(values(a=[0.0], b=[0.0])).verdict == UNDECIDED
    assert rule.judge(values(a=[1.0], b=[0.0])).verdict == REPRODUCED


def test_what_is_no_number_decides_nothing():
    held = values(a=[math.nan, 1.0], b=[1.0, 2.0])
    assert Less("x", "a", "b").judge(held).verdict == UNDECIDED
    assert Ratio("x", "a", "b", most=9.0).judge(held).verdict == UNDECIDED


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
    found = values(a=seeds, b=[1.0, 1.0, 1.0])
    assert Within("x", "a", 1, 2).judge(found).verdict == verdict
    assert Ratio("x", "a", "b", 1, 2).judge(found).verdict == verdict
    powers = values(a={2: [1.0] * 3, 4: [2.0**s for s in seeds]})
    assert Slope("x", "a", 1, 2).judge(powers).verdict == verdict


def test_a_ratio_rises():
    rising = values(a={1: [10, 11], 2: [40, 41]}, b={1: [1, 1], 2: [2, 2]})
    alike = values(a={1: [10, 11], 2: [20, 22]}, b={1: [1, 1], 2: [2, 2]})
    falling = values(a={1: [10, 10.1], 2: [12, 12.1]}, b={1: [1, 1], 2: [4, 4]})
    found = [Outgrows("x", "a", "b").judge(each).verdict for each in (rising, alike, falling)]
    assert found == [REPRODUCED, UNDECIDED, NOT]


def test_evaluation_speed_asks_for_a_ratio_that_grows():
    made = claim("evaluation-speed")
    slow = dict(zip(made.axis.places, (0.1, 0.2, 0.3, 0.4), strict=True))
    for ratios, verdict in (((200, 400, 600, 800), REPRODUCED), ((500, 400, 300, 200), NOT)):
        held = {}
        for (at, took), ratio in zip(slow.items(), ratios, strict=True):
            held["sliding window", at] = [{"seconds": took}] * 2
            held["with memory", at] = [{"seconds": took / ratio}] * 2
        assert made.rule.judge(held).verdict == verdict


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
    given = {"short": short, "copied": copied, "random": random}
    held = {(arm, 0.0): [{"bits": b, "right": r}] * 2 for arm, (b, r) in given.items()}
    assert claim("copied-positions").rule.judge(held).verdict == verdict


def test_powers():
    assert slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2.0)
    squares = values(a={n: [5 * n**2] for n in (1, 2, 4, 8)})
    assert Slope("x", "a", 1.9, 2.1).judge(squares).verdict == REPRODUCED
    assert Slope("x", "a", 0.9, 1.1).judge(squares).verdict == NOT


def test_a_peak_lies_inside():
    inside = values(a={1: [3, 3.1], 2: [1, 1.1], 4: [2, 2.1]})
    falling = values(a={1: [3, 3.1], 2: [2, 2.1], 4: [1, 1.1]})
    noisy = values(a={1: [1, 3], 2: [0.9, 3], 4: [1, 3]})
    rule = Peak("x", "a")
    assert [rule.judge(v).verdict for v in (inside, falling, noisy)] == [REPRODUCED, NOT, UNDECIDED]


def test_rising_and_falling():
    up = values(a={1: [1, 1.1], 2: [2, 2.1]})
    assert Rising("x", "a").judge(up).verdict == REPRODUCED
    assert Rising("x", "a", falls=True).judge(up).verdict == NOT


def test_all_is_as_good_as_its_worst():
    found = values(a=[1.0, 1.1], b=[2.0, 2.1], c=[1.0, 1.1])
    good, bad, open_ = Less("x", "a", "b"), Less("x", "b", "a"), Less("x", "a", "c")
    assert All((good, good)).judge(found).verdict == REPRODUCED
    assert All((good, open_)).judge(found).verdict == UNDECIDED
    assert All((good, open_, bad)).judge(found).verdict == NOT


@pytest.mark.parametrize("name", names())
def test_every_claim_is_declared(name):
    made = claim(name)
    assert made.name == name and made.statement.en and made.statement.zh and made.source
    assert made.rule.words and made.charts and made.arms
    assert len({cell.name for cell in made.cells()}) == len(made.cells())


def test_a_claim_goes_on_where_it_stopped(tmp_path):
    made, seen = claim("scaling"), []
    first = run(made, tmp_path, seeds=1, tell=lambda cell, figures: seen.append(cell))
    assert first["verdict"] == REPRODUCED and len(seen) == len(made.cells(1))
    one = tmp_path / "scaling" / "cells" / f"{made.cells(1)[0].name}.json"
    before = one.stat().st_mtime_ns
    assert run(made, tmp_path, seeds=1) == first and one.stat().st_mtime_ns == before
    run(made, tmp_path, seeds=1, effort=0.5)
    assert one.stat().st_mtime_ns > before
