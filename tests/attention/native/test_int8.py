"""Products with small numbers: within their bound, and the same in native code and in torch."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.attention.native import int8 as module
from regard.attention.native.int8 import kernel, quantised, rounded
from regard.core.errors import InputError
from regard.models.extensions.small import PLANES, SmallMatrix

SHAPES = [(1, 1), (2, 5), (3, 15), (64, 4), (63, 7), (65, 9), (96, 17), (130, 33), (200, 64)]
ROWS = [1, 2, 3, 4, 5, 7, 8, 17, 32, 63, 64, 65, 70]
EXACT = 1e-5  # of the largest number: rounding of floats


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if there were no native code."""
    monkeypatch.setattr(module, "kernel", lambda name: None)
    yield


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Numbers of very different sizes from row to row, not around 0."""
    dice = torch.Generator().manual_seed(seed)
    size = torch.rand(*shape[:-1], 1, generator=dice) * 10
    return torch.randn(*shape, generator=dice) * size + size / 3


def error_of_x(x: Tensor, planes: int) -> Tensor:
    """Half a step of each row, [rows, 1]."""
    low, high = x.amin(-1, keepdim=True).clamp_max(0), x.amax(-1, keepdim=True).clamp_min(0)
    return (high - low) / (2 * (256**planes - 1))


def check(kind: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """|y - x Wᵀ - b| ≤ scale / 2 · Σ |x|, and half a step of x · Σ |Ŵ| where x is rounded."""
    matrix = SmallMatrix(weight, kind)
    y = matrix(x, bias)
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    assert y.shape == exact.shape and y.dtype == x.dtype
    small = matrix.weight.double().abs() * matrix.scale.double()[:, None]
    bound = x.double().abs().sum(-1, keepdim=True) * matrix.scale.double() / 2
    bound = bound + error_of_x(x.double(), PLANES[kind]) * small.sum(-1)
    slack = EXACT * (exact.abs().max() + 1e-6)
    assert ((y.double() - exact).abs() <= bound * (1 + 1e-4) + slack).all()


@pytest.mark.parametrize("kind", PLANES)
@pytest.mark.parametrize("inputs, outputs", SHAPES)
def test_within_the_bound(kind: str, inputs: int, outputs: int) -> None:
    weight, bias = drawn(outputs, inputs, seed=1), drawn(outputs, seed=2)
    for rows in ROWS:
        check(kind, drawn(rows, inputs, seed=rows), weight, bias if rows % 2 else None)


@pytest.mark.parametrize("kind", PLANES)
@pytest.mark.parametrize("inputs, outputs", SHAPES[-3:])
def test_torch_is_within_the_bound(kind: str, inputs: int, outputs: int, plain: None) -> None:
    check(kind, drawn(5, inputs), drawn(outputs, inputs, seed=1), drawn(outputs, seed=2))


def both(kind: str, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    matrix = SmallMatrix(weight, kind)
    first = matrix(x, bias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "kernel", lambda name: None)
        return first, matrix(x, bias)


# What 16 bits round away; what float sums do; what bfloat16 rounds results to.
APART = {"weight": 1e-3, "dynamic": 1e-5, "bf16": 2**-8}


@pytest.mark.parametrize("kind", APART)
@pytest.mark.parametrize("inputs, outputs", SHAPES)
def test_native_is_torch(kind: str, inputs: int, outputs: int) -> None:
    weight, bias = drawn(outputs, inputs, seed=1), drawn(outputs, seed=2)
    for rows in (1, 3, 4, 6, 64, 66):
        native, torchs = both(kind, drawn(rows, inputs, seed=rows), weight, bias)
        size = torchs.abs().max().clamp_min(1e-3)
        assert ((native - torchs).abs() <= APART[kind] * size).all()


@pytest.mark.skipif(kernel("product_int8") is None, reason="there is no native code here")
def test_sums_are_exact() -> None:
    """Whole numbers that need no rounding come out as they are, whatever the offset."""
    dice = torch.Generator().manual_seed(0)
    for rows, inputs, outputs in itertools.product((1, 5), (64, 300), (4, 6)):
        x = torch.randint(-100, 156, (rows, inputs), generator=dice).float()
        x[:, 0], x[:, 1] = -100, 155  # 256 numbers: each is one of them
        weight = torch.randint(-127, 128, (outputs, inputs), generator=dice).float()
        weight[:, 0] = 127
        for kind in PLANES:
            y, exact = SmallMatrix(weight, kind)(x, None), x @ weight.T
            assert (y - exact).abs().max() <= (0 if kind == "dynamic" else 1e-6 * exact.abs().max())


@pytest.mark.parametrize("kind", APART)
def test_other_layouts(kind: str) -> None:
    """What lies otherwise in memory, has more dimensions, or is in other numbers."""
    matrix = SmallMatrix(drawn(10, 70, seed=1), kind)
    x = drawn(2, 3, 70)
    expected = matrix(x.reshape(6, 70), None).view(2, 3, 10)
    assert torch.equal(matrix(x, None), expected)
    assert torch.equal(matrix(x.transpose(0, 1).contiguous().transpose(0, 1), None), expected)
    assert torch.equal(matrix(x.mT.contiguous().mT, None), expected)
    wide = torch.cat([x, x], -1)
    assert torch.equal(matrix(wide[..., 70:], None), expected)
    assert matrix(x[:0], None).shape == (0, 3, 10)
    half = matrix(x.bfloat16(), None)
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.float(), expected, rtol=0.1, atol=float(expected.abs().max()) / 50)


@pytest.mark.parametrize("kind", APART)
def test_some_outputs(kind: str) -> None:
    matrix, x, bias = SmallMatrix(drawn(12, 40), kind), drawn(3, 40), drawn(12, seed=3)
    assert torch.equal(matrix(x, bias, 4, 12), matrix(x, bias)[:, 4:])


@pytest.mark.parametrize("kind", APART)
def test_threads_change_nothing(kind: str) -> None:
    matrix, x = SmallMatrix(drawn(50, 70), kind), drawn(9, 70)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = matrix(x, None)
        torch.set_num_threads(3)
        assert torch.equal(matrix(x, None), alone)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", APART)
def test_zeros_and_what_is_no_number(kind: str) -> None:
    weight, bias = drawn(5, 20), drawn(5, seed=4)
    weight[2] = 0.0
    x = drawn(4, 20)
    x[1], x[2, 3], x[3, 3] = 0.0, torch.nan, torch.inf
    y = SmallMatrix(weight, kind)(x, bias)
    assert torch.equal(y[1], bias) and y[0, 2] == bias[2]
    assert y[2].isnan().all() and not y[3, [0, 1, 3, 4]].isfinite().any()
    assert y[:2].isfinite().all()


def test_weights_are_rounded_to_the_nearest() -> None:
    weight = drawn(30, 50)
    small, scale = quantised(weight)
    error = (small.double() * scale.double()[:, None] - weight.double()).abs()
    assert (error <= scale.double()[:, None] / 2 * (1 + 1e-5)).all()
    assert (small.abs().amax(-1) == 127).all() and small.dtype == torch.int8


def test_rounded_rows_keep_their_zero() -> None:
    x = torch.cat([drawn(6, 30), torch.zeros(6, 1)], -1)
    assert (rounded(x)[:, -1] == 0).all()
    assert ((rounded(x) - x).abs() <= error_of_x(x, 1) * 1.01).all()


@pytest.mark.parametrize("kind", PLANES)
def test_a_gradient_of_the_rows_is_that_of_the_matrix(kind: str) -> None:
    matrix, x = SmallMatrix(drawn(6, 10), kind), drawn(3, 10).requires_grad_()
    y = matrix(x, None)
    y.sum().backward()
    assert torch.allclose(x.grad, matrix.whole().sum(0).expand(3, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [*PLANES, "bf16"])
def test_rows_of_another_length_are_refused(kind: str) -> None:
    with pytest.raises((InputError, RuntimeError)):
        SmallMatrix(drawn(5, 64), kind)(drawn(3, 128), None)


@pytest.mark.skipif(module.ARENA is None, reason="this system has no large pages")
def test_a_system_without_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(mmap.mmap):
        def madvise(self, *args: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr("regard.attention.native.int8.mmap.mmap", Plain)
    value = drawn(3, 7)
    assert torch.equal(module.Arena().place(value), value)
