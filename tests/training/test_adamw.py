"""AdamW in native code equals torch's, with the same state, and clips in its step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from regard.attention.native import library, passes
from regard.training.optimizer import AdamW, clip, load_state, optimizer, state_tensors
from tests.models.small import small

native = pytest.mark.skipif(library() is None, reason="needs a compiler")
SHAPES = ((), (1,), (37,), (5, 16), (2, 3, 5), (129, 64))
CHOICES: list[dict[str, Any]] = [
    {"betas": (0.9, 0.999), "weight_decay": 0.0},
    {"betas": (0.9, 0.95), "weight_decay": 0.1},
    {"betas": (0.3, 0.9), "weight_decay": 0.1, "eps": 1e-3},
]
CLOSE = {torch.float32: 3e-7, torch.float64: 0.0}  # of a number, or of 1 where it is smaller


class Bag(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        for i, shape in enumerate(SHAPES):
            weight = nn.Parameter(torch.randn(shape, generator=draw, dtype=dtype))
            self.register_parameter(f"weight{i}", weight)

    def learn(self, algorithm: torch.optim.Optimizer, step: int, limit: float = 0.0) -> float:
        draw = torch.Generator().manual_seed(step)
        for p in self.parameters():
            p.grad = torch.randn(p.shape, generator=draw, dtype=p.dtype)
        norm = clip(self.parameters(), limit, algorithm)
        algorithm.step()
        return norm


def agree(one: nn.Module, other: nn.Module, bound: float) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize("limit", [0.0, 0.5])
@pytest.mark.parametrize("choice", CHOICES)
def test_equal_to_torch(dtype: torch.dtype, limit: float, choice: dict[str, Any]) -> None:
    ours, theirs = Bag(dtype), Bag(dtype)
    own = AdamW(ours.parameters(), lr=0.01, fused=True, **choice)
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.01, fused=True, **choice)
    for step in range(20):
        norms = ours.learn(own, step, limit), theirs.learn(plain, step, limit)
        assert norms[0] == norms[1]
        agree(ours, theirs, CLOSE[dtype] * (step + 1))
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert list(own.state[p]) == list(plain.state[q])
        for key, value in plain.state[q].items():
            assert own.state[p][key].dtype == value.dtype
            torch.testing.assert_close(own.state[p][key], value, rtol=1e-6, atol=1e-6)


@native
def test_numbers_that_fill_vectors_are_rounded_as_torch_rounds() -> None:
    """On a processor for which torch uses long vectors."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("torch uses other vectors here")
    ours, theirs = (nn.Linear(64, 48, bias=False) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    own = AdamW(ours.parameters(), lr=0.01, weight_decay=0.1, fused=True)
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1, fused=True)
    for _ in range(20):
        ours.weight.grad = torch.randn(48, 64)
        theirs.weight.grad = ours.weight.grad * 0.25
        own.shrink = 0.25
        own.step()
        plain.step()
        assert torch.equal(ours.weight, theirs.weight)


@native
def test_a_factor_is_for_one_step_and_leaves_the_gradient() -> None:
    bag = Bag()
    own = AdamW(bag.parameters(), lr=0.01, fused=True)
    assert bag.learn(own, 0, limit=0.5) > 0.5
    drawn = torch.Generator().manual_seed(0)
    for p in bag.parameters():
        assert p.grad is not None
        assert torch.equal(p.grad, torch.randn(p.shape, generator=drawn))
    assert own.shrink == 1.0


@native
def test_the_number_of_threads_changes_nothing() -> None:
    bags, before = [Bag(), Bag()], torch.get_num_threads()
    try:
        for threads, bag in enumerate(bags, 1):
            torch.set_num_threads(threads)
            own = AdamW(bag.parameters(), lr=0.01, weight_decay=0.1, fused=True)
            for step in range(5):
                bag.learn(own, step, limit=0.5)
    finally:
        torch.set_num_threads(before)
    agree(*bags, bound=0.0)


@pytest.mark.parametrize("name", ["adamw", "muon", "sgd", "adafactor", "bert-adam"])
def test_clipping_in_the_step_equals_clipping_before(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every optimizer, with native code and without: without, as to the last bit."""
    models = [small("gpt2") for _ in range(3)]
    algorithms = [optimizer(name, model, lr=0.01, eps=1e-6) for model in models]
    for step in range(4):
        draw = torch.Generator().manual_seed(step)
        grads = [torch.randn(p.shape, generator=draw) for p in models[0].parameters()]
        for i, (model, algorithm) in enumerate(zip(models, algorithms, strict=True)):
            for p, grad in zip(model.parameters(), grads, strict=True):
                p.grad = grad.clone()
            with monkeypatch.context() as patch:
                if i:
                    patch.setattr(passes, "library", lambda: None)
                clip(model.parameters(), 0.5, algorithm if i < 2 else None)
                algorithm.step()
    agree(models[1], models[2], 0.0)
    agree(models[0], models[2], 1e-5)


@native
def test_weights_in_another_order_of_memory_stay_with_torch() -> None:
    ours, theirs = (nn.Parameter(torch.arange(12.0).view(3, 4).t()) for _ in range(2))
    own = AdamW([ours], lr=0.01, fused=True)
    plain = torch.optim.AdamW([theirs], lr=0.01, fused=True)
    for one, algorithm in ((ours, own), (theirs, plain)):
        one.grad = torch.ones(4, 3)
        algorithm.step()
    assert torch.equal(ours, theirs)


def test_state_of_torch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that began without native code goes on with it, and the other way round."""
    plain, other = Bag(), Bag()
    with monkeypatch.context() as patch:
        patch.setattr(passes, "library", lambda: None)
        first = optimizer("adamw", plain, lr=0.01, weight_decay=0.1)
        for step in range(3):
            plain.learn(first, step)
    other.load_state_dict(plain.state_dict())
    second = optimizer("adamw", other, lr=0.01, weight_decay=0.1)
    load_state(second, other, {k: v.clone() for k, v in state_tensors(first, plain).items()})
    for step in range(3, 6):
        plain.learn(first, step)
        other.learn(second, step)
    agree(plain, other, 1e-6)
