"""Native passes equal plain torch under the same mask, forth and back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention.dropout import Dropout, keep_mask
from regard.attention.kernels import ExplicitAttention
from regard.attention.native import library, passes
from regard.attention.pattern import additive

pytestmark = pytest.mark.skipif(library() is None, reason="there is no g++ here")

CLOSE = {torch.float32: 1e-6, torch.bfloat16: 8e-3}
few = settings(max_examples=40, deadline=None)
sizes = st.tuples(*(st.integers(1, n) for n in (3, 3, 5, 40)))  # B, H, Q, K
types = st.sampled_from(list(CLOSE))


def in_torch(function: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "library", lambda: None)
        return function()


def numbers(*shape: int, seed: int, spread: float = 3.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread


def coins(*shape: int, seed: int, chance: float = 0.6) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < chance


def close(ours: Tensor, expected: Tensor, limit: float) -> None:
    assert ours.shape == expected.shape
    assert (ours.double() - expected.double()).abs().max() <= limit


@few
@given(sizes, types, st.integers(0, 99), st.sampled_from(["none", "shared", "own", "view"]),
       st.booleans(), st.booleans())  # fmt: skip
def test_weights(
    size: tuple[int, ...], dtype: torch.dtype, seed: int, kind: str, masked: bool, drops: bool
) -> None:
    """Whatever is added and however it lies in memory; rows that see nothing are zeros."""
    batch, heads, rows, keys = size
    scores = numbers(*size, seed=seed).to(dtype)
    wide = numbers(batch, heads, rows, keys + 5, seed=seed + 1).to(dtype)
    bias = {"none": None, "shared": wide[:1, :, :1, :keys], "own": wide[..., :keys].contiguous(),
            "view": wide[..., 3 : keys + 3]}[kind]  # fmt: skip
    seen = coins(batch, 1, rows, keys, seed=seed)
    seen[0, 0, 0] = False
    mask = additive(seen, dtype) if masked else None
    keep = coins(*size, seed=seed + 2).to(torch.uint8) if drops else None
    weights, dropped = passes.weigh(scores.clone(), bias, mask, keep)
    expected = in_torch(lambda: passes.weigh(scores.double(), bias, mask, keep))
    close(weights, expected[0], CLOSE[dtype])
    close(dropped, expected[1], CLOSE[dtype])
    if masked:
        assert not weights[0, :, 0].any()
        assert not weights[~seen.expand(size)].any()
    if keep is not None:
        assert torch.equal(dropped, weights * keep)


@few
@given(sizes, types, st.integers(0, 99), st.booleans())
def test_gradient_of_weights(
    size: tuple[int, ...], dtype: torch.dtype, seed: int, drops: bool
) -> None:
    weights = torch.softmax(numbers(*size, seed=seed), -1).to(dtype)
    grad = numbers(*size, seed=seed + 1, spread=1.0).to(dtype)
    keep = coins(*size, seed=seed + 2).to(torch.uint8) if drops else None
    slope, dropped = passes.weigh_back(grad.clone(), weights, keep)
    expected = in_torch(lambda: passes.weigh_back(grad.double(), weights.double(), keep))
    close(slope, expected[0], 4 * CLOSE[dtype])
    assert torch.equal(dropped.double(), expected[1])


@pytest.mark.parametrize("score", [-1e30, -200.0, -87.5, -80.0, 0.0, 88.0, 1e30])
def test_any_size_of_score(score: float) -> None:
    scores = torch.tensor([score, 0.0, -1.0, score]).view(1, 1, 1, 4)
    weights, _ = passes.weigh(scores.clone(), None, None, None)
    close(weights, torch.softmax(scores.double(), -1), 1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_stays_none(bad: float) -> None:
    for dtype in CLOSE:
        scores = torch.tensor([0.0, bad, 1.0], dtype=dtype).view(1, 1, 1, 3)
        assert passes.weigh(scores, None, None, None)[0].isnan().any()


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("learned", [False, True])
def test_attention_equals_double_precision_under_the_same_mask(rate: float, learned: bool) -> None:
    """Double precision has no native code: it is checked by finite differences elsewhere."""
    seen = coins(2, 1, 7, 19, seed=1)
    seen[1, 0, 3] = False
    inputs = [numbers(2, 3, n, 8, seed=n, spread=1.0) for n in (7, 19, 19)]
    bias = numbers(1, 3, 7, 19, seed=5) if learned else None
    results = []
    for dtype in (torch.float32, torch.float64):
        rounded = [x.to(dtype).requires_grad_() for x in inputs]
        extra = None if bias is None else bias.to(dtype).requires_grad_()
        torch.manual_seed(0)
        y = ExplicitAttention.apply(*rounded, additive(seen, dtype), extra, 0.4, rate, keep_mask)
        wanted = rounded if extra is None else [*rounded, extra]
        results.append([y, *torch.autograd.grad(y.square().sum(), wanted)])
    for ours, expected in zip(*results, strict=True):
        close(ours, expected, 1e-4)


@pytest.mark.parametrize("dtype", CLOSE)
def test_dropout(dtype: torch.dtype) -> None:
    """One pass is the two products of plain torch, also for a tensor that does not lie in a row."""
    x = numbers(6, 50, seed=1).to(dtype).t().requires_grad_()
    keep = coins(50, 6, seed=2).to(torch.uint8)
    y = passes.drop(x, keep, 1.25)
    expected = (x.float() * keep * 1.25).to(dtype)
    assert torch.equal(y, expected)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, (keep * 1.25).to(dtype))


def test_dropout_can_be_differentiated_twice() -> None:
    x = numbers(3, 4, seed=1).double().float().requires_grad_()
    torch.manual_seed(0)
    (grad,) = torch.autograd.grad(Dropout(0.5)(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert torch.equal(second, torch.where(grad.detach() != 0, 8.0, 0.0))


# --------------------------------------------------------------- the random bytes


def splitmix(seed: int, count: int) -> list[int]:
    """The bytes of splitmix64, from its definition."""
    whole, stream = 2**64 - 1, b""
    for n in range(1, -(-count // 8) + 1):
        x = (seed + n * 0x9E3779B97F4A7C15) & whole
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & whole
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & whole
        stream += (x ^ (x >> 31)).to_bytes(8, "little")
    return list(stream[:count])


@pytest.mark.parametrize("limit", [1, 77, 128, 255])
@pytest.mark.parametrize("count", [0, 1, 8, 1003])
def test_bytes_are_those_of_the_definition(limit: int, count: int) -> None:
    torch.manual_seed(7)
    keep = passes.draw_keep(torch.Size((count,)), limit)
    torch.manual_seed(7)
    seed = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
    assert keep.tolist() == [int(byte >= limit) for byte in splitmix(seed, count)]


def test_threads_change_nothing() -> None:
    before, results = torch.get_num_threads(), []
    scores, bias = numbers(2, 2, 33, 65, seed=1), numbers(1, 2, 33, 65, seed=2)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        keep = passes.draw_keep(scores.shape, 30)
        weights, dropped = passes.weigh(scores.clone(), bias, None, keep)
        back, _ = passes.weigh_back(scores.clone(), weights, keep)
        results.append((keep, weights, dropped, back, passes.drop(scores, keep, 1.1)))
    torch.set_num_threads(before)
    for first, *others in zip(*results, strict=True):
        assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("rows", [1, 15, 64, 65, 200])
@pytest.mark.parametrize("columns", [1, 16, 64, 130])
@pytest.mark.parametrize("more", [0, 7])
def test_transposed(rows: int, columns: int, more: int) -> None:
    """Whole blocks, parts of blocks, and rows that lie further apart than they are long."""
    x = numbers(rows, columns + more, seed=rows)[:, :columns]
    y = passes.transposed(x)
    assert y.is_contiguous() and torch.equal(y, x.t())
