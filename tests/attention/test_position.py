"""Sinusoids, counted positions, T5's buckets, and relative scores against their four terms."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.kernels import AttentionArgs
from regard.attention.memory import HERE, Memory, Segment
from regard.attention.pattern import Causal, Full, Ordered, Pattern
from regard.attention.position import (
    Distances,
    Plain,
    Relative,
    View,
    shifted,
    sinusoids,
)
from regard.attention.window import Window
from regard.models.longformer_characters import Dilated
from regard.models.recurrent import ContentMemory, RelativeSegments
from regard.models.state import positions
from regard.models.t5 import buckets
from tests.attention import naive
from tests.attention.naive import close, coins, few, numbers

CPU = torch.device("cpu")
HEADS, SIZE, WIDTH = 2, 4, 6


# ------------------------------------------------------------------- sinusoids

GOLDEN = {  # width 8, position 1
    "interleaved": [0.841471, 0.540302, 0.099833, 0.995004, 0.01, 0.99995, 0.001, 1.0],
    "halves": [0.841471, 0.099833, 0.01, 0.001, 0.540302, 0.995004, 0.99995, 1.0],
    "tensor2tensor": [0.841471, 0.046399, 0.002154, 0.0001, 0.540302, 0.998923, 0.999998, 1.0],
}


@pytest.mark.parametrize("layout", GOLDEN)
def test_sinusoids_golden(layout: str) -> None:
    y = sinusoids(torch.tensor([0, 1]), 8, layout)
    assert y.dtype == torch.float32
    assert y[1].tolist() == pytest.approx(GOLDEN[layout], abs=1e-6)
    zero = [0.0, 1.0] * 4 if layout == "interleaved" else [0.0] * 4 + [1.0] * 4
    assert y[0].tolist() == zero


@pytest.mark.parametrize("place", [1, 77, 20_000])
def test_two_columns_share_each_frequency(place: int) -> None:
    """Columns 2i and 2i + 1 are the sine and the cosine of one angle, p / 10000^(2i/d)."""
    width = 8
    y = sinusoids(torch.tensor(place), width, "interleaved").double()
    for j in range(width):
        angle = place * 10000.0 ** (-2 * (j // 2) / width)
        expected = math.cos(angle) if j % 2 else math.sin(angle)
        assert y[j].item() == pytest.approx(expected, abs=1e-6)
    assert abs(y[1].item() - math.cos(place * 10000.0 ** (-2 / width))) > 0.01  # not -2j/d


@few
@given(st.integers(-3000, 3000), st.integers(-500, 500), st.sampled_from([2, 8, 10, 64]))
def test_a_shift_is_a_rotation(place: int, shift: int, width: int) -> None:
    """[sin w(p+k), cos w(p+k)] is [sin wp, cos wp] turned by an angle that depends on k alone."""
    sine, cosine = sinusoids(torch.tensor(place), width).double().chunk(2)
    angle = shift * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    moved = sinusoids(torch.tensor(place + shift), width).double()
    close(moved[: width // 2], sine * angle.cos() + cosine * angle.sin(), 1e-6)
    close(moved[width // 2 :], cosine * angle.cos() - sine * angle.sin(), 1e-6)


def test_far_positions_stay_exact() -> None:
    y = sinusoids(torch.tensor([100_003]), 4)
    assert y[0, 0].item() == pytest.approx(math.sin(100_003), abs=1e-6)
    assert y[0, 3].item() == pytest.approx(math.cos(1000.03), abs=1e-6)


def test_the_last_wavelength_of_tensor2tensor() -> None:
    """Exactly 10000·2π, where the paper's formula stops one step short of it."""
    place = torch.tensor([10_000.0 * math.pi / 2])
    assert sinusoids(place, 8, "tensor2tensor")[0, 3].item() == pytest.approx(1.0, abs=1e-6)
    assert sinusoids(place, 8, "halves")[0, 3].item() < 0.1


# ------------------------------------------------------------------- positions


def test_positions_count_real_tokens() -> None:
    attention_mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
    assert positions(attention_mask, 0, 4, CPU).tolist() == [
        [0, 1, 2, 3],
        [0, 0, 0, 1],
        [0, 1, 1, 1],
    ]
    assert positions(attention_mask, 3, 1, CPU).tolist() == [[3], [1], [1]]
    assert positions(None, 3, 2, CPU).tolist() == [[3, 4]]


# --------------------------------------------------------------------- buckets

BOTH = {8: 8, 12: 9, 16: 10, 23: 11, 32: 12, 46: 13, 64: 14, 91: 15}
BEFORE = {16: 16, 19: 17, 21: 18, 24: 19, 27: 20, 31: 21, 35: 22, 40: 23, 46: 24, 52: 25, 59: 26,
          67: 27, 77: 28, 87: 29, 99: 30, 113: 31}  # fmt: skip


@pytest.mark.parametrize(
    ("both_sides", "exact", "breaks"),
    [(True, 8, BOTH), (False, 16, BEFORE)],
    ids=["both", "before"],
)
def test_bucket_breakpoints(both_sides: bool, exact: int, breaks: dict[int, int]) -> None:
    """The first distance of every bucket, looking back."""
    distances = torch.arange(0, 400)
    bucket_ids = buckets(-distances, both_sides, 32, 128).tolist()
    expected = list(range(exact))
    bucket = exact - 1
    for n in range(exact, 400):
        bucket = breaks.get(n, bucket)
        expected.append(bucket)
    assert bucket_ids == expected


def test_bucket_samples() -> None:
    distance = torch.tensor([0, 1, -1, 7, 8, -8, 15, 16, 127, 128, -128])
    assert buckets(distance, True, 32, 128).tolist() == [0, 17, 1, 23, 24, 8, 25, 26, 31, 31, 15]
    assert buckets(distance, False, 32, 128).tolist() == [0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 31]
    assert buckets(torch.tensor([10**6, -(10**6)]), True, 32, 128).tolist() == [31, 15]


@few
@given(st.integers(1, 300))
def test_buckets_of_both_sides_are_mirrored(distance: int) -> None:
    ahead, behind = buckets(torch.tensor([distance, -distance]), True, 32, 128).tolist()
    assert ahead == behind + 16


# ------------------------------------------------------------------- the shift


def test_shift_golden_transformer_xl() -> None:
    """Three rows after a memory of two; columns hold distances 4, 3, …; beyond 0 is masked."""
    far = torch.arange(4, -2, -1).expand(3, 6)
    assert shifted(far, 5).tolist()[2] == [4, 3, 2, 1, 0]
    assert shifted(far, 5).tolist()[1][:4] == [3, 2, 1, 0]
    assert shifted(far, 5).tolist()[0][:3] == [2, 1, 0]


def test_shift_golden_xlnet() -> None:
    """The same with distances on both sides: those of future keys are negative."""
    far = torch.arange(4, -3, -1).expand(3, 7)
    expected = [[2, 1, 0, -1, -2], [3, 2, 1, 0, -1], [4, 3, 2, 1, 0]]
    assert shifted(far, 5).tolist() == expected
    longer = torch.arange(4, -9, -1).expand(2, 3, 13)  # more columns than needed do no harm
    assert shifted(longer, 5).tolist() == [expected, expected]


@few
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
def test_shift_is_its_formula(rows: int, keys: int, spare: int) -> None:
    columns = max(keys + rows - 1, keys + 1) + spare
    far = numbers(2, rows, columns)
    y = shifted(far, keys)
    for i in range(rows):
        for j in range(keys):
            assert torch.equal(y[:, i, j], far[:, i, j + rows - 1 - i])


# --------------------------------------------------------- the relative scores


def layer(segments: bool = False, seed: int = 0) -> Attention:
    """An attention in double precision whose every weight is random."""
    u, v, s = (nn.Parameter(torch.empty(HEADS, SIZE)) for _ in range(3))
    score: Relative = RelativeSegments(WIDTH, u, v, s) if segments else Relative(WIDTH, u, v)
    attention = Attention(WIDTH, HEADS, size=SIZE, bias=False, score=score).double()
    for i, weight in enumerate(attention.parameters()):
        weight.data = numbers(*weight.shape, seed=seed + i, dtype=torch.float64)
    return attention


def signal(distance: Tensor) -> Tensor:
    """R of a distance: sines, then cosines, from the definition."""
    angle = distance.double()[..., None] * 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH).double()
    return torch.cat([angle.sin(), angle.cos()], -1)


def four_terms(
    attention: Attention,
    rows: Tensor,
    keys: Tensor,
    distance: Tensor,  # [B, Q, K]
    seen: Tensor,
    differs: Tensor | None = None,  # [B, Q, K]
) -> Tensor:
    """The whole layer, head by head: Dai et al. (2019) 3.3 and Yang et al. (2019) 2.5."""
    score = attention.score
    assert isinstance(score, Relative)
    query, key, value = attention.project.weight.unflatten(0, (3, HEADS, SIZE))
    position = score.distance.weight.unflatten(0, (HEADS, SIZE))
    results = []
    for h in range(HEADS):
        q, k, v = rows @ query[h].T, keys @ key[h].T, keys @ value[h].T
        r = signal(distance) @ position[h].T  # [B, Q, K, D]
        a = torch.einsum("bqd,bkd->bqk", q, k)
        b = torch.einsum("bqd,bqkd->bqk", q, r)
        c = torch.einsum("d,bkd->bk", score.u[h], k)[:, None]
        d = torch.einsum("d,bqkd->bqk", score.v[h], r)
        total = a + b + c + d
        if isinstance(score, RelativeSegments) and differs is not None:
            embedding = score.segment[differs.long(), h]  # [B, Q, K, D]
            total = total + torch.einsum("bqd,bqkd->bqk", q + score.s[h], embedding)
        total = (total * SIZE**-0.5).masked_fill(~seen, -1e30)
        results.append(torch.softmax(total, -1) @ v)
    return torch.cat(results, -1) @ attention.out.weight.T


def same(
    attention: Attention,
    x: Tensor,
    view: View,
    memory: Memory,
    expected: Tensor,
    limit: float = 1e-6,
) -> None:
    """Result and gradients of every weight, by blocks of two rows where there are blocks.

    The table of sinusoids is in single precision.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.attention.position.BLOCK", 2)
        got = attention(x, view, memory)
    close(got, expected, limit)
    direction = numbers(*got.shape, seed=5, dtype=torch.float64)
    weights = list(attention.parameters())
    ours = torch.autograd.grad(got, weights, direction, allow_unused=True)
    theirs = torch.autograd.grad(expected, weights, direction, allow_unused=True)
    for (name, weight), a, b in zip(attention.named_parameters(), ours, theirs, strict=True):
        zero = torch.zeros_like(weight)
        close(zero if a is None else a, zero if b is None else b, 20 * limit, name)


def falling(first: int, count: int) -> Tensor:
    """A table of the distances first, first - 1, …: [1, count, width]."""
    return sinusoids(torch.arange(first, first - count, -1), WIDTH)[None].double()


@few
@given(st.integers(1, 6), st.integers(0, 5), st.integers(1, 3))
def test_transformer_xl(rows: int, past: int, batch: int) -> None:
    attention, keys = layer(), past + rows
    x = numbers(batch, rows, WIDTH, seed=1, dtype=torch.float64)
    before = numbers(batch, past, WIDTH, seed=2, dtype=torch.float64)
    view = View(Causal(past), distances=Distances(falling(keys - 1, keys + 1), rows, keys))
    distance = past + torch.arange(rows)[:, None] - torch.arange(keys)
    expected = four_terms(
        attention, x, torch.cat([before, x], 1), distance.expand(batch, -1, -1), distance >= 0
    )
    same(attention, x, view, Segment(before), expected)


@few
@given(st.integers(1, 6), st.integers(0, 5), st.booleans())
def test_xlnet_content_rows(rows: int, past: int, both_ways: bool) -> None:
    """Distances of both signs, segments; with G = 2 half of the batch reads backwards."""
    attention, keys, batch = layer(segments=True), past + rows, 4
    x = numbers(batch, rows, WIDTH, seed=1, dtype=torch.float64)
    before = numbers(batch, past, WIDTH, seed=2, dtype=torch.float64)
    distance = (past + torch.arange(rows)[:, None] - torch.arange(keys)).repeat(batch, 1, 1)
    table = falling(keys - 1, max(keys + rows - 1, keys + 1))
    if both_ways:
        distance[batch // 2 :] *= -1
        places = torch.arange(keys - 1, keys - 1 - table.size(1), -1)
        table = torch.cat([table, sinusoids(-places, WIDTH)[None].double()])
    segment = coins(batch, keys, seed=rows)
    differs = segment[:, past:, None] != segment[:, None, :]
    draw = torch.Generator().manual_seed(rows * 31 + past)
    rank = torch.stack([torch.randperm(rows, generator=draw) for _ in range(batch)])
    keyed = torch.cat([torch.full((batch, past), -1), rank], 1)
    seen = keyed[:, None, :] <= rank[:, :, None]
    geometry = Distances(table, rows, keys, differs=differs[:, None].double())
    view = View(Ordered(rank, keyed, torch.float64), distances=geometry)
    expected = four_terms(attention, x, torch.cat([before, x], 1), distance, seen, differs)
    same(attention, x, view, Segment(before), expected)


@few
@given(st.integers(1, 6), st.integers(0, 4), st.integers(1, 4), st.booleans())
def test_xlnet_two_streams(rows: int, past: int, targets: int, segments: bool) -> None:
    """Query rows stand anywhere: their distances are gathered, the content's are shifted."""
    attention, keys, batch = layer(segments=True, seed=3), past + rows, 2
    targets = min(targets, rows)
    draw = torch.Generator().manual_seed(rows * 31 + past)
    rank = torch.stack([torch.randperm(rows, generator=draw) for _ in range(batch)])
    target = torch.stack([torch.randperm(rows, generator=draw)[:targets] for _ in range(batch)])
    x = numbers(batch, rows + targets, WIDTH, seed=1, dtype=torch.float64)
    before = numbers(batch, past, WIDTH, seed=2, dtype=torch.float64)
    place = torch.cat([torch.arange(rows).expand(batch, -1), target], 1) + past  # [B, Q]
    distance = place[:, :, None] - torch.arange(keys)
    own = torch.cat([rank, rank.gather(1, target) - 1], 1)
    keyed = torch.cat([torch.full((batch, past), -1), rank], 1)
    seen = keyed[:, None, :] <= own[:, :, None]
    segment = coins(batch, keys, seed=rows)
    differs = segment.gather(1, place)[:, :, None] != segment[:, None, :] if segments else None
    index = (keys - 1 - distance[:, rows:])[:, None]
    geometry = Distances(
        falling(keys - 1, keys + rows),
        rows,
        keys,
        index,
        None if differs is None else differs[:, None].double(),
    )
    content = torch.cat([before, x[:, :rows]], 1)
    expected = four_terms(attention, x, content, distance, seen, differs)
    sighted = seen.any(-1)  # the first of an order has nothing to read: zeros
    expected = torch.where(sighted[..., None], expected, 0.0)
    view = View(Ordered(own, keyed, torch.float64), distances=geometry)
    same(
        attention,
        x,
        view,
        ContentMemory(rows, HERE if before is None else Segment(before)),
        expected,
    )


def test_segments_need_not_be_given() -> None:
    """Without segments RelativeSegments is Relative."""
    attention, x = layer(segments=True), numbers(2, 3, WIDTH, dtype=torch.float64)
    geometry = Distances(falling(2, 5), 3, 3)
    distance = (torch.arange(3)[:, None] - torch.arange(3)).expand(2, -1, -1)
    expected = four_terms(attention, x, x, distance, torch.tensor(True))
    same(attention, x, View(Full(), distances=geometry), HERE, expected)
    zeros = Distances(falling(2, 5), 3, 3, differs=torch.zeros(2, 1, 3, 3).double())
    close(attention(x, View(Full(), distances=zeros)), expected, 1e-6)


def geometry_of(window: Window, step: int = 1) -> Distances:
    """Column p holds the distance before + rows - 1 - p. Looking back alone needs fewer."""
    columns = window.before + window.block + window.after
    first = window.before + window.block - 1
    count = columns + window.block if window.after else columns + 1
    table = sinusoids(torch.arange(first, first - count, -1) * step, WIDTH)[None].double()
    return Distances(table, window.block, columns)


def reproduces(attention: Attention, x: Tensor, view: View) -> None:
    """The weights shown to who looks give the output, whatever the layout of the bias."""
    q, k, v = attention.project(x)
    q, k, bias = attention.score(q, k, view, attention.scale)
    weights = view.pattern.weights(q, k, AttentionArgs(bias, attention.scale)).double()
    assert weights.shape == (*q.shape[:3], k.size(2))
    close(attention.out((weights @ v).transpose(1, 2).flatten(2)), attention(x, view), 1e-5)


@few
@given(st.integers(1, 80), st.integers(0, 12), st.integers(0, 12), st.booleans())
def test_relative_window(length: int, before: int, after: int, padded: bool) -> None:
    """The character model: the same four terms, made in the layout of the window's rows."""
    attention, batch = layer(seed=7), 2
    x = numbers(batch, length, WIDTH, seed=1, dtype=torch.float64)
    attention_mask = coins(batch, length, seed=length, chance=0.8) if padded else None
    pattern = Window(before, after, length, torch.float64, CPU, attention_mask)
    distance = torch.arange(length)[:, None] - torch.arange(length)
    seen = ((distance <= before) & (-distance <= after)).expand(batch, -1, -1)
    seen = seen if attention_mask is None else seen & attention_mask[:, None, :]
    expected = four_terms(attention, x, x, distance.expand(batch, -1, -1), seen)
    expected = torch.where(seen.any(-1)[..., None], expected, 0.0)
    view = View(pattern, distances=geometry_of(pattern))
    same(attention, x, view, HERE, expected)
    reproduces(attention, x, view)


@few
@given(st.integers(1, 80), st.integers(0, 9), st.integers(0, 3), st.integers(1, 3))
def test_relative_dilated_window(length: int, before: int, after: int, step: int) -> None:
    """Distances are those in the text: `step` times those in the window."""
    attention, batch = layer(seed=7), 2
    x = numbers(batch, length, WIDTH, seed=1, dtype=torch.float64)
    attention_mask = coins(batch, length, seed=length, chance=0.9)
    pattern = Dilated(step, before, after, attention_mask, torch.float64)
    distance = torch.arange(length)[:, None] - torch.arange(length)
    seen = (distance % step == 0) & (distance <= before * step) & (-distance <= after * step)
    seen = seen & attention_mask[:, None, :]
    expected = four_terms(attention, x, x, distance.expand(batch, -1, -1), seen)
    expected = torch.where(seen.any(-1)[..., None], expected, 0.0)
    view = View(pattern, distances=geometry_of(pattern.window, step))
    same(attention, x, view, HERE, expected)
    reproduces(attention, x, view)


def test_relative_under_dropout_in_bf16() -> None:
    """The path training takes: finite, random by the seed, right on average."""
    attention = layer(seed=9).bfloat16()
    attention.dropout = 0.2
    x = numbers(1, 5, WIDTH, seed=1, dtype=torch.bfloat16)
    view = View(Causal(), distances=Distances(falling(4, 6).bfloat16(), 5, 5))
    torch.manual_seed(0)
    mean = torch.stack([attention(x, view) for _ in range(400)]).float().mean(0)
    still = attention.eval()(x, view).float()
    assert (mean - still).abs().max() < 0.1 * still.abs().max().clamp_min(1.0)


def test_plain_adds_the_shared_bias() -> None:
    q, k, bias = numbers(1, 2, 3, 4), numbers(1, 2, 3, 4, seed=1), numbers(1, 2, 3, 3)
    pattern: Pattern = Full()
    content, same, added = Plain()(q, k, View(pattern, bias), 0.5)
    assert content is q and same is k and added is bias
    attention = Attention(8, 2)
    x = numbers(2, 3, 8)
    q, k, v = attention.project(x)
    expected = naive.attention(*(t.double() for t in (q, k, v)), 0.5, None, bias.double())
    expected = expected.transpose(1, 2).flatten(2) @ attention.out.weight.double().T
    close(attention(x, View(pattern, bias)), expected + attention.out.bias.double(), 1e-5)


def test_a_distance_has_a_sign_and_values_know_none() -> None:
    attention, rows = layer(), 5
    x = numbers(1, rows, WIDTH, seed=1, dtype=torch.float64)
    view = View(Full(), distances=Distances(falling(rows - 1, 2 * rows), rows, rows))
    distance = (torch.arange(rows)[:, None] - torch.arange(rows))[None]
    seen = torch.ones(rows, rows, dtype=torch.bool)
    y = attention(x, view, HERE)
    close(y, four_terms(attention, x, x, distance, seen), 1e-6)
    assert (y - four_terms(attention, x, x, distance.abs(), seen)).abs().max() > 0.01
    alike = x[:, :1].expand(1, rows, WIDTH)  # one value everywhere: distances change no sum of it
    value = attention.project(alike)[2].transpose(1, 2).flatten(2)
    close(attention(alike, view, HERE), attention.out(value), 1e-12)
