"""The n-gram: hand-computed fractions, KenLM's numbers, a slow twin, laws of probability."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction as F
from itertools import pairwise, product
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from regard.core.errors import ConfigError, FormatError, InputError
from regard.evaluation.ngram import Ngram, discounts
from tests.refusals import refuses

END, A, B, C, D = range(5)
TEXT = [[A, B], [A, B, C], [C, C, C], [A, B, C]]


def joined(documents: list[list[int]], end: int = END) -> np.ndarray:
    return np.array([token for document in documents for token in [*document, end]], np.int64)


def trained(documents: list[list[int]], order: int, vocab_size: int = 5) -> Ngram:
    return Ngram.train(joined(documents), order, vocab_size, END)


def expect(probabilities: np.ndarray, fractions: list[F]) -> None:
    assert sum(fractions) == 1
    np.testing.assert_allclose(probabilities, [float(f) for f in fractions], rtol=1e-14)


# Worked out by hand. A distribution is written in the order: end, a, b, c, d (d is never seen).


def test_order_1_by_hand() -> None:
    """a a a b b c: counts end 1, a 3, b 2, c 1, so n1 = 2, n2 = n3 = 1, n4 = 0 and Y = 1/2.

    D = 1/2, 1/2, 3; of 7 tokens γ = (2·1/2 + 1/2 + 3) / 7 = 9/14, a fifth of it for each token.
    """
    uniform = F(9, 14) / 5
    once, twice = F(1, 2) / 7 + uniform, F(3, 2) / 7 + uniform
    model = trained([[A, A, A, B, B, C]], 1)
    expect(model.probabilities([]), [once, uniform, twice, once, uniform])
    expect(model.probabilities([C, A]), [once, uniform, twice, once, uniform])


def test_order_1_by_hand_with_fallback() -> None:
    """TEXT: counts end 4, a 3, b 3, c 5: nothing is seen once, so D = 1/2, 1, 3/2; γ = 4·3/2/15."""
    uniform = F(6, 15) / 5
    seen = [(count - F(3, 2)) / 15 + uniform for count in (4, 3, 3, 5)]
    expect(trained(TEXT, 1).probabilities([]), [*seen, uniform])


# Different tokens before, in TEXT: a 1 (the mark), b 1, c 3 (the mark, b, c), end 2 (b, c).
# n1 = 2, n2 = 1, n3 = 1, n4 = 0: Y = 1/2, D = 1/2, 1/2, 3; γ = (2·1/2 + 1/2 + 3) / 7 = 9/14.
UNIGRAM = [F(3, 2) / 7 + F(9, 70), F(1, 5), F(1, 5), F(9, 70), F(9, 70)]


def test_order_2_by_hand() -> None:
    """Bigrams of TEXT, _ being the mark: _a 3, _c 1, ab 3, b_ 1, bc 2, c_ 3, cc 2.

    n1 = 2, n2 = 2, n3 = 3, n4 = 0: Y = 1/3, D = 1/3, 1/2, 3.
    """
    model = trained(TEXT, 2)
    end, a, b, c, d = UNIGRAM
    g = (F(1, 3) + F(1, 2)) / 3  # after b: end once, c twice
    expect(
        model.probabilities([A, B]),
        [F(2, 3) / 3 + g * end, g * a, g * b, F(3, 2) / 3 + g * c, g * d],
    )
    g = (3 + F(1, 3)) / 4  # first in a document: a three times, c once
    expect(model.probabilities([]), [g * end, g * a, g * b, F(2, 3) / 4 + g * c, g * d])
    expect(model.probabilities([D]), UNIGRAM)  # d has no followers: nothing is taken or given


def test_order_3_by_hand() -> None:
    """Trigrams of TEXT: _ab 3, ab_ 1, abc 2, bc_ 2, _cc 1, ccc 1, cc_ 1: D = 1/2, 5/4, 3.

    Below, by what stands before them: ab 1, b_ 1, bc 1, c_ 2 (b, c), cc 2 (the mark, c); those
    that begin with the mark by plain counts: _a 3, _c 1. Again n = 4, 2, 1, 0, so the same D.
    """
    model = trained(TEXT, 3)
    end, a, b, c, d = UNIGRAM
    g = F(1, 2)  # after b: end once, c once
    after_b = [F(1, 4) + g * end, g * a, g * b, F(1, 4) + g * c, g * d]
    g = (F(1, 2) + F(5, 4)) / 3  # after a b: end once, c twice
    own = [F(1, 2) / 3, 0, 0, F(3, 4) / 3, 0]
    after_a_b = [share + g * lower for share, lower in zip(own, after_b, strict=True)]
    expect(model.probabilities([A, B]), after_a_b)
    assert after_a_b[C] == F(13, 30)
    expect(model.probabilities([D, B]), after_b)  # "d b" was never seen
    g = (3 + F(1, 2)) / 4  # first in a document there is no trigram
    first = [g * end, g * a, g * b, F(1, 2) / 4 + g * c, g * d]
    expect(model.probabilities([]), first)
    expect(model.probabilities([A, B, END]), first)  # after an end a document begins
    after_a = F(1, 2) + F(1, 2) * b  # ab 1 of 1; all of the count of _ab goes to it, for D(3) = 3
    probabilities = np.exp(-model.surprisal(np.array([A, B, C])))
    np.testing.assert_allclose(probabilities, [float(p) for p in (first[A], after_a, F(13, 30))])


def test_lower_orders_are_models_of_their_own() -> None:
    model = trained(TEXT, 3)
    ids = joined([[A, B, D], [C], []])
    for order in (1, 2, 3):
        alone = trained(TEXT, order)
        np.testing.assert_array_equal(model.surprisals(ids)[order - 1], alone.surprisal(ids))
        for context in ([], [A, B], [D]):
            shares = model.probabilities(context, order)
            np.testing.assert_array_equal(shares, alone.probabilities(context))


def test_kenlm_gives_the_same() -> None:
    """`lmplz -o 3 --discount_fallback`, then `query`: log10 of each token. KenLM counts in 32 bits.

    Its vocabulary has one token besides those of the text: the unknown, here fish.
    """
    text = ["the cat sat", "the cat ran", "a dog sat on the cat"]
    words = ["</s>", *dict.fromkeys(" ".join(text).split()), "fish"]
    read = [[words.index(word) for word in line.split()] for line in text]
    model = trained(read, 3, len(words))
    queries = [[words.index(word) for word in line.split()] for line in ("the cat sat on a dog",)]
    surprisals = model.surprisal(joined([*queries, [words.index("dog"), words.index("fish")]]))
    kenlm = """-0.39189455 -0.10900087 -0.5434262 -0.81520927 -1.5522997 -0.25487056 -1.7264035
    -1.2512697 -1.4253734 -1.1243434""".split()
    np.testing.assert_allclose(surprisals / -math.log(10), [float(p) for p in kenlm], rtol=1e-6)


# Discounts


def numbers(*counts_of_counts: int) -> np.ndarray:
    """Counts of which so many are 1, 2, 3, …"""
    return np.repeat(np.arange(1, len(counts_of_counts) + 1), counts_of_counts)


def test_discounts_by_hand() -> None:
    """Y = 10/18; D = 1 - 2Y·4/10, 2 - 3Y·2/4, 3 - 4Y·1/2."""
    amounts, fallback = discounts(numbers(10, 4, 2, 1, 7))
    np.testing.assert_allclose(amounts, [0, 5 / 9, 7 / 6, 17 / 9], rtol=1e-15)
    assert not fallback


@pytest.mark.parametrize(
    "counts",
    [
        numbers(),
        numbers(0, 4, 2, 1),
        numbers(4, 0, 2, 1),
        numbers(4, 2, 0, 1),
        numbers(4, 2, 3, 9),  # D3 = 3 - 4·(1/2)·9/3 < 0
        numbers(2, 1, 4, 1),  # D2 = 2 - 3·(1/2)·4 < 0
        numbers(6, 3, 4, 1),  # D2 = 2 - 3·(1/2)·4/3 = 0: would leave nothing for the unseen
    ],
    ids="empty n1=0 n2=0 n3=0 D3<0 D2<0 D2=0".split(),
)
def test_discounts_fall_back(counts: np.ndarray) -> None:
    amounts, fallback = discounts(counts)
    assert fallback
    assert amounts.tolist() == [0, 0.5, 1, 1.5]


def test_no_fourfold_count_is_no_reason_to_fall_back() -> None:
    amounts, fallback = discounts(numbers(4, 2, 1, 0, 3))
    assert (amounts.tolist(), fallback) == ([0, 0.5, 1.25, 3], False)


# A slow twin


class Slow:
    """The same definitions, by dictionaries and fractions, one n-gram at a time."""

    def __init__(self, documents: list[list[int]], order: int, vocab_size: int) -> None:
        self.order, self.vocabulary = order, vocab_size
        seen: dict[int, Counter[tuple[int, ...]]] = {n: Counter() for n in range(1, order + 1)}
        for document in documents:
            marked = [END, *document, END]
            for j, n in product(range(1, len(marked)), seen):
                if n <= j + 1:
                    seen[n][tuple(marked[j - n + 1 : j + 1])] += 1
        self.counts = {order: dict(seen[order])}
        for n in range(1, order):
            self.counts[n] = {}
            for gram, plain in seen[n].items():
                before = {longer[0] for longer in seen[n + 1] if longer[1:] == gram}
                self.counts[n][gram] = len(before) if before else plain
        self.taken = {n: self.discount(list(counts.values())) for n, counts in self.counts.items()}

    @staticmethod
    def discount(counts: list[int]) -> list[F]:
        n1, n2, n3, n4 = (counts.count(i) for i in (1, 2, 3, 4))
        if n1 * n2 * n3:
            y = F(n1, n1 + 2 * n2)
            amounts = [1 - 2 * y * F(n2, n1), 2 - 3 * y * F(n3, n2), 3 - 4 * y * F(n4, n3)]
            if all(0 < d <= i for i, d in enumerate(amounts, 1)):
                return [F(0), *amounts]
        return [F(0), F(1, 2), F(1), F(3, 2)]

    def probability(self, token: int, context: tuple[int, ...]) -> F:
        """The context is marked, and not longer than order - 1."""
        n = len(context) + 1
        shorter = self.probability(token, context[1:]) if context else F(1, self.vocabulary)
        after = {g[-1]: count for g, count in self.counts[n].items() if g[:-1] == context}
        if not after:
            return shorter
        discounted = {w: self.taken[n][min(count, 3)] for w, count in after.items()}
        rest = after.get(token, 0) - discounted.get(token, F(0))
        return (rest + sum(discounted.values()) * shorter) / sum(after.values())

    def document(self, document: list[int]) -> list[F]:
        marked = [END, *document, END]
        return [
            self.probability(token, tuple(marked[max(0, j - self.order + 1) : j]))
            for j, token in enumerate(marked[1:], 1)
        ]


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, list[list[int]], list[list[int]]]:
    """An order, a vocabulary, documents to count and documents to score (empty ones too)."""
    order, vocabulary = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    documents = st.lists(
        st.lists(st.integers(1, vocabulary - 1), max_size=8), min_size=1, max_size=6
    )
    return order, vocabulary, draw(documents), draw(documents)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_equals_the_slow_twin(case: tuple[int, int, list[list[int]], list[list[int]]]) -> None:
    order, vocab_size, text, others = case
    slow = Slow(text, order, vocab_size)
    expected = [float(p) for document in others for p in slow.document(document)]
    surprisals = trained(text, order, vocab_size).surprisal(joined(others))
    assert surprisals.dtype == np.float64
    np.testing.assert_allclose(np.exp(-surprisals), expected, rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(cases(), st.data())
def test_probabilities_are_a_distribution(
    case: tuple[int, int, list[list[int]], list[list[int]]], data: st.DataObject
) -> None:
    """After seen and unseen contexts, and the same as what `surprisal` says of each token."""
    order, vocab_size, text, _ = case
    model = trained(text, order, vocab_size)
    whole = joined(text).tolist()
    start = data.draw(st.integers(0, len(whole)))
    seen = whole[start : data.draw(st.integers(start, len(whole)))]
    unseen = data.draw(st.lists(st.integers(0, vocab_size - 1), max_size=7))
    for context in (seen, unseen):
        shares = model.probabilities(context)
        assert shares.shape == (vocab_size,)
        assert (shares > 0).all()
        assert shares.sum() == pytest.approx(1, abs=1e-12)
        alone = [model.surprisal(np.array([w]), tuple(context))[0] for w in range(vocab_size)]
        np.testing.assert_allclose(np.exp(np.negative(alone)), shares, rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(cases(), st.integers(0, 50))
def test_a_text_in_two_parts(
    case: tuple[int, int, list[list[int]], list[list[int]]], cut: int
) -> None:
    """The last order - 1 tokens are all the context that matters."""
    order, vocab_size, text, others = case
    model, ids = trained(text, order, vocab_size), joined(others)
    cut = min(cut, len(ids))
    parts = [model.surprisals(ids[:cut])]
    parts.append(model.surprisals(ids[cut:], ids[max(0, cut - order + 1) : cut]))
    np.testing.assert_array_equal(np.concatenate(parts, 1), model.surprisals(ids))


# Real text


def real_text() -> tuple[np.ndarray, np.ndarray]:
    """Bytes (0 ends a document) of Python's own help: training and held-out documents."""
    pages = [text.encode() for _, text in sorted(topics.items())]
    train = joined([list(page) for i, page in enumerate(pages) if i % 8])
    return train[:80_000], joined([list(page) for page in pages[::8]])[:20_000]


def test_better_than_add_one_on_held_out_text() -> None:
    train, unseen = real_text()
    nats = Ngram.train(train, 5, 256, END).surprisals(unseen).mean(1)

    def add_one(order: int) -> float:
        marked, queries = [END, *train.tolist()], [END, *unseen.tolist()]
        grams, contexts = (
            Counter(tuple(marked[j - n + 1 : j + 1]) for j in range(n - 1, len(marked)))
            for n in (order, order - 1)
        )
        queried = [tuple(queries[j - order + 1 : j + 1]) for j in range(order - 1, len(queries))]
        costs = [-math.log((grams[g] + 1) / (contexts[g[:-1]] + 256)) for g in queried]
        return sum(costs) / len(costs)

    assert nats[-1] < 0.9 * min(add_one(2), add_one(3), add_one(5))
    assert all(higher < lower for lower, higher in pairwise(nats))


def test_training_text_is_less_surprising() -> None:
    train, unseen = real_text()
    model = Ngram.train(train, 4, 256, END)
    assert model.surprisal(train).mean() < model.surprisal(unseen).mean()
    assert not any(level.top.fallback or level.below.fallback for level in model.levels[1:])


# Edges


@pytest.mark.parametrize("text", [[[]], [[A]], [[], [B], []]], ids=str)
def test_an_order_larger_than_the_text(text: list[list[int]]) -> None:
    model = trained(text, 9)
    slow = Slow(text, 9, 5)
    queries = [[A, B, C, D, A, B, C, D, A, B], []]
    expected = [float(p) for document in queries for p in slow.document(document)]
    np.testing.assert_allclose(np.exp(-model.surprisal(joined(queries))), expected, rtol=1e-12)


def test_nothing_to_score() -> None:
    assert trained(TEXT, 3).surprisals(np.empty(0, np.int64)).shape == (3, 0)


@pytest.mark.parametrize("order", [0, -1, 17])
def test_orders_that_are_none(order: int) -> None:
    with refuses(ConfigError, f"order is {order};"):
        trained(TEXT, order)


@pytest.mark.parametrize(
    ("ask", "error", "named"),
    [
        (lambda _: Ngram.train(np.empty(0, np.int64), 3, 5, END), InputError, ["0 tokens"]),
        (lambda _: trained([[7]], 2), InputError, ["from 0 to 7", "5 tokens"]),
        (lambda model: model.surprisal(np.array([1, 5])), InputError, ["from 1 to 5", "tokenizer"]),
        (lambda model: model.probabilities([-1]), InputError, ["from -1 to 0", "tokenizer"]),
        (lambda model: model.probabilities([], 3), ConfigError, ["order is 3", "1 to 2"]),
    ],
)
def test_refusals(ask: Callable[[Ngram], Any], error: type[Exception], named: list[str]) -> None:
    with refuses(error, *named):
        ask(trained(TEXT, 2))


# Files


def test_saved_and_loaded(tmp_path: Path) -> None:
    train, unseen = real_text()
    model = Ngram.train(train, 4, 256, END)
    model.save(tmp_path / "n.safetensors")
    again = Ngram.load(tmp_path / "n.safetensors")
    np.testing.assert_array_equal(again.surprisals(unseen), model.surprisals(unseen))
    assert (again.order, again.vocab_size, again.end) == (4, 256, END)
    assert (again.tokens, again.seconds, again.nbytes) == (80_000, model.seconds, model.nbytes)
    assert [file.name for file in tmp_path.iterdir()] == ["n.safetensors"]


def test_files_that_are_no_model(tmp_path: Path) -> None:
    file = tmp_path / "n.safetensors"
    with refuses(FormatError, file, "no file"):
        Ngram.load(file)
    save_file({"x": np.zeros(2)}, file)
    with refuses(FormatError, file, "regard-ngram-1"):
        Ngram.load(file)
    trained(TEXT, 3).save(file)
    arrays = load_file(file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    with refuses(FormatError, file, "damaged"):
        Ngram.load(file)
    del arrays["2.plain"]
    size = int.from_bytes(whole[:8], "little")
    save_file(arrays, file, json.loads(whole[8 : 8 + size])["__metadata__"])
    with refuses(FormatError, file, "'2.plain'"):
        Ngram.load(file)
