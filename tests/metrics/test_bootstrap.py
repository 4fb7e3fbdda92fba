"""Intervals: deterministic, of the right width, and fast."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import ConfigError, InputError
from regard.metrics.base import mean
from regard.metrics.bootstrap import between, counts, intervals, mean_interval, values
from tests.metrics.kinds import measured
from tests.refusals import refuses


def test_a_resample_draws_as_many_examples_as_there_are():
    blocks = list(counts(300, 5000, seed=3))
    assert len(blocks) > 1  # more than is held at once
    weights = np.concatenate(blocks)
    assert weights.shape == (5000, 300)
    assert (weights.sum(1) == 300).all()
    assert weights.mean(0) == pytest.approx(np.ones(300), abs=0.08)
    assert weights.var() == pytest.approx(1 - 1 / 300, rel=0.02)
    assert not np.array_equal(blocks[0][0], blocks[1][0])  # each block has its own key


def test_the_seed_decides_everything():
    each = list(np.random.default_rng(0).random(50))
    assert mean_interval(each, seed=1) == mean_interval(each, seed=1)
    assert mean_interval(each, seed=1) != mean_interval(each, seed=2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40), st.integers(0, 5))
def test_the_interval_holds_the_mean_and_lies_inside_the_data(each, seed):
    interval = mean_interval(each, seed=seed, resamples=400)
    slack = 1e-9 * (1 + max(map(abs, each)))
    assert min(each) - slack <= interval.low <= interval.high <= max(each) + slack
    around = 0.5 * np.std(each) + slack
    assert interval.low - around <= np.mean(each) <= interval.high + around


def test_coverage_of_an_accuracy():
    draw = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        interval = mean_interval((draw.random(150) < 0.7) * 1.0, seed=trial, resamples=300)
        hits += interval.low <= 0.7 <= interval.high
    assert 0.91 <= hits / 300 <= 0.98


def test_coverage_of_a_corpus_figure():
    """Macro F1 of three classes: the truth is that of a very large sample."""
    draw = np.random.default_rng(1)

    def sample(count):
        gold = draw.choice(3, count, p=[0.5, 0.3, 0.2])
        return gold, np.where(draw.random(count) < 0.75, gold, draw.integers(0, 3, count))

    truth = measured("classify", *map(list, sample(200_000))).figures["macro_f1"]
    hits = 0
    for trial in range(150):
        metric = measured("classify", *map(list, sample(200)))
        figure = {"macro_f1": metric.weighted["macro_f1"]}
        interval = intervals(figure, 200, seed=trial, resamples=200)["macro_f1"]
        hits += interval.low <= truth <= interval.high
    assert 0.88 <= hits / 150 <= 0.99


def test_the_width_of_a_mean_is_the_textbooks():
    each = np.random.default_rng(2).normal(5, 2, 2000)
    interval = mean_interval(each, resamples=4000)
    assert interval.high - interval.low == pytest.approx(
        2 * 1.96 * each.std() / math.sqrt(2000), rel=0.06
    )
    narrow = mean_interval(each, resamples=4000, level=0.5)
    assert interval.low < narrow.low < narrow.high < interval.high


def test_figures_share_their_resamples():
    each = list(np.random.default_rng(3).random(30))
    figures = {"one": mean(each), "double": mean([2 * x for x in each])}
    drawn = values(figures, 30, resamples=100)
    assert drawn["double"] == pytest.approx(2 * drawn["one"])


def test_an_undefined_figure_has_no_interval():
    nowhere = mean([1.0, 2.0], [False, False])
    assert intervals({"none": nowhere}, 2)["none"] is None
    rare = mean([1.0] * 20, [True] + [False] * 19)  # undefined on a third of the resamples
    assert intervals({"rare": rare}, 20)["rare"].low == 1.0
    assert between(np.array([math.nan])) is None


def test_bad_settings_are_named():
    with refuses(InputError, "no examples"):
        mean_interval([])
    with refuses(ConfigError, "resamples = 0"):
        mean_interval([1.0], resamples=0)
    with refuses(ConfigError, "level = 95"):
        mean_interval([1.0], level=95)


def rows(task, count):
    draw = np.random.default_rng(4)
    if task == "classify":
        gold = draw.integers(0, 20, count)
        return list(gold), list(np.where(draw.random(count) < 0.8, gold, 0))
    if task == "tag":
        tags = np.array(["O", "O", "O", "B-PER", "I-PER", "B-LOC"])
        return tags[draw.integers(0, 6, (2, count, 12))].tolist()
    if task == "similar":
        gold = draw.normal(size=count)
        return list(gold), list(gold + draw.normal(size=count))
    words = np.array("the cat sat on a mat and saw two dogs run home".split())
    gold, predicted = (
        [" ".join(row) for row in words[draw.integers(0, 12, (count, 8))]] for _ in range(2)
    )
    return gold, predicted


@pytest.mark.parametrize("task", ["classify", "tag", "similar", "translate"])
def test_a_thousand_resamples_of_ten_thousand_are_quick(task):
    pytest.importorskip({"tag": "seqeval", "translate": "sacrebleu"}.get(task, "sklearn"))
    metric = measured(task, *rows(task, 10_000))
    figures = metric.weighted
    start = time.process_time()
    bounds = intervals(figures, metric.count)
    assert time.process_time() - start < 5
    for name, value in metric.figures.items():
        assert bounds[name].low <= value <= bounds[name].high, name
