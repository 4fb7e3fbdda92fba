"""The weighted sum equals its formula in every kernel, whatever is hidden, added or dropped."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention.dropout import GRAIN, Dropout, dropped, keep_mask
from regard.attention.kernels import ExplicitAttention
from regard.attention.pattern import additive
from tests.attention import naive
from tests.attention.naive import CLOSE, agree, attend, close, coins, few, numbers, triple

sizes = st.tuples(*(st.integers(1, n) for n in (3, 3, 9, 9, 8)))  # B, H, Q, K, D
seeds = st.integers(0, 1000)
RATES = (0.05, 0.1, 0.3, 0.5, 0.7)
SCALE = 0.4


def causal_table(rows: int, keys: int) -> Tensor:
    return torch.arange(keys)[None] <= torch.arange(rows)[:, None] + keys - rows


def blind_table(batch: int, rows: int, keys: int) -> Tensor:
    """Row 1 of every example and row 3 of the first see nothing; the rest see about half."""
    seen = coins(batch, 1, rows, keys, seed=4)
    seen[..., 0] = True
    seen[:, :, 1] = False
    seen[0, :, 3] = False
    return seen


# --------------------------------------------------------- against the formula


@few
@given(sizes, seeds, st.sampled_from(list(CLOSE)))
def test_without_anything(size: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    agree(
        lambda q, k, v: attend(q, k, v, scale=SCALE),
        lambda q, k, v: naive.attention(q, k, v, SCALE),
        triple(*size, seed, dtype),
    )


@few
@given(sizes, seeds, st.sampled_from(list(CLOSE)))
def test_mask(size: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    """Half of the pairs are hidden, so that whole rows often are."""
    seen = coins(size[0], 1, size[2], size[3], seed=seed)
    agree(
        lambda q, k, v: attend(q, k, v, scale=SCALE, mask=additive(seen, dtype)),
        lambda q, k, v: naive.attention(q, k, v, SCALE, seen),
        triple(*size, seed, dtype),
    )


@few
@given(sizes, seeds, st.sampled_from(list(CLOSE)), st.booleans(), st.sampled_from(["one", "all"]))
def test_learned_bias(
    size: tuple[int, ...], seed: int, dtype: torch.dtype, masked: bool, batch: str
) -> None:
    """Also when the examples share it: then its gradient is their sum."""
    seen = coins(size[0], 1, size[2], size[3], seed=seed) if masked else None
    mask = None if seen is None else additive(seen, dtype)
    bias = numbers(size[0] if batch == "all" else 1, size[1], size[2], size[3], dtype=dtype)
    agree(
        lambda q, k, v, b: attend(q, k, v, scale=SCALE, mask=mask, bias=b),
        lambda q, k, v, b: naive.attention(q, k, v, SCALE, seen, b),
        [*triple(*size, seed, dtype), bias],
    )


@few
@given(sizes, seeds, st.booleans())
def test_fixed_bias(size: tuple[int, ...], seed: int, masked: bool) -> None:
    seen = coins(size[0], 1, size[2], size[3], seed=seed) if masked else None
    mask = None if seen is None else additive(seen, torch.float32)
    bias = numbers(1, size[1], size[2], size[3])
    agree(
        lambda q, k, v: attend(q, k, v, scale=SCALE, mask=mask, bias=bias),
        lambda q, k, v: naive.attention(q, k, v, SCALE, seen, bias.double()),
        triple(*size, seed, torch.float32),
    )


@few
@given(sizes, seeds, st.sampled_from(list(CLOSE)))
def test_causal(size: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    batch, heads, rows, _, width = size
    agree(
        lambda q, k, v: attend(q, k, v, scale=SCALE, causal=True),
        lambda q, k, v: naive.attention(q, k, v, SCALE, causal_table(rows, rows)),
        triple(batch, heads, rows, rows, width, seed, dtype),
    )


def test_long_rows() -> None:
    """Longer than any block of the fused kernel, with the visible keys in its last block alone."""
    seen = torch.zeros(1, 1, 40, 1200, dtype=torch.bool)
    seen[..., 1100:] = True
    seen[:, :, 7] = False
    agree(
        lambda q, k, v: attend(q, k, v, scale=SCALE, mask=additive(seen, torch.float32)),
        lambda q, k, v: naive.attention(q, k, v, SCALE, seen),
        triple(1, 2, 40, 1200, 8, 1, torch.float32),
    )


def test_large_scores_do_not_overflow() -> None:
    q, k, v = triple(1, 2, 5, 6, 8, 3, torch.float32)
    for bias in (None, torch.zeros(1, 1, 5, 6, requires_grad=True)):
        y = attend(q * 300, k * 300, v, scale=SCALE, bias=bias)
        close(y, naive.attention(q.double() * 300, k.double() * 300, v.double(), SCALE), 1e-4)


# --------------------------------------------------------------------- dropout


@few
@given(sizes, seeds, st.sampled_from(RATES), st.sampled_from(["plain", "mask", "bias", "both"]))
def test_dropout_equals_the_formula_under_the_same_draw(
    size: tuple[int, ...], seed: int, rate: float, what: str
) -> None:
    batch, heads, rows, keys, _ = size
    seen = coins(batch, 1, rows, keys, seed=seed) if what in ("mask", "both") else None
    mask = None if seen is None else additive(seen, torch.float64)
    extra = [numbers(1, heads, rows, keys, dtype=torch.float64)] if what in ("bias", "both") else []
    torch.manual_seed(seed)
    keep = keep_mask(torch.Size((batch * heads, rows, keys)), rate, torch.device("cpu"))
    share = keep.view(batch, heads, rows, keys).double() / (1 - dropped(rate) / GRAIN)

    def ours(q: Tensor, k: Tensor, v: Tensor, *bias: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return attend(q, k, v, scale=SCALE, mask=mask, bias=(*bias, None)[0], rate=rate)

    def formula(q: Tensor, k: Tensor, v: Tensor, *bias: Tensor) -> Tensor:
        return naive.attention(q, k, v, SCALE, seen, (*bias, None)[0], share)

    agree(ours, formula, [*triple(*size, seed, torch.float64), *extra])


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_explicit(rate: float, masked: bool) -> None:
    """Against finite differences, the random mask held fixed by the seed; two rows are blind."""
    mask = additive(blind_table(2, 4, 5), torch.float64) if masked else None
    inputs = [*triple(2, 2, 4, 5, 3, 5, torch.float64), numbers(1, 2, 4, 5, dtype=torch.float64)]

    def function(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(11)
        result: Tensor = ExplicitAttention.apply(q, k, v, mask, bias, SCALE, rate, keep_mask)
        return result

    assert torch.autograd.gradcheck(function, [x.requires_grad_() for x in inputs])


def test_second_derivatives_of_explicit_are_refused() -> None:
    """Its backward is no graph: silence would be a wrong number."""
    q, k, v = (x.requires_grad_() for x in triple(1, 1, 3, 3, 2, 0, torch.float64))
    y = ExplicitAttention.apply(q, k, v, None, None, SCALE, 0.0, keep_mask)
    (grad,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), q)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 6])
def test_causal_and_a_mask_and_dropout_together(causal: bool, masked: bool, rows: int) -> None:
    """Whatever is asked for together holds together: the last row sees the last key."""
    q, k, v = triple(2, 2, rows, 6, 4, 8, torch.float64)
    seen = coins(2, 1, rows, 6, seed=2) if masked else torch.ones(2, 1, rows, 6, dtype=torch.bool)
    mask = additive(seen, q.dtype) if masked else None
    seen = seen & causal_table(rows, 6) if causal else seen
    close(
        attend(q, k, v, scale=SCALE, mask=mask, causal=causal),
        naive.attention(q, k, v, SCALE, seen),
        1e-12,
    )
    torch.manual_seed(1)
    keep = keep_mask(torch.Size((4, rows, 6)), 0.3, q.device).view(2, 2, rows, 6)
    share = keep.double() / (1 - dropped(0.3) / GRAIN)
    torch.manual_seed(1)
    y = attend(q, k, v, scale=SCALE, mask=mask, causal=causal, rate=0.3)
    close(y, naive.attention(q, k, v, SCALE, seen, keep=share), 1e-12)


def test_dropout_is_right_on_average() -> None:
    q, k, v = triple(1, 2, 4, 5, 3, 1, torch.float64)
    torch.manual_seed(0)
    many = [x.expand(20_000, *x.shape[1:]) for x in (q, k, v)]
    mean = attend(*many, scale=SCALE, rate=0.3).mean(0, keepdim=True)
    close(mean, attend(q, k, v, scale=SCALE), 2e-2)


# ------------------------------------------------------- rows that see nothing


PATHS = {  # name -> (learned bias, rate)
    "fused": (False, 0.0),
    "explicit with dropout": (False, 0.5),
    "explicit with a learned bias": (True, 0.0),
    "explicit with both": (True, 0.5),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blind_rows_are_zero_and_leak_nothing(path: str, dtype: torch.dtype) -> None:
    learned, rate = PATHS[path]
    seen = blind_table(2, 5, 6)
    inputs = [x.requires_grad_() for x in triple(2, 3, 5, 6, 8, 2, dtype)]
    bias = numbers(1, 3, 5, 6, dtype=dtype).requires_grad_() if learned else None
    y = attend(*inputs, scale=SCALE, mask=additive(seen, dtype), bias=bias, rate=rate)
    blind = ~seen.any(-1)[:, 0]  # [B, Q]
    assert blind.sum() == 3
    rows = y.transpose(1, 2)[blind]
    assert torch.equal(rows, torch.zeros_like(rows))
    assert y.isfinite().all() and (y.transpose(1, 2)[~blind] != 0).any()
    wanted = [*inputs, bias] if bias is not None else inputs
    for grad in torch.autograd.grad(rows.sum() * 3, wanted, retain_graph=True):
        assert torch.equal(grad, torch.zeros_like(grad))
    grads = torch.autograd.grad(y.sum(), wanted)
    assert all(grad.isfinite().all() for grad in grads)
    assert not grads[0].transpose(1, 2)[blind].any()


@pytest.mark.parametrize("path", PATHS)
def test_what_is_hidden_changes_nothing(path: str) -> None:
    """Keys and values nobody sees may be anything finite, and get no gradient."""
    learned, rate = PATHS[path]
    seen = coins(1, 1, 5, 6, seed=3)
    seen[..., 4:] = False  # the last two keys are hidden from everyone
    q, k, v = triple(1, 2, 5, 6, 4, 7, torch.float32)
    results = []
    for noise in (0.0, 1e4):
        hidden = torch.zeros(6, 1).index_fill(0, torch.tensor([4, 5]), noise)
        a, b, c = (x.clone().requires_grad_() for x in (q, k + hidden, v + hidden))
        bias = numbers(1, 2, 5, 6).requires_grad_() if learned else None
        torch.manual_seed(0)
        y = attend(a, b, c, scale=SCALE, mask=additive(seen, q.dtype), bias=bias, rate=rate)
        grads = torch.autograd.grad(y.square().sum(), (a, b, c))
        assert not grads[1][:, :, 4:].any() and not grads[2][:, :, 4:].any()
        results.append((y, *grads))
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)


# ------------------------------------------------------------ the random bytes


@pytest.fixture(params=["native", "plain torch"])
def drawing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain torch":
        monkeypatch.setattr("regard.attention.dropout.library", lambda: None)


@pytest.mark.usefixtures("drawing")
@pytest.mark.parametrize("rate", RATES)
def test_every_byte_lane_keeps_its_share(rate: float) -> None:
    torch.manual_seed(3)
    count = 200_000
    lanes = keep_mask(torch.Size((count, 8)), rate, torch.device("cpu"))
    assert lanes.dtype == torch.uint8 and set(lanes.unique().tolist()) == {0, 1}
    share = 1 - dropped(rate) / GRAIN
    spread = math.sqrt(share * (1 - share) / count)
    assert (lanes.double().mean(0) - share).abs().max() < 5 * spread
    centred = (lanes.double() - share) / math.sqrt(share * (1 - share))
    together = (centred.T @ centred / count).fill_diagonal_(0)
    assert together.abs().max() < 5 / math.sqrt(count), "lanes depend on each other"
    following = (centred[1:] * centred[:-1]).mean(0)
    assert following.abs().max() < 5 / math.sqrt(count), "draws depend on each other"


@pytest.mark.parametrize("limit", [1, 2, 77, 127, 128, 129, 200, 255])
def test_a_byte_is_kept_iff_it_is_at_least_the_limit(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arithmetic on eight bytes at once equals the comparison of each byte."""
    monkeypatch.setattr("regard.attention.dropout.library", lambda: None)
    torch.manual_seed(limit)
    keep = keep_mask(torch.Size((4096,)), limit / GRAIN, torch.device("cpu"))
    torch.manual_seed(limit)
    draws = torch.empty(512, dtype=torch.int64).random_(-(2**63), None).view(torch.uint8)
    assert torch.equal(keep.bool(), draws.int() >= limit)
    assert len(draws.unique()) == GRAIN


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0.0, 0), (1e-6, 1), (1 / 256, 1), (0.05, 13), (0.1, 26), (0.3, 77), (0.5, 128), (0.7, 179)],
)
def test_rates_are_rounded_to_the_nearest_256th(rate: float, expected: int) -> None:
    assert dropped(rate) == expected


@pytest.mark.parametrize("rate", [0.995, 0.999, 1.0])
def test_a_rate_near_one_still_gives_numbers(rate: float) -> None:
    torch.manual_seed(0)
    assert Dropout(rate)(torch.ones(1000)).isfinite().all()
    assert attend(*triple(1, 1, 3, 3, 2, 0, torch.float32), scale=1.0, rate=rate).isfinite().all()


@few
@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(RATES))
def test_any_shape(shape: list[int], rate: float) -> None:
    keep = keep_mask(torch.Size(shape), rate, torch.device("cpu"))
    assert keep.shape == torch.Size(shape)
    assert Dropout(rate)(torch.ones(shape)).shape == torch.Size(shape)


# --------------------------------------------------------------------- Dropout


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_preserves_the_mean(rate: float, dtype: torch.dtype) -> None:
    """A number survives multiplied by what makes the mean exact for the rounded rate."""
    torch.manual_seed(5)
    x = torch.ones(400_000, dtype=dtype, requires_grad=True)
    y = Dropout(rate)(x)
    scale = GRAIN / (GRAIN - dropped(rate))
    values = y.unique()
    assert len(values) == 2 and values[0] == 0
    assert values[1].item() == pytest.approx(scale, rel=8e-3 if dtype == torch.bfloat16 else 1e-6)
    share = (y != 0).double().mean().item()
    assert share * scale == pytest.approx(1.0, abs=6 * math.sqrt(scale / 400_000))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, y)  # at ones the gradient is the mask itself


def test_dropout_rests_when_it_should() -> None:
    x = numbers(7, 3)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x
    assert not torch.equal(Dropout(0.5)(x), x)
    assert "0.5" in repr(Dropout(0.5))


def test_the_seed_decides() -> None:
    q, k, v = triple(2, 2, 5, 6, 4, 0, torch.float32)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.cat(
            [attend(q, k, v, scale=SCALE, rate=0.3).flatten(), Dropout(0.3)(q).flatten()]
        )

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


# ------------------------------------------------------------------- the edges


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0), (0, 2, 0, 0)])
def test_empty(shape: tuple[int, int, int, int], rate: float) -> None:
    """No examples, no rows, or no keys: a row without keys sees nothing."""
    batch, heads, rows, keys = shape
    for bias in (None, torch.zeros(1, heads, rows, keys, requires_grad=True)):
        inputs = [x.requires_grad_() for x in triple(batch, heads, rows, keys, 5, 0, torch.float32)]
        y = attend(*inputs, scale=SCALE, bias=bias, rate=rate)
        assert torch.equal(y, torch.zeros(batch, heads, rows, 5))
        y.sum().backward()
        assert all(x.grad is None or not x.grad.any() for x in inputs)


@pytest.mark.parametrize("path", PATHS)
def test_autocast(path: str) -> None:
    """Inside autocast the projections give bf16, the mask and a bias may still be fp32."""
    learned, rate = PATHS[path]
    x = numbers(2, 3, 5, 8).requires_grad_()
    weight = numbers(8, 8, seed=1).requires_grad_()
    seen = blind_table(2, 5, 5)
    bias = numbers(1, 3, 5, 5).requires_grad_() if learned else None
    with torch.autocast("cpu", torch.bfloat16):
        q = torch.nn.functional.linear(x, weight)
        y = attend(q, q, q, scale=SCALE, mask=additive(seen, torch.float32), bias=bias, rate=rate)
    assert y.dtype == torch.bfloat16
    y.float().square().sum().backward()
    for leaf in (x, weight, *([] if bias is None else [bias])):
        assert leaf.grad is not None and leaf.grad.dtype == torch.float32
        assert leaf.grad.isfinite().all() and leaf.grad.any()
    if rate == 0.0:
        wide = (x @ weight.T).double()
        fixed = None if bias is None else bias.double()
        close(y, naive.attention(wide, wide, wide, SCALE, seen, fixed), CLOSE[torch.bfloat16])


def test_values_may_be_of_another_size_and_keys_may_not() -> None:
    q, k, v = numbers(1, 2, 5, 4), numbers(1, 2, 6, 4), numbers(1, 2, 6, 7)
    y = attend(q, k, v, scale=SCALE)
    close(y, naive.attention(q, k, v, SCALE), 1e-5)
    assert y.shape == (1, 2, 5, 7)
    with pytest.raises(RuntimeError):  # torch's own
        attend(q, numbers(1, 2, 6, 3), v, scale=SCALE)


def test_a_mask_is_added_because_a_score_of_zero_hides_nothing() -> None:
    """A product with 0 would leave exp(0) = 1 of a hidden key: here as much as of any other."""
    q, k, v = numbers(1, 1, 3, 4), torch.zeros(1, 1, 4, 4), numbers(1, 1, 4, 4)  # scores of zero
    seen = torch.tensor([True, True, False, False]).expand(1, 1, 3, 4)
    close(attend(q, k, v, scale=SCALE), v.mean(2, keepdim=True).expand_as(q), 1e-6)
    table = additive(seen, q.dtype)
    assert (table[seen] == 0).all() and (table[~seen] < -1e30).all()
    hidden = attend(q, k, v, scale=SCALE, mask=table)
    close(hidden, v[:, :, :2].mean(2, keepdim=True).expand_as(q), 1e-6)
