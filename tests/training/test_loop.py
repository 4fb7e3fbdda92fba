"""The loop: accumulation is exact, a step is a pure function, nonsense is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import Diverged
from regard.training.loop import Loop
from tests.refusals import refuses
from tests.training.small import STILL, gradients, planned, recipe


@pytest.mark.parametrize("family", STILL)
def test_micro_batches_add_up_to_the_batch(family: str, where: Path) -> None:
    """Uneven numbers of targets included: documents end where they like."""
    slopes = []
    for accumulate in (1, 2, 4):
        samples = 8 if family == "xlnet" else 4  # each micro-batch has two directions
        changes: dict[str, Any] = {
            "batch": {"grad_accum": accumulate, "size": samples},
            "engine": {"precision": "fp64"},
            "shape": STILL[family],
            "optimizer": {"grad_clip": 0.0},
        }
        slopes.append(gradients(planned(recipe(family, where, **changes)).loop))
    for other in slopes[1:]:
        assert other.keys() == slopes[0].keys()
        for name, value in slopes[0].items():
            assert (other[name] - value).abs().max() <= 1e-10, name


def test_a_step_is_a_function_of_seed_and_step(where: Path) -> None:
    one, two = (planned(recipe("gpt", where)).loop for _ in range(2))
    for _ in range(2):
        first = one.step(4)
    torch.manual_seed(99)  # whatever happens to the generators in between
    torch.rand(7)
    for _ in range(2):
        second = two.step(4)
    assert first == second
    assert weights(one) == weights(two)
    other = planned(recipe("gpt", where, seed=2)).loop
    assert other.step(4).loss != first.loss


def weights(loop: Loop) -> list[list[float]]:
    return [p.flatten().tolist() for p in loop.model.parameters()]


def test_a_rehearsal_leaves_no_trace(where: Path) -> None:
    fresh, tried = (planned(recipe("transformer-xl", where)).loop for _ in range(2))
    assert tried.rehearse(0.01) > 0
    assert fresh.step(4) == tried.step(4)
    assert weights(fresh) == weights(tried)


def test_a_loss_that_is_no_number_stops_before_the_weights_change(where: Path) -> None:
    plan = planned(recipe("gpt", where, optimizer={"lr": 1e30, "grad_clip": 0.0}))
    steps, size = 0, plan.loop.batches.samples
    with refuses(Diverged, "norm", "--lr 3.3e+29", "engine.precision=fp32") as caught:
        while steps < 20:
            before = weights(plan.loop)
            plan.loop.step(20)
            steps += 1
    assert f"step {steps + 1} " in str(caught.value)
    assert f"{steps * size} to {(steps + 1) * size - 1}" in str(caught.value)
    assert weights(plan.loop) == before
    assert all(p.grad is None for p in plan.loop.model.parameters())


@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_forgotten_activations_change_nothing(family: str, where: Path) -> None:
    remembering, forgotten = (
        planned(recipe(family, where, engine={"checkpointing": again})).loop
        for again in (False, True)
    )
    assert remembering.step(4) == forgotten.step(4)
    assert weights(remembering) == weights(forgotten)
