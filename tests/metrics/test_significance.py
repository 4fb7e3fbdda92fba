"""Two runs compared: against enumeration by brute force, SciPy, and what chance does."""

from __future__ import annotations

import itertools
import json
from functools import partial

import numpy as np
import pytest

from regard.core.errors import InputError
from regard.metrics.significance import mcnemar, randomization, swaps
from tests.metrics.kinds import compare, figures_of, measured
from tests.refusals import refuses

stats = pytest.importorskip("scipy.stats")
pytest.importorskip("sklearn")


def every_swap(task, gold, first, second):
    """p-values with each example's predictions swapped or not, in all ways, by the library."""
    metric = partial(figures_of, task)

    def distances(one, other):
        left, right = metric(gold, one), metric(gold, other)
        return {name: abs(right[name] - left[name]) for name in left}

    seen = distances(first, second)
    beyond, ways = dict.fromkeys(seen, 0), 0
    for choice in itertools.product((False, True), repeat=len(gold)):
        one = [b if swap else a for a, b, swap in zip(first, second, choice, strict=True)]
        other = [a if swap else b for a, b, swap in zip(first, second, choice, strict=True)]
        for name, distance in distances(one, other).items():
            beyond[name] += distance >= seen[name] - 1e-9
        ways += 1
    return {name: count / ways for name, count in beyond.items()}


GOLD = list("aabbca")
FIRST = list("aabbcc")
SECOND = list("bbaaca")


def test_the_p_values_are_those_of_enumeration():
    expected = every_swap("classify", GOLD, FIRST, SECOND)
    for name, row in compare("classify", GOLD, FIRST, SECOND)["figures"].items():
        assert row["p_value"] == pytest.approx(expected[name], abs=1e-12), name
        assert "exact" in row["test"]
    assert 0 < min(expected.values()) < max(expected.values()) < 1


@pytest.mark.parametrize("task", ["tag", "translate", "similar"])
def test_corpus_figures_against_enumeration(task):
    pytest.importorskip("seqeval" if task == "tag" else "sacrebleu")
    if task == "tag":
        gold = [["B-X", "I-X"], ["O", "B-Y"], ["B-X", "O"], ["O", "O"], ["B-Y", "I-Y"]]
        first = [["B-X", "I-X"], ["O", "B-X"], ["B-X", "O"], ["O", "B-Y"], ["B-Y", "O"]]
        second = [["B-X", "O"], ["O", "B-Y"], ["O", "O"], ["O", "O"], ["B-Y", "I-Y"]]
    elif task == "translate":
        gold = ["the cat sat on the mat", "it is raining today", "we all go home now", "no way"]
        first = ["the cat sat on a mat", "it rains today", "we all go home now", "no"]
        second = ["a cat on the mat sat", "it is raining now", "we go home", "no way"]
    else:
        gold, first = [1.0, 2.0, 2.0, 4.0, 5.0, 3.0], [1.5, 2.5, 2.0, 3.5, 4.0, 2.0]
        second = [3.0, 1.0, 2.0, 4.5, 2.0, 5.0]
    expected = every_swap(task, gold, first, second)
    for name, row in compare(task, gold, first, second)["figures"].items():
        assert row["p_value"] == pytest.approx(expected[name], abs=1e-12), name
        assert row["first"] == pytest.approx(figures_of(task, gold, first)[name], rel=1e-9)
        assert row["difference"] == pytest.approx(row["second"] - row["first"])


def test_random_swaps_approach_the_enumeration_and_scipy():
    draw = np.random.default_rng(0)
    count = 13
    gold = [(10, 40)] * count
    first = list(draw.normal(30, 4, count))
    second = [x + y for x, y in zip(first, draw.normal(1.5, 3, count), strict=True)]
    figures = measured("model", gold * 2, first + second).weighted
    exact, drawn = (
        randomization(figures, count, np.arange(count), resamples=n)["bits_per_byte"]
        for n in (2**count, 2**count - 1)
    )
    theirs = stats.permutation_test(
        (first, second), lambda a, b, axis: (a - b).mean(axis), permutation_type="samples",
        n_resamples=2**count,
    )  # fmt: skip
    assert exact == pytest.approx(theirs.pvalue, abs=1e-9)
    assert drawn == pytest.approx(exact, abs=0.02) and drawn != exact


def test_all_swaps_are_there_once():
    rows = np.concatenate(list(swaps(6, np.array([1, 3, 4]), 8, seed=0)))
    assert len({tuple(row) for row in rows}) == len(rows) == 8
    assert not rows[:, [0, 2, 5]].any()


@pytest.mark.parametrize(("one", "other"), [(0, 0), (1, 0), (3, 9), (10, 10), (0, 12), (700, 810)])
def test_mcnemar_is_the_binomial_test(one, other):
    first, second = (
        [1.0] * one + [0.0] * other + [1.0, 0.0],
        [0.0] * one + [1.0] * other + [1.0, 0.0],
    )
    theirs = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert mcnemar(first, second) == pytest.approx(theirs, rel=1e-9)


def accuracies(count, better, seed):
    draw = np.random.default_rng(seed)
    gold = [0] * count
    first = [int(x) for x in draw.random(count) > 0.7]
    second = [int(x) for x in draw.random(count) > 0.7 + better]
    return gold, first, second


def test_the_verdict_in_words():
    comparison = compare("choose", *accuracies(1000, 0.1, 0), names=("old", "new"))
    assert comparison["verdict"].startswith("new is better (accuracy +0.")
    row = comparison["figures"]["accuracy"]
    assert 0 < row["low"] < row["difference"] < row["high"] and row["p_value"] < 0.01
    assert row["bootstrap_p"] < 0.05 and row["test"] == "McNemar, exact"
    gold, first, second = accuracies(1000, 0.1, 0)
    assert compare("choose", gold, second, first)["verdict"].startswith("first is better")
    same = compare("choose", *accuracies(300, 0.0, 1))
    assert same["verdict"].startswith("no difference beyond chance")
    assert json.loads(json.dumps(same, allow_nan=False)) == same


def test_lower_may_be_better():
    draw = np.random.default_rng(0)
    gold, first = [(10, 40)] * 60, list(draw.normal(30, 2, 60))
    comparison = compare("model", gold, first, [x - 2 for x in first], names=("old", "new"))
    assert comparison["verdict"].startswith("new is better (perplexity -")


def test_equal_runs_do_not_differ():
    comparison = compare("classify", GOLD, FIRST, list(FIRST))
    assert comparison["differing"] == 0
    for row in comparison["figures"].values():
        assert (row["difference"], row["p_value"], row["bootstrap_p"]) == (0, 1, 1)
        assert row["verdict"].startswith("no difference beyond chance")


def test_a_test_of_nothing_rarely_finds_something():
    """Under no difference the p-value is below 0.05 in about one of twenty trials."""
    comparison = [
        compare("classify", *accuracies(80, 0.0, seed), resamples=200)["figures"]
        for seed in range(150)
    ]
    for name in ("accuracy", "macro_f1"):
        assert sum(row[name]["p_value"] < 0.05 for row in comparison) / 150 <= 0.1


def test_the_seed_decides():
    data = accuracies(200, 0.05, 3)
    assert compare("classify", *data, seed=1) == compare("classify", *data, seed=1)
    one, other = (compare("classify", *data, seed=s)["figures"]["macro_f1"] for s in (1, 2))
    assert one["low"] != other["low"] and one["p_value"] != other["p_value"]


def test_runs_on_other_examples_are_refused():
    with refuses(InputError, "3 examples", "2 predictions", "new"):
        compare("choose", [0, 1, 1], [0, 1, 1], [0, 1], names=("old", "new"))
