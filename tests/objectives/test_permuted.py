from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.models import create
from regard.objectives.base import Sample
from regard.objectives.permuted import Permuted, PermutedOptions, Stream, orders, split
from tests.objectives.sentences_corpus import (
    numbered_corpus,
    numbers,
    random_sizes,
    spoken_corpus,
)
from tests.objectives.small import FIRST, LAST, VOCABULARY, random_documents
from tests.refusals import refuses

CLS, SEP = 4, 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    sizes = random_sizes(60, (1, 12), (2, 25))
    return numbered_corpus(tmp_path_factory.mktemp("data"), sizes)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    documents = random_documents(60, sentences=(2, 8))
    return spoken_corpus(tmp_path_factory.mktemp("spoken"), documents)


def permuted(
    corpus: Corpus, seq_len: int = 64, batch_size: int = 4, learning: bool = True, **options: Any
) -> Permuted:
    o = PermutedOptions(**options)
    return Permuted(corpus, o, seq_len=seq_len, batch_size=batch_size, seed=5, learning=learning)


def tiny(seq_len: int = 64, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"width": 32, "heads": 2, "head_size": 16, "ffn_size": 64, "layers": 2}
    common = {"vocab_size": VOCABULARY, "dropout": 0.0, "reuse_len": seq_len // 2, "mem_len": 48}
    return create("xlnet-base", **common | sizes | {"two_directions": True} | changes)


# -- who sees whom


def seen_by(order: np.ndarray, targets: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """What the model makes of an order: keys seen by content rows, and by those that guess."""
    model = tiny(two_directions=False)
    tokens, places = torch.zeros(1, len(order), dtype=torch.long), torch.tensor([targets])
    x = torch.zeros(1, len(order) + len(targets), 32)
    view = model.view(x, 0, len(order), None, None, torch.from_numpy(order)[None], places)
    table = view.pattern.dense(1, x.size(1), tokens.size(1), x.device)[0].numpy()
    return table[: len(order)], table[len(order) :]


def test_the_golden_example() -> None:
    """a b c d SEP CLS; b and d are guessed; the random order is 4 2 0 3 1 5."""
    masked = np.array([0, 1, 0, 1, 0, 0], bool)
    functional = np.array([0, 0, 0, 0, 1, 1], bool)
    index = np.array([4, 2, 0, 3, 1, 5])
    blocked = np.array(
        [[0, 1, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 1, 1],
         [0, 0, 0, 1, 0, 1], [0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0]]
    )  # fmt: skip
    empty = np.empty(0, bool)
    for order in (
        orders(masked, functional, index, np.empty(0, np.int64)),
        orders(masked, functional, np.empty(0, np.int64), index),
    ):
        content, guessing = seen_by(order, [1, 3])
        assert (guessing == (blocked[[1, 3]] == 0)).all()
        assert (content == ((blocked == 0) | np.eye(6, dtype=bool))).all()
    assert orders(masked, functional, index, empty.astype(np.int64)).tolist() == [
        -1,
        2,
        -1,
        3,
        1,
        5,
    ]


def local_perm(masked: np.ndarray, functional: np.ndarray, index: np.ndarray) -> np.ndarray:
    """_local_perm: what each row may not see, in the stream of the guessing rows."""
    free = ~masked & ~functional
    rank = np.where(free, -1, index)
    target = ~free & ~functional
    own = np.where(target, rank, rank + 1)
    return (own[:, None] <= rank[None]) & ~free[None]


@settings(max_examples=60, deadline=None)
@given(half=st.integers(1, 24), blocks=st.integers(1, 3), key=st.integers(0, 10**6))
def test_orders_say_what_the_authors_masks_say(half: int, blocks: int, key: int) -> None:
    half *= blocks
    draw, empty = keyed(key), np.zeros((half, half), bool)
    masked, functional = draw.random((2, 2 * half)) < [[0.3], [0.1]]
    index = [
        np.concatenate(
            [draw.permutation(half // blocks) + b * half // blocks for b in range(blocks)]
        )
        for _ in range(2)
    ]
    parts = [
        local_perm(masked[h], functional[h], i)
        for h, i in zip((slice(half), slice(half, None)), index, strict=True)
    ]
    blocked = np.block([[parts[0], ~empty], [empty, parts[1]]])
    targets = np.flatnonzero(masked & ~functional).tolist()
    content, guessing = seen_by(orders(masked, functional, *index), targets)
    assert (guessing == ~blocked[targets]).all()
    assert (content == (~blocked | np.eye(2 * half, dtype=bool))).all()


def test_smaller_blocks_are_permuted_alike_one_after_the_other(corpus: Corpus) -> None:
    objective = permuted(corpus, block=8)
    order = objective.shuffle(keyed(1))
    blocks = order.reshape(4, 8)
    assert (np.sort(blocks, 1) == np.arange(32).reshape(4, 8)).all()
    assert (blocks - blocks[:1] == np.arange(0, 32, 8)[:, None]).all()


# -- which tokens are guessed


def sampled(
    starts: list[bool], goal: int, draw: np.random.Generator, o: PermutedOptions, words: bool
) -> np.ndarray:
    """_sample_mask, line by line; with `words` its test of the end looks at the end."""
    size, mask, count, at = len(starts), np.zeros(len(starts), bool), 0, 0
    chances = 1 / np.arange(1, o.longest + 1)
    limits = np.cumsum(chances)
    widths = [int((u * limits[-1] >= limits).sum()) + 1 for u in draw.random(goal)]
    shares = draw.random(goal)
    for n, share in zip(widths, shares, strict=True):
        if at >= size or count >= goal:
            break
        n = min(n, goal - count)
        context = n * o.context
        left = int(share * context)
        begin = at + left
        while begin < size and not starts[begin]:
            begin += 1
        if begin >= size:
            break
        end, grams, ends = begin + 1, 1, [begin]
        while end < size:
            if not words or starts[end]:
                ends.append(end)
                grams += 1
                if grams > n:
                    break
            end += 1
        if end >= size:
            break
        if words:  # no more words than there is room for
            end = max(e for e in ends if e - begin <= goal - count)
            if end == begin:
                break
        mask[begin:end] = True
        count += end - begin
        at = end + context - left
    rest = np.flatnonzero(~mask)
    mask[draw.choice(rest, goal - count, replace=False)] = True
    return mask


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 90),
    part=st.floats(0, 1),
    units=st.sampled_from(["pieces", "words"]),
    backward=st.booleans(),
    key=st.integers(0, 10**6),
)
def test_spans_are_the_authors(
    spoken: Corpus, size: int, part: float, units: str, backward: bool, key: int
) -> None:
    objective = permuted(spoken, units=units)
    tokens = keyed(key, "text").integers(FIRST, LAST, size)
    goal = round(part * size)
    marks = objective.spans(tokens, goal, keyed(key), backward)
    assert marks.sum() == goal
    natural = tokens[::-1] if backward else tokens
    starts = [bool(t % 3) for t in natural]
    expected = sampled(starts, goal, keyed(key), objective.options, units == "words")
    assert (marks == (expected[::-1] if backward else expected)).all()


def runs(chosen: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    return [(int(b), int(e)) for b, e in edges.reshape(-1, 2)]


def test_spans_of_n_come_with_a_chance_of_one_in_n(spoken: Corpus) -> None:
    tokens = np.full(60_000, FIRST)  # each begins a word
    chosen = permuted(spoken).spans(tokens, 8000, keyed(3), False)
    spans = runs(chosen)
    widths = np.bincount([e - b for b, e in spans], minlength=6)[1:]
    assert len(widths) == 5 and widths.sum() > 3000
    p = np.array([0.438, 0.219, 0.146, 0.109, 0.088])
    total = widths.sum()
    assert (np.abs(widths - total * p) < 4.5 * np.sqrt(total * p * (1 - p))).all()
    gaps = np.mean([b - e for (_, e), (b, _) in pairwise(spans)])
    assert gaps == pytest.approx(6 * (p @ np.arange(1, 6)), rel=0.05)  # n · 6 a span, on average


def test_whole_words_and_word_beginnings(spoken: Corpus) -> None:
    """Every third id goes on with the word before it."""
    tokens = keyed(1).integers(FIRST, LAST, 4000)
    for units in ("pieces", "words"):
        chosen = permuted(spoken, units=units).spans(tokens, 380, keyed(2), False)
        spans = runs(chosen)
        assert all(tokens[b] % 3 for b, _ in spans)
        cut = [e for _, e in spans if tokens[e] % 3 == 0]
        assert (len(cut) == 0) == (units == "words")
        if units == "words":
            words = [int((tokens[b:e] % 3 > 0).sum()) for b, e in spans]
            assert max(words) == 5 and np.mean(words) == pytest.approx(2.19, abs=0.4)


@pytest.mark.parametrize(("seq_len", "goals"), [(512, (43, 42)), (64, (5, 5)), (128, (11, 10))])
def test_a_sixth_is_guessed(spoken: Corpus, seq_len: int, goals: tuple[int, int]) -> None:
    objective, seen = permuted(spoken, seq_len, batch_size=2), set()
    for index in range(min(len(objective), 20)):
        sample = objective.sample(0, index)
        assert sample["targets"].shape == (sum(goals),)
        targets = sample["targets"][sample["shares"] > 0]
        assert not np.isin(sample["tokens"][targets], [CLS, SEP]).any()
        first = int((targets < seq_len // 2).sum())
        assert first == goals[0] and len(targets) - first <= goals[1]
        seen.add(len(targets))
    assert max(seen) == sum(goals)


# -- the text of a sample


def split_by_loops(
    sentence: np.ndarray, begin: int, total: int, draw: np.random.Generator
) -> tuple[tuple[int, int], tuple[int, int]]:
    """_split_a_and_b, line by line; `sentence` numbers the sentence of each token."""
    size, end, cuts = len(sentence), begin + 1, []
    while end < size:
        if sentence[end] != sentence[end - 1]:
            if end - begin >= total:
                break
            cuts.append(end)
        end += 1
    middle = int(draw.choice(np.array(cuts))) if cuts else end
    if not cuts or draw.random() < 0.5:
        b_size = max(1, total - (middle - begin))
        b_begin = int(draw.integers(0, size - 1 - b_size, endpoint=True))
        b_end = b_begin + b_size
        while b_begin > 0 and sentence[b_begin - 1] == sentence[b_begin]:
            b_begin -= 1
        while b_end < size - 1 and sentence[b_end - 1] == sentence[b_end]:
            b_end += 1
    else:
        b_begin, b_end = middle, end
    while middle - begin + b_end - b_begin > total:
        if middle - begin > b_end - b_begin:
            middle -= 1
        else:
            b_end -= 1
    return (begin, middle), (b_begin, b_end)


@settings(max_examples=60, deadline=None)
@given(
    number=st.integers(0, 1), backward=st.booleans(), place=st.floats(0, 1),
    total=st.integers(2, 61), key=st.integers(0, 10**6),
)  # fmt: skip
def test_a_and_b_are_the_authors(
    corpus: Corpus, number: int, backward: bool, place: float, total: int, key: int
) -> None:
    objective = permuted(corpus)
    stream = Stream(objective, number, backward=backward)
    places = np.arange(number * objective.size, (number + 1) * objective.size)
    sentence = np.searchsorted(corpus.sentences, places, "right")
    sentence = sentence[::-1] if backward else sentence
    begin = int(place * (objective.size - total - 1))
    expected = split_by_loops(sentence, begin, total, keyed(key))
    assert split(stream, begin, total, keyed(key)) == expected


def taken_apart(sample: Sample, half: int) -> tuple[list[int], list[int], list[int]]:
    """Where the running text, A and B stand in the corpus."""
    first, second = sample["tokens"][:half], sample["tokens"][half:]
    (a_end, b_end), *_ = np.split(np.flatnonzero(second == SEP), [2])
    assert second[-1] == CLS and b_end == half - 2
    segments = [0] * (half + a_end + 1) + [1] * (b_end - a_end) + [2]
    assert sample["segments"].tolist() == segments
    return numbers(first), numbers(second[:a_end]), numbers(second[a_end + 1 : b_end])


@pytest.mark.parametrize("both", [True, False])
def test_streams_go_on_half_a_length_at_a_time(corpus: Corpus, both: bool) -> None:
    objective = permuted(corpus, 64, batch_size=4, two_directions=both)
    streams = 2 if both else 4
    size = len(corpus) // streams
    assert len(objective) == 4 * ((size - 64) // 32 + 1)
    flat = np.asarray(corpus.read(0, len(corpus)))
    continued = 0
    for index in range(len(objective)):
        step, row = divmod(index, 4)
        sample = objective.sample(1, index)
        number, backward = (row // 2, row % 2 == 1) if both else (row, False)
        text = flat[number * size : (number + 1) * size]
        text = text[::-1] if backward else text
        assert (sample["tokens"][:32] == text[step * 32 : step * 32 + 32]).all()
        _, a, b = taken_apart(sample, 32)
        assert len(a) + len(b) == 29 and a and b
        at = step * 32 + 32
        assert (np.array(a) + FIRST == text[at : at + len(a)]).all()
        after = text[at + len(a) : at + len(a) + len(b)]
        continued += bool((np.array(b) + FIRST == after).all())
    assert 0.25 < continued / len(objective) < 0.6  # a cut A goes not on


@pytest.mark.parametrize("both", [True, False])
def test_without_pairs_every_token_is_read_once(corpus: Corpus, both: bool) -> None:
    objective = permuted(corpus, 64, batch_size=4, two_directions=both, pairs=False)
    flat = np.asarray(corpus.read(0, len(corpus)))
    size = len(corpus) // (2 if both else 4)
    assert len(objective) == 4 * (size // 64)
    for row in range(4):
        number, backward = (row // 2, row % 2 == 1) if both else (row, False)
        text = flat[number * size : (number + 1) * size]
        samples = [objective.sample(1, index) for index in range(row, len(objective), 4)]
        read = np.concatenate([sample["tokens"] for sample in samples])
        assert (read == (text[::-1] if backward else text)[: len(read)]).all()
        for sample in samples:
            assert not sample["segments"].any()
            expected = sample["tokens"][sample["targets"]]
            assert sample["shares"].all() and (sample["wanted"] == expected).all()
            assert (sample["targets"] < 32).sum() == (sample["targets"] >= 32).sum() == 5


def test_backward_rows_stand_behind_the_forward_ones(corpus: Corpus) -> None:
    objective = permuted(corpus, batch_size=8)
    assert objective.arrange(list(range(8))) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert objective.arrange([2, 3, 6, 7]) == [2, 6, 3, 7]
    assert permuted(corpus, two_directions=False).arrange([1, 2, 3]) == [1, 2, 3]
    assert objective.order(0) is None


@pytest.mark.parametrize("both", [True, False])
def test_without_a_memory_samples_are_shuffled_within_their_direction(
    corpus: Corpus, both: bool
) -> None:
    objective = permuted(corpus, memory=False, two_directions=both)
    order, again = objective.order(0), objective.order(1)
    assert order is not None and again is not None
    assert sorted(order.tolist()) == list(range(len(objective)))
    assert (order != again).any()
    if both:
        assert (order % 2 == np.arange(len(order)) % 2).all()
    assert permuted(corpus, memory=False, learning=False).order(0) is None


def test_a_short_split_is_validated_in_fewer_streams(corpus: Corpus) -> None:
    room = len(corpus) // 64
    for both in (True, False):
        wide = 1 << (2 * room).bit_length()
        objective = permuted(corpus, batch_size=wide, learning=False, two_directions=both)
        assert len(objective) > 0 and objective.batch_size in (wide // 2, wide // 4)
        assert permuted(corpus, batch_size=8, learning=False, two_directions=both).batch_size == 8
        with refuses(InputError, f"{len(corpus):,} tokens", "64"):
            permuted(corpus, batch_size=2 * wide, two_directions=both)
