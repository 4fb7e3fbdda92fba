"""Products with numbers of 4 bits: within their bound, and the same in native code and in torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.attention.native import int8 as module
from regard.attention.native.int4 import (
    AT_ONCE,
    BLOCK,
    GROUP,
    as_floats,
    fitted,
    packed,
    rounded_groups,
    unpacked,
)
from regard.attention.native.int8 import kernel
from regard.core.errors import InputError
from regard.models.extensions.small import GroupedMatrix

SHAPES = [(1, 1), (2, 5), (31, 15), (64, 16), (63, 17), (65, 33), (96, 7), (130, 40), (200, 64)]
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


def in_groups(x: Tensor) -> Tensor:
    missing = -x.size(-1) % GROUP
    return torch.nn.functional.pad(x, (0, missing)).unflatten(-1, (-1, GROUP))


def check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """|y - x Ŵᵀ - b| ≤ Σ over the groups of half a step of x · Σ |ŵ|."""
    matrix = GroupedMatrix(weight)
    y, small = matrix(x, bias), matrix.whole().double()
    exact = x.double() @ small.T + (0 if bias is None else bias.double())
    assert y.shape == exact.shape and y.dtype == x.dtype
    steps = in_groups(x.double()).abs().amax(-1) / 127
    bound = steps @ in_groups(small).abs().sum(-1).T / 2
    slack = EXACT * (exact.abs().max() + 1e-6)
    assert ((y.double() - exact).abs() <= bound * (1 + 1e-4) + slack).all()


@pytest.mark.parametrize("inputs, outputs", SHAPES)
def test_within_the_bound(inputs: int, outputs: int) -> None:
    weight, bias = drawn(outputs, inputs, seed=1), drawn(outputs, seed=2)
    for rows in (1, 2, 3, 4, 5, 8, 17, 65):
        check(drawn(rows, inputs, seed=rows), weight, bias if rows % 2 else None)


@pytest.mark.parametrize("inputs, outputs", SHAPES[-3:])
def test_torch_is_within_the_bound(inputs: int, outputs: int, plain: None) -> None:
    check(drawn(5, inputs), drawn(outputs, inputs, seed=1), drawn(outputs, seed=2))


@pytest.mark.skipif(kernel("product_int4") is None, reason="there is no native code here")
@pytest.mark.parametrize("inputs, outputs", SHAPES)
def test_native_is_torch(inputs: int, outputs: int) -> None:
    matrix, bias = GroupedMatrix(drawn(outputs, inputs, seed=1)), drawn(outputs, seed=2)
    for rows in (1, 3, 4, 6, 64, 66):
        x = drawn(rows, inputs, seed=rows)
        native = matrix(x, bias)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "kernel", lambda name: None)
            expected = matrix(x, bias)
        assert (native - expected).abs().max() <= EXACT * expected.abs().max().clamp_min(1e-3)


@pytest.mark.parametrize("inputs, outputs", SHAPES)
def test_groups_are_nearer_than_their_ends_say(inputs: int, outputs: int) -> None:
    """Each group's error is at most that of 16 numbers from its smallest to its largest weight."""
    weight = drawn(outputs, inputs, seed=1).double()
    small = as_floats(fitted(weight.float()), outputs, inputs).double()
    groups = torch.nn.functional.pad(weight, (0, -inputs % GROUP), mode="replicate")
    groups = groups.unflatten(-1, (-1, GROUP))
    low, high = groups.amin(-1), groups.amax(-1)
    step = (high - low) / 15
    bound = GROUP * (step / 2 + 2**-8 * (low.abs() + 15 * step)).square()
    assert (in_groups(small - weight).square().sum(-1) <= bound).all()


def test_normal_weights_lose_what_is_known() -> None:
    """7.3 % of their size; 16 numbers from end to end would lose 7.8 %."""
    weight = torch.randn(256, 512, generator=torch.Generator().manual_seed(1))
    error = (as_floats(fitted(weight), 256, 512) - weight).square().mean().sqrt()
    assert 0.072 < error / weight.square().mean().sqrt() < 0.0745


def test_inputs_that_count_more_are_nearer() -> None:
    dice = torch.Generator().manual_seed(1)
    weight, mean = torch.randn(64, 96, generator=dice), torch.rand(96, generator=dice) ** 4
    mean[:3] = 100.0
    plain, better = (
        (as_floats(blocks, 64, 96) - weight).square() @ mean
        for blocks in (fitted(weight), fitted(weight, mean))
    )
    assert better.sum() < 0.7 * plain.sum()
    assert torch.equal(fitted(weight, torch.zeros(96)), fitted(weight))


def test_special_groups() -> None:
    """Zeros stay zeros; equal weights and two weights lose what bfloat16 loses of the ends."""
    weight = torch.zeros(3, 64)
    weight[1], weight[2, ::2] = 0.3, -5.0
    small = as_floats(fitted(weight), 3, 64)
    assert torch.equal(small[0], weight[0])
    assert torch.allclose(small[1], weight[1], rtol=2**-8, atol=0)
    assert torch.allclose(small[2], weight[2], rtol=0, atol=5 * 2**-8)


def test_blocks_are_as_written() -> None:
    """320 bytes for 16 outputs and 32 inputs: 5 bits a weight; and what lies where."""
    blocks = fitted(drawn(40, 70))
    assert blocks.shape == (3, 3, BLOCK) == (3, 3, 320) and blocks.dtype == torch.uint8
    numbers, scale, low = unpacked(blocks, 40)
    assert torch.equal(packed(numbers, scale, low), blocks)
    ends = blocks[1, 2, :64].view(torch.bfloat16)
    assert ends[5] == scale[16 + 5, 2] and ends[16 + 5] == low[16 + 5, 2]
    byte = blocks[1, 2, 64 + 3 * 64 + 5 * 4 + 1]  # line 3, output 5, byte 1
    assert byte & 15 == numbers[21, 2, 8 * 3 + 1] and byte >> 4 == numbers[21, 2, 8 * 3 + 4 + 1]


def test_large_matrices_are_fitted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = drawn(40, 64)
    whole = fitted(weight)
    monkeypatch.setattr("regard.attention.native.int4.AT_ONCE", 64 * 7)
    assert AT_ONCE > 64 * 7 and torch.equal(fitted(weight), whole)


def test_rounded_groups_keep_their_zero() -> None:
    x = torch.cat([drawn(6, 70), torch.zeros(6, 1)], -1)
    steps = in_groups(x).abs().amax(-1, keepdim=True) / 127
    error = (in_groups(rounded_groups(x)) - in_groups(x)).abs()
    assert (rounded_groups(x)[:, -1] == 0).all() and (error <= steps / 2 * 1.001).all()


def test_other_layouts() -> None:
    """What lies otherwise in memory, has more dimensions, or is in other numbers."""
    matrix, x = GroupedMatrix(drawn(10, 70, seed=1)), drawn(2, 3, 70)
    expected = matrix(x.reshape(6, 70), None).view(2, 3, 10)
    assert torch.equal(matrix(x, None), expected)
    assert torch.equal(matrix(x.mT.contiguous().mT, None), expected)
    assert torch.equal(matrix(torch.cat([x, x], -1)[..., 70:], None), expected)
    assert matrix(x[:0], None).shape == (0, 3, 10)
    half = matrix(x.bfloat16(), None)
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.float(), expected, rtol=0.1, atol=float(expected.abs().max()) / 50)


def test_a_row_is_the_same_alone_and_with_others() -> None:
    matrix, x = GroupedMatrix(drawn(50, 70)), drawn(9, 70)
    together = matrix(x, None)
    for i in range(9):
        assert torch.allclose(matrix(x[i : i + 1], None)[0], together[i], rtol=1e-5, atol=1e-4)
    if kernel("product_int4") is not None:
        assert torch.equal(matrix(x[:1], None), together[:1])


def test_some_outputs() -> None:
    matrix, x, bias = GroupedMatrix(drawn(48, 40)), drawn(3, 40), drawn(48, seed=3)
    whole = matrix(x, bias)
    for start, end in ((16, 48), (0, 20), (16, 30), (5, 48)):  # the last is computed in torch
        some = matrix(x, bias, start, end)
        assert torch.allclose(some, whole[:, start:end], rtol=1e-5, atol=1e-4)


def test_threads_change_nothing() -> None:
    matrix, x = GroupedMatrix(drawn(500, 70)), drawn(9, 70)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = matrix(x, None)
        torch.set_num_threads(3)
        assert torch.equal(matrix(x, None), alone)
    finally:
        torch.set_num_threads(before)


def test_zeros_and_what_is_no_number() -> None:
    weight, bias = drawn(5, 40), drawn(5, seed=4)
    weight[2] = 0.0
    x = drawn(4, 40)
    x[1], x[2, 3], x[3, 35] = 0.0, torch.nan, torch.inf
    y = GroupedMatrix(weight)(x, bias)
    assert torch.equal(y[1], bias) and y[0, 2] == bias[2]
    assert y[2].isnan().all() and not y[3, [0, 1, 3, 4]].isfinite().any()
    assert y[:2].isfinite().all()


def test_a_gradient_of_the_rows_is_that_of_the_matrix() -> None:
    matrix, x = GroupedMatrix(drawn(6, 40)), drawn(3, 40).requires_grad_()
    matrix(x, None).sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, matrix.whole().sum(0).expand(3, -1), rtol=1e-4, atol=1e-5)


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises((InputError, RuntimeError)):
        GroupedMatrix(drawn(5, 64))(drawn(3, 128), None)


def test_another_precision_changes_no_number() -> None:
    matrix = GroupedMatrix(drawn(20, 40))
    before = matrix.whole()
    assert torch.equal(matrix.to(torch.float64).to(torch.bfloat16).whole(), before)
    assert matrix.learned_numbers == 800 and matrix.weight.shape == (20, 40)
