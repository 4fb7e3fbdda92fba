"""What an attention reads: itself, a past, a cache, a source. A past equals one long pass."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention.attention import Attention
from regard.attention.memory import CACHES, HERE, RECENT, CrossKV, KVCache, Segment
from regard.attention.pattern import Causal, Full, Ordered
from regard.attention.position import View
from regard.core.errors import InputError
from regard.models.recurrent import ContentMemory
from regard.models.state import State, causal, mark
from tests.attention import naive
from tests.attention.naive import close, coins, few, numbers
from tests.refusals import refuses

WIDTH, HEADS = 8, 2
CPU = torch.device("cpu")


def layer(seed: int = 0) -> Attention:
    attention = Attention(WIDTH, HEADS)
    for i, weight in enumerate(attention.parameters()):
        weight.data = numbers(*weight.shape, seed=seed + i)
    return attention.eval()


def cache(batch: int, capacity: int) -> KVCache:
    """Full of what must never be read."""
    shape = (batch, HEADS, capacity, WIDTH // HEADS)
    return KVCache(torch.full(shape, torch.nan), torch.full(shape, torch.nan))


def cuts(length: int, *sizes: int) -> list[slice]:
    """`length` rows in pieces of the given sizes, over and over."""
    slices, start = [], 0
    while start < length:
        end = min(length, start + sizes[len(slices) % len(sizes)])
        slices.append(slice(start, end))
        start = end
    return slices


# ------------------------------------------------------------------- the cache


@few
@given(st.integers(1, 12), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 3))
@torch.no_grad()
def test_growing_equals_one_pass(length: int, sizes: list[int], spare: int) -> None:
    attention, x = layer(), numbers(2, length, WIDTH)
    memory = cache(2, length + spare)
    parts = [attention(x[:, cut], View(Causal(cut.start)), memory) for cut in cuts(length, *sizes)]
    close(torch.cat(parts, 1), attention(x, View(Causal())).double(), 1e-5)
    assert memory.length == length


@few
@given(st.integers(1, 10), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 99))
@torch.no_grad()
def test_growing_equals_one_pass_with_padding(length: int, sizes: list[int], seed: int) -> None:
    attention, x = layer(), numbers(3, length, WIDTH)
    attention_mask = coins(3, length, seed=seed, chance=0.7)
    memory, state = cache(3, length), State()
    parts = []
    for cut in cuts(length, *sizes):
        marks = state.extend(attention_mask[:, cut], attention_mask[:, cut])
        parts.append(attention(x[:, cut], View(causal(marks, cut.start, torch.float32)), memory))
    whole = attention(x, View(causal(attention_mask, 0, torch.float32)))
    close(torch.cat(parts, 1), whole.double(), 1e-5)


@torch.no_grad()
def test_growing_never_moves() -> None:
    """The buffer is allocated once and handed out as it is."""
    attention, memory = layer(), cache(1, 6)
    keys, values = memory.keys, memory.values
    for cut in cuts(6, 1, 2):
        _, k, v = memory.read(numbers(1, 6, WIDTH)[:, cut], attention.project)
        k, v = memory.keep(k, v)
        assert k.data_ptr() == keys.data_ptr() and v.data_ptr() == values.data_ptr()
        assert k.shape[2] == v.shape[2] == cut.stop


@pytest.mark.parametrize("more", [1, 3])
@torch.no_grad()
def test_a_full_cache_refuses(more: int) -> None:
    """One row too many must not vanish: a single row would fit the empty slice behind the end."""
    attention, memory = layer(), cache(1, 4)
    attention(numbers(1, 4, WIDTH), View(Causal()), memory)
    with refuses(InputError, 4):
        attention(numbers(1, more, WIDTH), View(Causal(4)), memory)
    assert memory.length == 4


@pytest.mark.parametrize("form, apart, size", [("bf16", 2**-8, 2 * 16), ("int8", 1 / 254, 16 + 4)])
def test_a_compact_cache_is_near(form: str, apart: float, size: int) -> None:
    """bfloat16 is as near as its 8 bits are; a byte is half a step of its row at most."""
    cache = CACHES[form].empty((2, 3, 5, 16), torch.zeros(1))
    k, v = numbers(2, 3, 4, 16, seed=1).float() * 7, numbers(2, 3, 4, 16, seed=2).float()
    k[0, 0, 1] = 0.0
    cache.keep(k[:, :, :3], v[:, :, :3])
    for exact, near in zip((k, v), cache.keep(k[:, :, 3:], v[:, :, 3:]), strict=True):
        bound = exact.abs() if form == "bf16" else exact.abs().amax(-1, keepdim=True)
        assert near.dtype == exact.dtype and (near - exact).abs().max() > 0
        assert ((near - exact).abs() <= bound * apart * 1.001).all()
    assert cache.length == 4 and cache.keys.nbytes == 2 * 3 * 5 * size
    double = CACHES[form].empty((2, 3, 5, 16), torch.zeros(1, dtype=torch.float64))
    assert double.keep(k.double(), v.double())[0].dtype == torch.float64


@pytest.mark.parametrize("form", CACHES)
def test_a_compact_cache_shows_what_is_no_number(form: str) -> None:
    cache = CACHES[form].empty((1, 1, 3, 8), torch.zeros(1))
    x = numbers(1, 1, 3, 8).float()
    x[0, 0, 1, 2], x[0, 0, 2, 2] = torch.nan, torch.inf
    keys, _ = cache.keep(x, x)
    assert keys[0, 0, 0].isfinite().all() and not keys[0, 0, 1:, 2].isfinite().any()


@torch.no_grad()
def test_beams_continue_what_they_chose() -> None:
    attention, x = layer(), numbers(3, 5, WIDTH)
    memory = cache(3, 5)
    attention(x[:, :3], View(Causal()), memory)
    chosen = torch.tensor([2, 0, 0])
    memory.reorder(chosen)
    y = attention(x[:, 3:], View(Causal(3)), memory)
    story = torch.cat([x[chosen, :3], x[:, 3:]], 1)
    close(y, attention(story, View(Causal()))[:, 3:].double(), 1e-5)


# ----------------------------------------------- the hidden states of the past


@few
@given(st.integers(0, 6), st.integers(1, 6))
def test_a_segment_equals_one_long_pass(past: int, rows: int) -> None:
    """In the first layer, where the past does not depend on what the past could see."""
    attention, x = layer(), numbers(2, past + rows, WIDTH)
    whole = attention(x, View(Causal()))[:, past:]
    close(attention(x[:, past:], View(Causal(past)), Segment(x[:, :past])), whole.double(), 1e-5)


def test_a_segment_carries_over_segments() -> None:
    """Several in a row, each remembering all before it."""
    attention, x = layer(), numbers(2, 12, WIDTH)
    parts = [
        attention(x[:, c], View(Causal(c.start)), Segment(x[:, : c.start])) for c in cuts(12, 5)
    ]
    close(torch.cat(parts, 1), attention(x, View(Causal())).double(), 1e-5)


def test_weights_learn_from_the_past() -> None:
    """No gradient flows into remembered states, but the projection of them is trained."""
    attention, past = layer(), numbers(1, 3, WIDTH, seed=4)
    x = numbers(1, 1, WIDTH)
    y = attention(x, View(Full()), Segment(past))
    (grad,) = torch.autograd.grad(y.square().sum(), attention.project.weight)
    q, k, v = attention.project(torch.cat([past, x], 1))
    z = naive.attention(q[:, :, 3:], k, v, attention.scale).transpose(1, 2).flatten(2)
    expected = torch.autograd.grad(attention.out(z).square().sum(), attention.project.weight)[0]
    close(grad, expected.double(), 1e-4)


# --------------------------------------------------------- content and queries


@pytest.mark.parametrize("past", [0, 3])
def test_query_rows_read_only_content(past: int) -> None:
    """What a query row holds is seen by itself alone, and as a question, never as an answer."""
    attention, rows, targets = layer(), 4, 2
    x = numbers(2, rows + targets, WIDTH)
    before = numbers(2, past, WIDTH, seed=3) if past else None
    memory = ContentMemory(rows, HERE if before is None else Segment(before))
    q, k, v = memory.read(x, attention.project)
    assert q.size(2) == rows + targets and k.size(2) == v.size(2) == past + rows
    y = attention(x, View(Full()), memory)
    there = x[:, :rows] if before is None else torch.cat([before, x[:, :rows]], 1)
    expected = attention(x, View(Full()), CrossKV(attention.project.pairs(there)))
    close(y, expected.double(), 1e-5)
    other = x.clone()
    other[:, rows] += 3.0
    moved = (attention(other, View(Full()), memory) - y).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [i == rows for i in range(rows + targets)]


def test_two_streams_of_two_layers_leak_nothing() -> None:
    """A query row never learns its own word, through however many layers of content."""
    first, second = layer(1), layer(5)
    rank = torch.tensor([[2, 0, 3, 1]])
    view = View(Ordered(torch.cat([rank, rank - 1], 1), rank, torch.float32))
    content, query = numbers(1, 4, WIDTH), numbers(1, 1, WIDTH, seed=8).expand(1, 4, WIDTH)

    def run(words: Tensor) -> Tensor:
        x = torch.cat([words, query], 1)
        x = x + first(x, view, ContentMemory(4, HERE))
        return second(x, view, ContentMemory(4, HERE))

    y = run(content)
    for word in range(4):
        other = content.clone()
        other[:, word] += 2.0
        changed = (run(other) - y).abs().amax(-1)[0] > 1e-6
        assert changed[:4].tolist() == (rank[0] >= rank[0, word]).tolist()
        assert changed[4:].tolist() == (rank[0] > rank[0, word]).tolist()


# -------------------------------------------------------------------- a source


def test_fixed_reads_the_source_alone() -> None:
    attention, x, source = layer(), numbers(2, 3, WIDTH), numbers(2, 5, WIDTH, seed=6)
    memory = CrossKV(attention.project.pairs(source))
    y = attention(x, View(Full()), memory)
    q, k, v = attention.project(torch.cat([x, source], 1))
    z = naive.attention(q[:, :, :3], k[:, :, 3:], v[:, :, 3:], attention.scale)
    close(y, attention.out(z.transpose(1, 2).flatten(2)).double(), 1e-5)
    one = [attention(x[:, i : i + 1], View(Full()), memory) for i in range(3)]
    close(torch.cat(one, 1), y.double(), 1e-5)


def test_fixed_reorders() -> None:
    attention, x, source = layer(), numbers(2, 3, WIDTH), numbers(2, 5, WIDTH, seed=6)
    chosen = torch.tensor([1, 1, 0])
    memory = CrossKV(attention.project.pairs(source)).reorder(chosen)
    expected = attention(x[chosen], View(Full()), CrossKV(attention.project.pairs(source[chosen])))
    assert torch.allclose(attention(x[chosen], View(Full()), memory), expected, atol=1e-6)


# ------------------------------------------------------------- the whole state


def test_extend_counts_rows_and_marks_padding_late() -> None:
    """While all rows are real nothing is stored; the first padding makes up for it."""
    state = State()
    assert state.extend(None, torch.zeros(2, 2)) is None and state.length == 2
    padded = torch.tensor([[True, False], [True, True]])
    marks = state.extend(padded, torch.zeros(2, 2))
    assert marks is not None
    assert marks.tolist() == [[True, True, True, False], [True] * 4]
    marks = state.extend(None, torch.zeros(2, 1))
    assert marks is state.attention_mask and marks is not None
    assert marks.tolist() == [[True, True, True, False, True], [True] * 5]
    assert state.length == 5


def test_extend_from_padding_on() -> None:
    state = State()
    padded = torch.tensor([[False, True]])
    assert torch.equal(state.extend(padded, torch.zeros(1, 2)), padded)
    assert mark(1, 2, CPU).tolist() == [[True, True]]


def test_state_reorders_everything() -> None:
    attention, source = layer(), numbers(2, 3, WIDTH)
    memory = cache(2, 3)
    memory.keep(*memory.read(source, attention.project)[1:])
    keys, pairs = memory.keys.clone(), attention.project.pairs(source)
    state = State(
        [memory],
        [source],
        [CrossKV(pairs)],
        source_attention_mask=mark(2, 3, CPU),
        attention_mask=torch.eye(2) > 0,
    )
    state.reorder(torch.tensor([1, 1]))
    assert torch.equal(state.layers[0].keys, keys[[1, 1]])
    assert torch.equal(state.hidden[0], source[[1, 1]])
    assert torch.equal(state.source[0].pairs[1], pairs[1][[1, 1]])
    assert state.attention_mask is not None and state.attention_mask.tolist() == [[False, True]] * 2
    assert state.source_attention_mask is not None and state.source_attention_mask.shape == (2, 3)
    empty = State()
    empty.reorder(torch.tensor([0]))
    assert empty.attention_mask is None and empty.layers == []


def test_here_is_the_projection() -> None:
    attention, x = layer(), numbers(2, 3, WIDTH)
    for ours, whole in zip(HERE.read(x, attention.project), attention.project(x), strict=True):
        assert torch.equal(ours, whole)


@pytest.mark.parametrize("form", [KVCache, *CACHES.values()])
def test_recent_keys_and_values_grow_and_are_forgotten(form: type[KVCache]) -> None:
    """Also in fewer bits: what was rounded once is copied as it is."""
    rows = numbers(2, HEADS, 300, WIDTH // HEADS)
    whole = form.empty((2, HEADS, 300, WIDTH // HEADS), rows)
    near = whole.keep(rows, rows)[0]
    assert torch.equal(near, rows) == (form is KVCache)
    memory = RECENT[form].of(rows[:, :, :5], -rows[:, :, :5])
    assert isinstance(memory, form) and memory.keys.dtype == whole.keys.dtype
    for start, end in ((5, 6), (6, 90), (90, 91), (91, 300)):
        before = memory.rows
        keys, values = memory.keep(rows[:, :, start:end], -rows[:, :, start:end])
        assert keys.dtype == rows.dtype
        assert torch.equal(keys, near[:, :, start - before : end]) and torch.equal(values, -keys)
        memory.forget(20)
        assert memory.rows == min(20, before + end - start)
    for i in range(300):  # the columns of forgotten rows are filled again
        memory.keep(rows[:, :, i : i + 1], rows[:, :, i : i + 1])
        memory.forget(20)
    assert memory.keys.size(2) < 400
    assert torch.equal(memory.recent()[0], whole.keys[:, :, -20:])
    other = type(memory).holding(*memory.recent())
    assert torch.equal(other.recent()[0], whole.keys[:, :, -20:]) and other.rows == 20
