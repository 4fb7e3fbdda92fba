"""Rotary positions and grouped queries: what they promise, and every kernel with them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import kernels
from regard.attention.attention import Attention, Projection
from regard.attention.bigbird import BigBird
from regard.attention.kernels import AttentionArgs
from regard.attention.memory import KVCache
from regard.attention.native import library, passes
from regard.attention.pattern import Causal, Full, Ordered, Pattern
from regard.attention.position import Rotary, RotaryAngles, View
from regard.attention.recorder import record
from regard.attention.window import Window
from regard.models.longformer_characters import Dilated
from regard.models.state import State, causal, positions
from tests.attention import naive
from tests.attention.naive import agree, close, coins, few, numbers

WIDTH, HEADS, GROUPS, SIZE = 12, 6, 2, 4
CPU = torch.device("cpu")
FREQUENCIES = torch.tensor([0.7, 0.05])


def layer(kv_heads: int | None = GROUPS, seed: int = 0, **choices: object) -> Attention:
    attention = Attention(
        WIDTH, HEADS, size=SIZE, kv_heads=kv_heads, score=Rotary(), **choices  # type: ignore[arg-type]
    )  # fmt: skip
    for i, weight in enumerate(attention.parameters()):
        weight.data = numbers(*weight.shape, seed=seed + i)
    return attention.eval()


def turned(at: Tensor) -> RotaryAngles:
    return RotaryAngles.of(at, FREQUENCIES, torch.float32)


def spread(x: Tensor) -> Tensor:
    """Every head of queries with keys of its own."""
    return x.repeat_interleave(HEADS // x.size(1), 1)


# -- rotations


def test_pairs_turn_as_complex_numbers() -> None:
    """Number i and number i + D / 2 are one complex number, times exp(i · angle)."""
    x, at = numbers(2, 3, 5, SIZE, dtype=torch.float64), torch.tensor([[0, 1, 2, 7, 3]])
    y = RotaryAngles.of(at, FREQUENCIES, torch.float64)(x)
    pairs = torch.complex(*x.chunk(2, -1))
    angles = at.float()[:, None, :, None] * FREQUENCIES
    expected = pairs * torch.polar(torch.ones(()).double(), angles.double())
    close(torch.complex(*y.chunk(2, -1)).abs(), pairs.abs(), 1e-6)
    close(y, torch.cat([expected.real, expected.imag], -1), 1e-6)
    assert torch.equal(y[:, :, 0], x[:, :, 0])


@few
@given(st.integers(0, 500))
def test_products_depend_on_the_distance_alone(shift: int) -> None:
    q, k = numbers(1, 2, 6, SIZE), numbers(1, 2, 6, SIZE, seed=1)
    at = torch.arange(6)[None]
    near, far = turned(at), turned(at + shift)
    close(near(q) @ near(k).mT, (far(q) @ far(k).mT).double(), 1e-3)
    moved = turned(at + torch.tensor([[0, 0, 0, 1, 1, 1]]))
    assert not torch.allclose(near(q) @ near(k).mT, moved(q) @ moved(k).mT, atol=1e-3)


@few
@given(st.integers(1, 10), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 99))
@torch.no_grad()
def test_a_cache_of_turned_keys_equals_one_pass(length: int, sizes: list[int], seed: int) -> None:
    """With padding anywhere: positions count real tokens."""
    attention, x = layer(), numbers(3, length, WIDTH)
    attention_mask = coins(3, length, seed=seed, chance=0.7)
    shape = (3, GROUPS, length, SIZE)
    memory, state = KVCache(torch.full(shape, torch.nan), torch.full(shape, torch.nan)), State()
    parts, start, step = [], 0, 0
    while start < length:
        end = min(length, start + sizes[step % len(sizes)])
        marks = state.extend(attention_mask[:, start:end], attention_mask[:, start:end])
        at = positions(marks, start, end - start, CPU)
        view = View(causal(marks, start, torch.float32), turns=turned(at))
        parts.append(attention(x[:, start:end], view, memory))
        start, step = end, step + 1
    at = positions(attention_mask, 0, length, CPU)
    whole = attention(x, View(causal(attention_mask, 0, torch.float32), turns=turned(at)))
    close(torch.cat(parts, 1), whole.double(), 1e-5)


@torch.no_grad()
def test_beams_continue_what_they_chose() -> None:
    attention, x, chosen = layer(), numbers(3, 5, WIDTH), torch.tensor([2, 0, 0])
    memory = KVCache(*(torch.zeros(3, GROUPS, 5, SIZE) for _ in range(2)))
    at = torch.arange(5)[None]
    attention(x[:, :3], View(Causal(), turns=turned(at[:, :3])), memory)
    memory.reorder(chosen)
    y = attention(x[:, 3:], View(Causal(3), turns=turned(at[:, 3:])), memory)
    story = torch.cat([x[chosen, :3], x[:, 3:]], 1)
    close(y, attention(story, View(Causal(), turns=turned(at)))[:, 3:].double(), 1e-5)


# -- grouped queries


def test_the_matrix_holds_fewer_keys() -> None:
    project = Projection(WIDTH, HEADS, SIZE, bias=True, kv_heads=GROUPS)
    assert project.weight.shape == ((HEADS + 2 * GROUPS) * SIZE, WIDTH)
    x = numbers(2, 5, WIDTH)
    q, k, v = project(x)
    assert q.shape == (2, HEADS, 5, SIZE) and k.shape == v.shape == (2, GROUPS, 5, SIZE)
    rows = torch.nn.functional.linear(x, project.weight, project.bias)
    flat = torch.cat([part.transpose(1, 2).flatten(2) for part in (q, k, v)], -1)
    assert torch.equal(flat, rows)
    for whole, part in zip((k, v), project.pairs(x), strict=True):
        close(part, whole.double(), 1e-6)
    close(project.queries(x), q.double(), 1e-6)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("masked", [False, True])
def test_kernels_equal_keys_for_every_head(rate: float, masked: bool) -> None:
    """SDPA and the explicit products, with dropout or without: the same numbers and gradients as
    with keys and values that were copied, a row that sees nothing included.
    """
    q, k, v = numbers(2, HEADS, 7, SIZE), *(numbers(2, GROUPS, 7, SIZE, seed=i) for i in (1, 2))
    seen = coins(2, 1, 7, 7, seed=4, chance=0.6)
    seen[0, 0, 2] = False
    mask = torch.zeros(2, 1, 7, 7).masked_fill(~seen, -torch.inf) if masked else None

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(5)
        return kernels.attend(q, k, v, AttentionArgs(None, 0.4, rate), mask)

    passed = None
    if rate:
        unit = torch.eye(7).expand(2, GROUPS, -1, -1)
        passed = naive.survivors(lambda q, k, v: ours(q, k, unit), q, k, rate, 5)
        assert (passed == 0).any() and (passed > 0).any()

    def wanted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return naive.attention(q, spread(k), spread(v), 0.4, seen if masked else None, None, passed)

    agree(ours, wanted, [q, k, v])


def patterns(dtype: torch.dtype) -> dict[str, Pattern]:
    attention_mask = torch.ones(2, 40, dtype=torch.bool)
    attention_mask[1, 33:] = False
    order = torch.stack(
        [torch.randperm(40, generator=torch.Generator().manual_seed(i)) for i in (0, 1)]
    )
    far = torch.tensor([[0, 39], [7, -1]])
    return {
        "full": Full(),
        "causal": Causal(),
        "ordered": Ordered(order, order, dtype),
        "padded": causal(attention_mask, 0, dtype),
        "window": Window(3, 2, 40, dtype, CPU, attention_mask, far),
        "bigbird": BigBird(4, 1, 2, 40, dtype, CPU, attention_mask, far),
        "dilated": Dilated(3, 2, 2, attention_mask, dtype),
    }


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("name", patterns(torch.float32))
def test_every_pattern_takes_groups(name: str, rate: float) -> None:
    pattern = patterns(torch.float32)[name]
    q, k, v = numbers(2, HEADS, 40, SIZE), *(numbers(2, GROUPS, 40, SIZE, seed=i) for i in (1, 2))

    def run(*parts: Tensor) -> Tensor:
        torch.manual_seed(3)
        return pattern.attend(*parts, AttentionArgs(None, 0.4, rate))

    close(run(q, k, v), run(q, spread(k), spread(v)).double(), 1e-5)


@torch.no_grad()
def test_a_recorder_shows_every_head_with_its_keys() -> None:
    attention, x = layer(), numbers(2, 5, WIDTH)
    view = View(Causal(), turns=turned(torch.arange(5)[None]))
    model = torch.nn.ModuleList([attention])
    y = attention(x, view)
    with record(model) as seen:
        assert torch.equal(attention(x, view), y)
    assert seen[0].keys.shape == (2, HEADS, 5, SIZE) and seen[0].weights.shape == (2, HEADS, 5, 5)
    close(attention.out(seen[0].output.transpose(1, 2).flatten(2)), y.double(), 1e-5)
    full = layer(HEADS)
    rows = attention.project.weight.unflatten(0, (-1, SIZE))
    parts = rows.split([HEADS, GROUPS, GROUPS])
    copied = [parts[0], *(p.repeat_interleave(HEADS // GROUPS, 0) for p in parts[1:])]
    full.project.weight.data = torch.cat(copied).flatten(0, 1)
    parts = attention.project.bias.unflatten(0, (-1, SIZE)).split([HEADS, GROUPS, GROUPS])
    copied = [parts[0], *(p.repeat_interleave(HEADS // GROUPS, 0) for p in parts[1:])]
    full.project.bias.data = torch.cat(copied).flatten()
    full.out.load_state_dict(attention.out.state_dict())
    close(full(x, view), y.double(), 1e-5)


# -- in native code


@pytest.mark.skipif(library() is None, reason="needs a compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("texts", [1, 3])
def test_native_rotation_and_its_gradient(dtype: torch.dtype, texts: int) -> None:
    """Parts of a projection, and of a cache, with angles of all texts or of each."""
    bound = 1e-6 if dtype == torch.float32 else 2e-2
    turns = RotaryAngles.of(torch.arange(texts * 5).view(texts, 5) % 7, torch.rand(8), dtype)
    exact = RotaryAngles(*(part.double() for part in turns))
    rows = numbers(3, 5, 6, 16).to(dtype)
    lying = rows.transpose(1, 2)[:, 1:4], rows[:, :, ::2].transpose(1, 2).contiguous()
    for x in (*lying, lying[1].mT.contiguous().mT):
        x = x.detach().requires_grad_()
        wide = x.detach().double().requires_grad_()
        y, z = turns(x), exact(wide)
        assert y.grad_fn.name().startswith("Rotation")
        assert y.transpose(1, 2).is_contiguous()
        close(y.double(), z, bound)
        weight = numbers(*y.shape, seed=3).to(dtype)
        (ours,) = torch.autograd.grad(y, x, weight)
        (theirs,) = torch.autograd.grad(z, wide, weight.double())
        close(ours.double(), theirs, bound)


@pytest.mark.skipif(library() is None, reason="needs a compiler")
def test_native_rotation_can_be_differentiated_twice() -> None:
    turns = RotaryAngles.of(torch.arange(4)[None], torch.rand(3), torch.float32)
    x = numbers(2, 2, 4, 6).float().requires_grad_()
    (slope,) = torch.autograd.grad((turns(x) ** 3).sum(), x, create_graph=True)
    (ours,) = torch.autograd.grad(slope.square().sum(), x)
    wide = x.detach().double().requires_grad_()
    exact = RotaryAngles(*(part.double() for part in turns))
    (slope,) = torch.autograd.grad((exact(wide) ** 3).sum(), wide, create_graph=True)
    (theirs,) = torch.autograd.grad(slope.square().sum(), wide)
    assert torch.allclose(ours.double(), theirs, rtol=1e-4, atol=1e-3)


def test_rotation_without_native_code_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = RotaryAngles.of(torch.arange(4)[None], torch.rand(3), torch.float32)
    x = numbers(2, 2, 4, 6).float()
    ours = turns(x)
    monkeypatch.setattr(passes, "library", lambda: None)
    assert not turns(x.requires_grad_()).grad_fn.name().startswith("Rotation")
    close(ours, turns(x), 1e-6)
