"""Schedules: the values the papers' formulas give, and the schedulers of torch and transformers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import optimization as hf

from regard.core.errors import ConfigError, UnknownName
from regard.training.schedule import SCHEDULES, schedule, warmup_steps
from tests.refusals import Refusal, refuses


def test_noam_has_the_published_values():
    base = schedule("noam", lr=1.0, warmup=4000, steps=100_000, width=512)
    assert base(1) == pytest.approx(1.746928e-7, rel=1e-6)
    assert base(4000) == pytest.approx(6.987712e-4, rel=1e-6)
    assert base(100_000) == pytest.approx(1.397542e-4, rel=1e-6)
    big = schedule("noam", lr=1.0, warmup=4000, steps=300_000, width=1024)
    assert big(4000) == pytest.approx(4.941059e-4, rel=1e-6)
    assert max(base(t) for t in range(1, 9000)) == base(4000)


def test_tensor2tensor_is_noam_in_other_words():
    one = schedule("t2t", lr=2.0, warmup=8000, steps=100_000, width=512)
    other = schedule("noam", lr=2.0, warmup=8000, steps=100_000, width=512)
    assert one(8000) == pytest.approx(2.0 * 8000**-0.5 * 512**-0.5)
    assert all(one(t) == pytest.approx(other(t)) for t in (1, 77, 8000, 8001, 90_000))


def test_bert_jumps_where_its_warm_up_ends():
    rate = schedule("bert", lr=1.0, warmup=10, steps=100)
    assert [rate(t) for t in (9, 10, 11, 100)] == pytest.approx([0.9, 0.9, 0.89, 0.0])


def test_gpt1_decays_while_it_warms_up():
    rate = schedule("gpt1", lr=1.0, warmup=0.2, steps=100)
    assert [rate(t) for t in (10, 20, 60)] == pytest.approx([0.5 * 0.9, 0.8, 0.4])
    assert schedule("gpt1", lr=1.0, warmup=0, steps=100)(1) == pytest.approx(0.99)


def test_t5_stays_flat_and_then_falls_as_the_root():
    rate = schedule("inverse-square-root", lr=0.01, warmup=10_000, steps=2**19)
    for t in (1, 9_999, 10_000, 10_001, 40_000, 2**19):
        assert rate(t) == pytest.approx(1 / math.sqrt(max(t, 10_000)), rel=1e-12)


def test_wsd_rises_stays_and_falls():
    rate = schedule("wsd", lr=1.0, warmup=0.05, steps=100)
    assert [rate(t) for t in (1, 5, 50, 75, 100)] == pytest.approx([0.2, 1.0, 1.0, 0.5, 0.0])
    longer = schedule("wsd", lr=1.0, warmup=5, steps=200, decay_fraction=0.25)
    assert [longer(t) for t in range(1, 51)] == [rate(t) for t in range(1, 51)]
    assert [longer(t) for t in (150, 175, 200)] == pytest.approx([1.0, 0.5, 0.0])


def test_gpt3_falls_to_a_tenth_and_stays_there():
    rate = schedule(
        "cosine", lr=6e-4, warmup=0.00125, steps=600_000, min_lr_ratio=0.1, until=260 / 300
    )
    assert rate(750) == pytest.approx(6e-4)
    assert rate(375) == pytest.approx(3e-4)
    assert rate(750 + (520_000 - 750) // 2) == pytest.approx(6e-4 * 0.55, rel=1e-4)
    assert rate(520_000) == pytest.approx(6e-5)
    assert rate(599_999) == pytest.approx(6e-5)


def test_xlnet_ends_at_its_smallest_share():
    rate = schedule("polynomial", lr=1e-4, warmup=100, steps=1100, min_lr_ratio=0.001)
    assert rate(50) == pytest.approx(0.5e-4)
    assert rate(100) == pytest.approx(1e-4)
    assert rate(600) == pytest.approx(1e-4 * (0.001 + 0.999 * 0.5))
    assert rate(1100) == rate(5000) == pytest.approx(1e-7)


PEERS = {
    "linear": lambda o: hf.get_linear_schedule_with_warmup(o, 10, 100),
    "cosine": lambda o: hf.get_cosine_schedule_with_warmup(o, 10, 100),
    "constant": lambda o: hf.get_constant_schedule_with_warmup(o, 10),
    "polynomial": lambda o: hf.get_polynomial_decay_schedule_with_warmup(
        o, 10, 100, lr_end=3e-5, power=3.0
    ),
}


@pytest.mark.parametrize("name", PEERS)
def test_equals_transformers_one_step_later(name):
    """Theirs counts completed steps: before its first step the scheduler stands at t = 0."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    theirs = PEERS[name](optimizer)
    more = {"power": 3.0, "min_lr_ratio": 0.1} if name == "polynomial" else {}
    ours = schedule(name, lr=3e-4, warmup=10, steps=100, **more)
    for t in range(1, 101 if name == "cosine" else 130):  # their cosine rises again
        optimizer.step()
        theirs.step()
        assert ours(t) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9, abs=1e-12), t


def test_without_a_warm_up_equals_cosine_annealing():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.5e-4)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    ours = schedule("cosine", lr=2.5e-4, warmup=0, steps=200)
    for t in range(1, 201):
        optimizer.step()
        theirs.step()
        assert ours(t) == pytest.approx(theirs.get_last_lr()[0], rel=1e-6, abs=1e-12)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 400), st.integers(1, 400))
def test_never_negative_nor_above_the_rate(name, warmup, steps):
    rate = schedule(name, lr=0.5, warmup=warmup, steps=steps, width=64)
    values = [rate(t) for t in range(1, steps + 20)]
    assert all(0.0 <= v <= 0.5 + 1e-12 and math.isfinite(v) for v in values)
    top = values.index(max(values))
    assert all(a <= b + 1e-12 for a, b in pairwise(values[: top + 1]))
    assert all(a + 1e-12 >= b for a, b in pairwise(values[top:]))


def test_a_share_is_resolved_against_all_steps():
    assert warmup_steps(0.06, 1000) == 60
    assert warmup_steps(4000.0, 1000) == 4000
    assert warmup_steps(0.001, 10) == 1
    assert warmup_steps(0, 10) == warmup_steps(0.0, 10) == 0
    by_share = schedule("linear", lr=1.0, warmup=0.1, steps=50)
    by_steps = schedule("linear", lr=1.0, warmup=5, steps=50)
    assert [by_share(t) for t in range(1, 51)] == [by_steps(t) for t in range(1, 51)]


@pytest.mark.parametrize(
    ("name", "options", "refusal"),
    [
        ("cosin", {}, (UnknownName, "cosin", "'cosine'")),
        ("noam", {"warmup": 10}, (ConfigError, "noam", "width")),
        ("noam", {"width": 8}, (ConfigError, "noam", "warm-up")),
        ("wsd", {"decay_fraction": 50}, (ConfigError, "decay_fraction", "50")),
        ("wsd", {"decay_fraction": 0.0}, (ConfigError, "decay_fraction")),
        ("linear", {"warmup": 1.5}, (ConfigError, "warm-up", "1.5")),
        ("linear", {"warmup": -1}, (ConfigError, "warm-up", "-1")),
        ("linear", {"steps": 0}, (ConfigError, "0 steps")),
        ("linear", {"lr": math.nan}, (ConfigError, "lr is nan")),
        ("constant", {"min_lr_ratio": 0.1}, (ConfigError, "constant", "min_lr_ratio")),
        ("cosine", {"min_lr_ratio": 2.0}, (ConfigError, "min_lr_ratio is 2.0")),
        ("wsd", {"decay_fraction": -1}, (ConfigError, "decay_fraction", "-1")),
    ],
)
def test_refusals(name: str, options: dict[str, float], refusal: Refusal) -> None:
    usual: dict[str, Any] = {"lr": 1.0, "warmup": 0, "steps": 10}
    with refuses(*refusal):
        schedule(name, **usual | options)


def test_steps_are_counted_from_one() -> None:
    with refuses(ConfigError, "step 0"):
        schedule("cosine", lr=1.0, warmup=0, steps=10)(0)


def test_noam_begins_at_step_one() -> None:
    rate = schedule("noam", lr=1.0, warmup=4, steps=100, width=16)
    assert rate(1) == pytest.approx(16**-0.5 * 1 * 4**-1.5)
    with refuses(ConfigError, "step 0"):  # 0^(-1/2)
        rate(0)
