"""Every Pattern says what it should, and its kernel computes what it says.

Each case builds a pattern and, pair by pair from its definition, the table of who sees whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from regard.attention import pattern as module
from regard.attention.bigbird import BigBird, drawn_blocks
from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Causal, Full, Ordered, Pattern
from regard.attention.window import Window
from regard.models.longformer_characters import Dilated
from regard.models.state import causal, everything
from tests.attention import naive
from tests.attention.naive import agree, close, coins, few, numbers, triple
from tests.refusals import refuses

SCALE = 0.4
HEADS = 2
CPU = torch.device("cpu")
DRAW = st.integers(0, 10**6)


@dataclass
class Case:
    pattern: Pattern
    seen: Tensor  # [B, H|1, Q, K]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.seen.size(0), self.seen.size(2), self.seen.size(3)


def told(batch: int, rows: int, keys: int, rule: Callable[[int, int, int], bool]) -> Tensor:
    table = [
        [[bool(rule(b, i, j)) for j in range(keys)] for i in range(rows)] for b in range(batch)
    ]
    return torch.tensor(table).view(batch, 1, rows, keys)


class Dice:
    """Small random choices from one number, so that a failing case has a short name."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)

    def number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def coin(self) -> bool:
        return bool(self.number(0, 1))

    def marks(self, batch: int, length: int) -> Tensor:
        """Which are real: padding on the left, on the right, or anywhere."""
        kind = self.number(0, 2)
        if kind == 2:
            return coins(batch, length, seed=self.seed, chance=0.7)
        counts = torch.tensor([self.number(1, length) for _ in range(batch)])
        attention_mask = torch.arange(length)[None] < counts[:, None]
        return attention_mask.flip(1) if kind else attention_mask


def full(dice: Dice, dtype: torch.dtype) -> Case:
    batch, rows, keys = dice.number(1, 3), dice.number(1, 9), dice.number(1, 9)
    return Case(Full(), told(batch, rows, keys, lambda b, i, j: True))


def causal_square(dice: Dice, dtype: torch.dtype) -> Case:
    batch, rows = dice.number(1, 3), dice.number(1, 14)
    return Case(Causal(), told(batch, rows, rows, lambda b, i, j: j <= i))


def causal_past(dice: Dice, dtype: torch.dtype) -> Case:
    batch, rows, past = dice.number(1, 3), dice.number(1, 14), dice.number(0, 9)
    return Case(Causal(past), told(batch, rows, past + rows, lambda b, i, j: j <= past + i))


def causal_padded(dice: Dice, dtype: torch.dtype) -> Case:
    batch, rows, past = dice.number(1, 3), dice.number(1, 9), dice.number(0, 5)
    attention_mask = dice.marks(batch, past + rows)
    seen = told(
        batch, rows, past + rows, lambda b, i, j: j <= past + i and bool(attention_mask[b, j])
    )
    return Case(causal(attention_mask, past, dtype), seen)


def everything_padded(dice: Dice, dtype: torch.dtype) -> Case:
    """Rows and keys need not be equally many: a decoder reads its source like this."""
    batch, rows, keys = dice.number(1, 3), dice.number(1, 9), dice.number(1, 9)
    attention_mask = dice.marks(batch, keys)
    seen = told(batch, rows, keys, lambda b, i, j: bool(attention_mask[b, j]))
    return Case(everything(attention_mask, rows, dtype), seen)


def bidirectional(dice: Dice, dtype: torch.dtype) -> Case:
    batch, rows = dice.number(1, 3), dice.number(1, 9)
    zeros = torch.zeros(1, rows, dtype=torch.long)
    return Case(Ordered(zeros, zeros, dtype), told(batch, rows, rows, lambda b, i, j: True))


def prefix(dice: Dice, dtype: torch.dtype) -> Case:
    """The first tokens see each other, the rest what came before; every example has its length."""
    batch, rows = dice.number(1, 3), dice.number(1, 9)
    lengths = torch.tensor([dice.number(0, rows) for _ in range(batch)])
    order = (torch.arange(rows)[None] - lengths[:, None] + 1).clamp_min(0)
    seen = told(batch, rows, rows, lambda b, i, j: j <= i or j < lengths[b])
    return Case(Ordered(order, order, dtype), seen)


def permuted(dice: Dice, dtype: torch.dtype) -> Case:
    """XLNet: a memory, content rows in a permuted order, and a query row for each of them."""
    batch, length, past = dice.number(1, 3), dice.number(1, 7), dice.number(0, 4)
    rank = torch.stack([torch.randperm(length, generator=dice.generator) for _ in range(batch)])
    keys = torch.cat([torch.full((batch, past), -1), rank], 1)

    def rule(b: int, i: int, j: int) -> bool:
        if j < past:
            return True
        if i < length:
            return bool(rank[b, j - past] <= rank[b, i])
        return bool(rank[b, j - past] < rank[b, i - length])

    pattern = Ordered(torch.cat([rank, rank - 1], 1), keys, dtype)
    return Case(pattern, told(batch, 2 * length, past + length, rule))


def floored(dice: Dice, dtype: torch.dtype) -> Case:
    """Transformer-XL's same_length and GPT-3's band: only the last few keys."""
    batch, rows, past, band = (dice.number(*r) for r in ((1, 3), (1, 9), (0, 5), (1, 6)))
    order = torch.arange(past + rows)[None]
    at = order[:, past:]
    seen = told(batch, rows, past + rows, lambda b, i, j: past + i - band < j <= past + i)
    return Case(Ordered(at, order, dtype, floor=at - band + 1), seen)


def packed(dice: Dice, dtype: torch.dtype) -> Case:
    """Several texts in one row, each causal on its own; padding belongs to none."""
    batch, rows = dice.number(1, 3), dice.number(1, 12)
    document = torch.stack([coins(rows, seed=dice.seed + b, chance=0.3) for b in range(batch)])
    document = document.long().cumsum(1)
    attention_mask = dice.marks(batch, rows)
    order = torch.arange(rows)[None]
    keys = torch.where(attention_mask, order, Ordered.HIDDEN)

    def rule(b: int, i: int, j: int) -> bool:
        return bool(j <= i and attention_mask[b, j] and document[b, i] == document[b, j])

    pattern = Ordered(order, keys, dtype, documents=(document, document))
    return Case(pattern, told(batch, rows, rows, rule))


def scattered(dice: Dice, batch: int, length: int) -> Tensor:
    """Global tokens that stand anywhere, in different numbers per example: [B, G], -1 is none."""
    count = dice.number(1, 4)
    far = torch.full((batch, count), -1)
    for b in range(batch):
        chosen = torch.randperm(length, generator=dice.generator)[: dice.number(0, count)]
        places = torch.randperm(count, generator=dice.generator)[: len(chosen)]
        far[b, places] = chosen
    return far


def window(dice: Dice, dtype: torch.dtype) -> Case:
    """Padding, and global keys that stand anywhere, in different numbers per example."""
    batch, length = dice.number(1, 3), dice.number(1, 80)
    before, after = dice.number(0, 40), dice.number(0, 40)
    attention_mask = dice.marks(batch, length) if dice.coin() else None
    far = None
    if dice.coin() and (after > 0 or before == 0):
        far = scattered(dice, batch, length)

    def rule(b: int, i: int, j: int) -> bool:
        near = i - before <= j <= i + after
        everywhere = far is not None and j in far[b].tolist()
        return (near or everywhere) and (attention_mask is None or bool(attention_mask[b, j]))

    pattern = Window(before, after, length, dtype, CPU, attention_mask, far)
    return Case(pattern, told(batch, length, length, rule))


def dilated(dice: Dice, dtype: torch.dtype) -> Case:
    batch, length, step = dice.number(1, 2), dice.number(1, 90), dice.number(1, 4)
    before, after = dice.number(0, 9), dice.number(0, 9)
    attention_mask = (
        dice.marks(batch, length) if dice.coin() else torch.ones(batch, length, dtype=torch.bool)
    )

    def rule(b: int, i: int, j: int) -> bool:
        gap = j - i
        return gap % step == 0 and -before <= gap // step <= after and bool(attention_mask[b, j])

    pattern = Dilated(step, before, after, attention_mask, dtype)
    return Case(pattern, told(batch, length, length, rule))


def bigbird(dice: Dice, dtype: torch.dtype) -> Case:
    """Global tokens read and are read; blocks read their window and those that were drawn."""
    batch, length, block = dice.number(1, 3), dice.number(1, 60), dice.number(1, 7)
    side, random = dice.number(0, 2), dice.number(0, 3)
    attention_mask = dice.marks(batch, length) if dice.coin() else None
    far = scattered(dice, batch, length) if dice.coin() else None
    pattern = BigBird(
        block, side, random, length, dtype, CPU, attention_mask, far, dice.seed, layer=1
    )
    drawn = drawn_blocks(-(-length // block), side, random, dice.seed, 1).tolist()

    def rule(b: int, i: int, j: int) -> bool:
        near = abs(i // block - j // block) <= side or j // block in drawn[i // block]
        everywhere = far is not None and (j in far[b].tolist() or i in far[b].tolist())
        return (near or everywhere) and (attention_mask is None or bool(attention_mask[b, j]))

    return Case(pattern, told(batch, length, length, rule))


CASES = [
    full, causal_square, causal_past, causal_padded, everything_padded, bidirectional, prefix,
    permuted, floored, packed, window, dilated, bigbird,
]  # fmt: skip
PREDICATES = CASES
DENSE = [case for case in CASES if case not in (window, dilated, bigbird)]
every = pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
types = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
Maker = Callable[[Dice, torch.dtype], Case]


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    """Causal attention by blocks of five rows, so that short sequences have several."""
    with mock.patch.object(module, "CAUSAL_BLOCK", 5):
        yield


# ---------------------------------------------------------- kernel = predicate


@every
@types
@few
@given(seed=DRAW)
def test_kernel(make: Maker, dtype: torch.dtype, seed: int) -> None:
    case = make(Dice(seed), dtype)
    batch, rows, keys = case.shape
    y = agree(
        lambda q, k, v: case.pattern.attend(q, k, v, AttentionArgs(None, SCALE, 0.0)),
        lambda q, k, v: naive.attention(q, k, v, SCALE, case.seen),
        triple(batch, HEADS, rows, keys, 4, seed % 97, dtype),
    )
    blind = ~case.seen.any(-1).expand(batch, HEADS, rows)
    assert not y[blind].any()


@pytest.mark.parametrize("make", DENSE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("shared", [False, True])
@few
@given(seed=DRAW)
def test_kernel_with_a_learned_bias(make: Maker, shared: bool, seed: int) -> None:
    case = make(Dice(seed), torch.float64)
    batch, rows, keys = case.shape
    inputs = triple(batch, HEADS, rows, keys, 4, seed % 97, torch.float64)
    bias = numbers(1 if shared else batch, 1 if shared else HEADS, rows, keys, dtype=torch.float64)
    agree(
        lambda q, k, v, b: case.pattern.attend(q, k, v, AttentionArgs(b, SCALE, 0.0)),
        lambda q, k, v, b: naive.attention(q, k, v, SCALE, case.seen, b),
        [*inputs, bias],
    )


@few
@given(seed=DRAW)
def test_window_with_a_learned_bias(seed: int) -> None:
    """A window's bias has the layout of its rows: [B · blocks, H, block, globals + columns]."""
    case = window(Dice(seed), torch.float64)
    batch, length, _ = case.shape
    there = torch.arange(length).view(1, 1, length, 1).expand(batch, 1, length, 1)
    assert isinstance(case.pattern, Window)
    row, key = case.pattern.rows(there)[..., 0], case.pattern.around(there)[..., 0]
    example = torch.arange(batch).repeat_interleave(len(row) // batch)[:, None, None, None]
    heads = torch.arange(HEADS)[None, :, None, None]

    def ours(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        laid = bias[example, heads, row[..., None], key[:, :, None]]
        return case.pattern.attend(q, k, v, AttentionArgs(laid, SCALE, 0.0))

    inputs = triple(batch, HEADS, length, length, 4, seed % 97, torch.float64)
    bias = numbers(batch, HEADS, length, length, dtype=torch.float64)
    agree(ours, lambda q, k, v, b: naive.attention(q, k, v, SCALE, case.seen, b), [*inputs, bias])


@every
@few
@given(seed=DRAW, rate=st.sampled_from([0.1, 0.5]))
def test_kernel_with_dropout(make: Maker, seed: int, rate: float) -> None:
    """Equal to the formula under the very weights that were dropped."""
    case = make(Dice(seed), torch.float64)
    batch, rows, keys = case.shape
    inputs = triple(batch, HEADS, rows, keys, 4, seed % 97, torch.float64)

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return case.pattern.attend(q, k, v, AttentionArgs(None, SCALE, rate))

    keep = naive.survivors(ours, inputs[0], inputs[1], rate, seed)
    agree(ours, lambda q, k, v: naive.attention(q, k, v, SCALE, case.seen, None, keep), inputs)


def test_dropout_drops_the_share_it_should() -> None:
    for make in CASES:
        case = make(Dice(3), torch.float64)
        batch, rows, keys = case.shape
        q, k, _ = triple(batch, HEADS, rows, keys, 4, 1, torch.float64)
        seen = case.seen.expand(batch, HEADS, rows, keys)
        outputs = [
            naive.survivors(
                lambda a, b, c, p=case.pattern: p.attend(a, b, c, AttentionArgs(None, SCALE, 0.5)),
                q,
                k,
                0.5,
                seed,
            )[seen]
            for seed in range(max(1, 6000 // int(seen.sum())))
        ]
        assert torch.cat(outputs).mean().item() == pytest.approx(1.0, abs=0.08), make.__name__


def test_causal_over_real_blocks() -> None:
    """More rows than a block of the usual size holds, with dropout and with a bias."""
    with mock.patch.object(module, "CAUSAL_BLOCK", 128):
        rows, past = 150, 7
        inputs = triple(1, 2, rows, past + rows, 4, 5, torch.float64)
        seen = torch.arange(past + rows)[None] <= torch.arange(rows)[:, None] + past
        bias = numbers(1, 2, rows, past + rows, dtype=torch.float64)

        def ours(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
            torch.manual_seed(2)
            return Causal(past).attend(q, k, v, AttentionArgs(b, SCALE, 0.2))

        keep = naive.survivors(lambda q, k, v: ours(q, k, v, bias), *inputs[:2], 0.2, 2)
        assert keep[:, :, seen].any() and not keep[:, :, ~seen].any()
        agree(
            ours, lambda q, k, v, b: naive.attention(q, k, v, SCALE, seen, b, keep), [*inputs, bias]
        )


# ---------------------------------------- what else follows from the predicate


@pytest.mark.parametrize("make", PREDICATES, ids=lambda make: make.__name__)
@few
@given(seed=DRAW)
def test_dense_table(make: Maker, seed: int) -> None:
    case = make(Dice(seed), torch.float32)
    assert torch.equal(case.pattern.dense(*case.shape, CPU)[:, None], case.seen)


@pytest.mark.parametrize("make", PREDICATES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_flex_attention_sees_the_same(make: Maker, seed: int) -> None:
    case = make(Dice(seed), torch.float32)
    batch, rows, keys = case.shape
    mask = create_mask(case.pattern.mask_mod, batch, HEADS, rows, keys, "cpu")
    assert torch.equal(mask, case.seen.expand(batch, HEADS, rows, keys))
    blocks = create_block_mask(case.pattern.mask_mod, batch, HEADS, rows, keys, "cpu", BLOCK_SIZE=4)
    padded = torch.nn.functional.pad(case.seen, (0, -keys % 4, 0, -rows % 4))
    touched = padded.unflatten(3, (-1, 4)).unflatten(2, (-1, 4)).any(-1).any(3)
    assert torch.equal(blocks.to_dense().bool(), touched.expand(batch, HEADS, -1, -1))


@every
@few
@given(seed=DRAW)
def test_recorded_weights_reproduce_the_output(make: Maker, seed: int) -> None:
    case = make(Dice(seed), torch.float32)
    batch, rows, keys = case.shape
    q, k, v = triple(batch, HEADS, rows, keys, 4, seed % 97, torch.float32)
    weights = case.pattern.weights(q, k, AttentionArgs(None, SCALE))
    close(weights, naive.weights(q.double(), k.double(), SCALE, case.seen), 1e-5)
    close(weights @ v, case.pattern.attend(q, k, v, AttentionArgs(None, SCALE, 0.0)), 1e-5)


@pytest.mark.parametrize("make", DENSE, ids=lambda make: make.__name__)
@few
@given(seed=DRAW)
def test_recorded_weights_with_a_bias(make: Maker, seed: int) -> None:
    case = make(Dice(seed), torch.float32)
    batch, rows, keys = case.shape
    q, k, v = triple(batch, HEADS, rows, keys, 4, seed % 97, torch.float32)
    bias = numbers(1, HEADS, rows, keys)
    weights = case.pattern.weights(q, k, AttentionArgs(bias, SCALE))
    close(weights @ v, case.pattern.attend(q, k, v, AttentionArgs(bias, SCALE, 0.0)), 1e-5)


@every
@few
@given(seed=DRAW)
def test_what_is_invisible_changes_nothing(make: Maker, seed: int) -> None:
    """One key is replaced: exactly the rows that see it change."""
    dice = Dice(seed)
    case = make(dice, torch.float64)
    batch, rows, keys = case.shape
    q, k, v = triple(batch, HEADS, rows, keys, 4, seed % 97, torch.float64)
    chosen = dice.number(0, keys - 1)
    other = v.clone()
    other[:, :, chosen] += 5.0
    first = case.pattern.attend(q, k, v, AttentionArgs(None, SCALE, 0.0))
    changed = (
        case.pattern.attend(q, k, other, AttentionArgs(None, SCALE, 0.0)) - first
    ).abs().amax(-1) > 1e-9
    assert torch.equal(changed, case.seen.expand(batch, HEADS, rows, keys)[..., chosen])


def test_a_pattern_must_say_what_is_visible() -> None:
    with refuses(TypeError, "Pattern"):
        Pattern().dense(1, 2, 2, CPU)


def test_a_pattern_that_only_says_what_is_visible_has_a_kernel() -> None:
    class Checkers(Pattern):
        def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query + key + batch) % 2 == 1

    seen = told(2, 5, 4, lambda b, i, j: (b + i + j) % 2 == 1)
    agree(
        lambda q, k, v: Checkers().attend(q, k, v, AttentionArgs(None, SCALE, 0.0)),
        lambda q, k, v: naive.attention(q, k, v, SCALE, seen),
        triple(2, HEADS, 5, 4, 4, 0, torch.float32),
    )


# ------------------------------------------------------------- golden examples


def drawn(table: Tensor) -> list[str]:
    return ["".join(str(int(x)) for x in row) for row in table]


def test_longformer_golden_example() -> None:
    """n = 6, w = 2 (one to each side), token 0 global; its own row is another attention's."""
    pattern = Window(1, 1, 6, torch.float32, CPU, far=torch.tensor([[0]]))
    rows = drawn(pattern.dense(1, 6, 6, CPU)[0])
    assert rows[1:] == ["111000", "111100", "101110", "100111", "100011"]
    q, k, _ = triple(1, 1, 6, 6, 6, 0, torch.float32)
    weights = pattern.attend(q, k, torch.eye(6)[None, None], AttentionArgs(None, SCALE))
    assert drawn(weights[0, 0] > 0)[1:] == rows[1:]


def test_a_global_key_inside_the_window_counts_once() -> None:
    zero = torch.zeros(1, 1, 4, 4)
    pattern = Window(1, 1, 4, torch.float32, CPU, far=torch.tensor([[1, 3]]))
    y = pattern.attend(zero, zero, torch.eye(4)[None, None], AttentionArgs(None, 1.0, 0.0))
    expected = [
        [1 / 3, 1 / 3, 0, 1 / 3],
        [0.25] * 4,
        [0, 1 / 3, 1 / 3, 1 / 3],
        [0, 1 / 3, 1 / 3, 1 / 3],
    ]
    assert torch.allclose(y[0, 0], torch.tensor(expected))


def test_a_causal_window_refuses_global_keys() -> None:
    with refuses(ValueError, "causal"):
        Window(3, 0, 8, torch.float32, CPU, far=torch.tensor([[5]]))


def test_xlnet_golden_example() -> None:
    """a b c d SEP CLS, b and d to be predicted: the authors' mask as a comparison of orders.

    Ordinary tokens have order -1, the others their rank in the sampled order; the query stream of
    a target stands just before its own rank.
    """
    order = torch.tensor([[-1, 2, -1, 3, 1, 5]])
    target = torch.tensor([[0, 1, 0, 1, 0, 0]])
    query = Ordered(order - target, order, torch.float32).dense(1, 6, 6, CPU)[0]
    content = Ordered(order, order, torch.float32).dense(1, 6, 6, CPU)[0]
    blocked = ["010111", "010101", "010111", "000101", "010101", "000000"]
    assert drawn(~query) == blocked
    assert drawn(~content) == ["010111", "000101", "010111", "000001", "010101", "000000"]
    assert torch.equal(content, query | torch.eye(6, dtype=torch.bool))


def test_transformer_xl_golden_masks() -> None:
    """Three rows after a memory of two: causal, and with same_length (two keys each)."""
    order = torch.arange(5)[None]
    at = order[:, 2:]
    assert drawn(Causal(2).dense(1, 3, 5, CPU)[0]) == ["11100", "11110", "11111"]
    same = Ordered(at, order, torch.float32, floor=at - 1)
    assert drawn(same.dense(1, 3, 5, CPU)[0]) == ["01100", "00110", "00011"]


# ------------------------------------------------------------- random blocks


@few
@given(blocks=st.integers(1, 40), side=st.integers(0, 3), random=st.integers(0, 5), seed=DRAW)
def test_drawn_blocks(blocks: int, side: int, random: int, seed: int) -> None:
    """As many as there are, each once, none of the window's; the key decides."""
    table = drawn_blocks(blocks, side, random, seed, 2)
    assert (table == drawn_blocks(blocks, side, random, seed, 2)).all()
    for i, row in enumerate(table.tolist()):
        outside = [j for j in range(blocks) if abs(i - j) > side]
        chosen = [j for j in row if j >= 0]
        assert len(chosen) == len(set(chosen)) == min(random, len(outside))
        assert set(chosen) <= set(outside)


def test_layers_draw_their_own_blocks_and_all_are_drawn() -> None:
    tables = [drawn_blocks(64, 1, 3, seed, layer) for seed, layer in ((0, 0), (0, 1), (1, 0))]
    assert not any((a == b).all() for a, b in ((tables[0], t) for t in tables[1:]))
    fifth = {int(j) for layer in range(200) for j in drawn_blocks(64, 1, 3, 0, layer)[5]}
    assert fifth == set(range(64)) - {4, 5, 6}


def test_bigbird_grows_with_the_length() -> None:
    """Twice the length is twice the scores, not four times; nothing of length² is stored."""

    def scores(length: int) -> int:
        pattern = BigBird(8, 1, 3, length, torch.float32, CPU, None, torch.tensor([[0]]))
        return pattern.blocks * pattern.block * pattern.mask.size(-1)

    assert scores(2048) == 2 * scores(1024) == 4 * scores(512)
    with refuses(ValueError, "bias"):
        small = BigBird(2, 1, 1, 4, torch.float32, CPU)
        q = numbers(1, 1, 4, 2)
        small.attend(q, q, q, AttentionArgs(torch.zeros(1, 1, 4, 4)))
