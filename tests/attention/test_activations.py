"""Activations in native code: value and gradients against fp64, and equal without it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention import block
from regard.attention.block import ACTIVATIONS, KINDS, gated
from regard.attention.native import library

native = pytest.mark.skipif(library() is None, reason="needs a compiler")
LIMIT = 8e-3  # of a number, or of 1 where it is smaller
EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu
}  # fmt: skip


def close(ours: Tensor, exact: Tensor) -> None:
    error = (ours.double() - exact).abs() / exact.abs().clamp(min=1.0)
    assert error.max() <= LIMIT


def points(count: int) -> Tensor:
    """Random numbers near and far from 0, and the places where exp overflows and underflows."""
    torch.manual_seed(0)
    ends = torch.tensor([0.0, -0.0, 87.0, -87.5, 88.5, -90.0, 300.0, -300.0, 1e4, -1e4])
    return torch.cat([4 * torch.randn(count), ends]).bfloat16()


@native
@pytest.mark.parametrize("name", list(EXACT))
@pytest.mark.parametrize("factor", [False, True])
def test_value_and_gradients_are_those_of_fp64(name: str, factor: bool) -> None:
    x = points(1003).requires_grad_()
    other = torch.randn(len(x)).bfloat16().requires_grad_()
    weight = torch.randn(len(x)).bfloat16()
    inputs = [x, other] if factor else [x]
    wide = [t.detach().double().requires_grad_() for t in inputs]
    y = gated(ACTIVATIONS[name], x, other) if factor else ACTIVATIONS[name](x)
    z = EXACT[name](wide[0]) * wide[1] if factor else EXACT[name](wide[0])
    assert y.dtype == torch.bfloat16
    assert y.grad_fn.name().startswith("Activation") == (factor or name == "gelu_tanh")
    close(y, z)
    ours = torch.autograd.grad(y, inputs, weight)
    exact = torch.autograd.grad(z, wide, weight.double())
    for a, b in zip(ours, exact, strict=True):
        close(a, b)


@native
def test_an_element_depends_on_itself_alone() -> None:
    x = points(257)
    y = ACTIVATIONS["gelu_tanh"](x)
    for start in range(0, 40, 7):
        assert torch.equal(ACTIVATIONS["gelu_tanh"](x[start:]), y[start:])
    grid = x[:256].view(16, 16)
    assert torch.equal(ACTIVATIONS["gelu_tanh"](grid.t()), ACTIVATIONS["gelu_tanh"](grid).t())


@native
@pytest.mark.parametrize("name", list(EXACT))
def test_nan_stays_and_large_numbers_are_exact(name: str) -> None:
    kind = KINDS[ACTIVATIONS[name]]
    x = torch.tensor([float("nan"), 50.0, -50.0]).bfloat16()
    y = block.activated(x, None, kind)
    assert y[0].isnan() and y[1] == 50.0 and -1e-19 < y[2] <= 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_dtypes_stay_with_torch(dtype: torch.dtype) -> None:
    """So an opened model has the activations of the references to the last bit."""
    x, other = torch.randn(5, dtype=dtype), torch.randn(5, dtype=dtype)
    for name, exact in EXACT.items():
        assert torch.equal(ACTIVATIONS[name](x), exact(x))
        assert torch.equal(gated(ACTIVATIONS[name], x, other), exact(x) * other)


@pytest.mark.parametrize("name", ["relu", "gelu", "tanh"])
def test_other_activations_stay_with_torch(name: str) -> None:
    x, other = torch.randn(5), torch.randn(5)
    assert torch.equal(gated(ACTIVATIONS[name], x, other), ACTIVATIONS[name](x) * other)


@native
def test_without_native_code_torch_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, other = torch.randn(2, 100).bfloat16()
    ours = [gated(ACTIVATIONS[name], x, other) for name in EXACT]
    monkeypatch.setattr(block.passes, "library", lambda: None)
    for a, name in zip(ours, EXACT, strict=True):
        plain = gated(ACTIVATIONS[name], x, other)
        assert torch.equal(plain, EXACT[name](x) * other)
        close(a, plain.double())
