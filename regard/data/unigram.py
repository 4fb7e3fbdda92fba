"""Trains the unigram language model of subwords (Kudo 2018, "Subword Regularization", sec. 3.2).

It repeats expectation maximization over all segmentations of the words, and then drops the pieces
whose loss matters least. All sums run in one fixed order. (The trainer of the `tokenizers` library
sums in the order of a hash that changes from run to run, and counts a piece once per distinct word,
however often the word occurs.)

Shapes: the words stand one after the other in T characters, the longest first. `inside[n - 1][t]`
is the piece of n characters that begins at character t. There are W words and N pieces; two more
ids follow, for "no such piece" and for a character outside of the alphabet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import NamedTuple
from unicodedata import category

import numpy as np

LONGEST = 16  # characters in the longest piece
CHARACTERS = 1_500_000  # characters of the words to train on, the most frequent words first
SEEDS = 10  # initial pieces for each piece of the result
SHRINK = 0.75  # the share of pieces that a pruning keeps
ROUNDS = 2  # rounds of expectation and maximization between two prunings
UNKNOWN = -10.0  # added to the score of the rarest piece: the score of an unknown character
FEWEST = 0.5  # the least number of expected occurrences
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

MARK = "▁"
KIND = {"L": 0, "M": 0, "N": 1}  # kinds by Unicode's categories; all others are punctuation

Floats = np.ndarray  # float64
Integers = np.ndarray


def learn(counts: Counter[str], size: int) -> list[tuple[str, float]]:
    """Returns at most `size` pieces with their log probabilities, the most probable first."""
    words = WordCounts(counts)
    pieces = SubwordPieces(words, size)
    while True:
        for _ in range(ROUNDS):
            expected = words.expected(pieces)
            pieces.score = likelihood(expected)
        if len(pieces) <= size:
            break
        pieces.prune(words, expected, max(size, int(len(pieces) * SHRINK)))
    spans = zip(pieces.start.tolist(), pieces.length.tolist(), strict=True)
    texts = [words.text[start : start + length] for start, length in spans]
    scored = zip(texts, np.round(pieces.score, 6).tolist(), strict=True)
    return sorted(scored, key=lambda piece: (-piece[1], piece[0]))


def likelihood(expected: Floats) -> Floats:
    """Returns log probabilities; the digamma function makes rare pieces rarer (a sparse prior)."""
    counts = np.maximum(expected, FEWEST)
    score: Floats = digamma(counts) - digamma(counts.sum(keepdims=True))
    return score


def digamma(x: Floats) -> Floats:
    shift = np.zeros_like(x)
    for step in range(6):
        shift -= 1 / (x + step)
    x = x + 6
    square = 1 / (x * x)
    result: Floats = (
        shift + np.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252))
    )
    return result


class WordCounts:
    """The most frequent words with their counts, and the pieces that stand inside them."""

    def __init__(self, counts: Counter[str]) -> None:
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        ends = np.cumsum([len(word) for word in ranked])
        many = max(1, int(np.searchsorted(ends, CHARACTERS, "right")))
        ranked, rare = ranked[:many], ranked[many:]
        known = {letter for word in ranked for letter in word}
        missing = {letter for word in rare for letter in word} - known
        ranked += sorted(missing)  # characters that only rare words have
        ranked.sort(key=len, reverse=True)
        self.text = "".join(ranked)
        self.length = np.array([len(word) for word in ranked])
        self.start = np.cumsum(self.length) - self.length
        self.count = np.array([max(1, counts[word]) for word in ranked], np.float64)
        self.word = np.repeat(np.arange(len(ranked)), self.length)  # the word of each character
        self.left = (self.start + self.length)[self.word] - np.arange(len(self.text))
        self.inside: list[Integers] = []

    def windows(self) -> Iterator[tuple[Integers, Integers]]:
        """Yields for each length where windows of it begin, and a number that identifies each
        content."""
        codes = np.frombuffer(self.text.encode("utf-32-le"), "<u4").astype(np.uint64)
        keys = np.zeros(len(codes), np.uint64)
        for length in range(1, LONGEST + 1):
            places = np.flatnonzero(self.left >= length)
            if not len(places):
                break
            keys[places] = keys[places] * MULTIPLIER + codes[places + length - 1] + np.uint64(1)
            yield places, keys[places]

    def mixed(self) -> Integers:
        """Returns how often the kind of character has changed up to each character. A piece has one
        kind, as in SentencePiece, except for the mark in front of a word."""
        letters = {letter: KIND.get(category(letter)[0], 2) for letter in set(self.text)}
        kinds = np.array([letters[letter] for letter in self.text])
        marks = np.flatnonzero((np.array(list(self.text)) == MARK) & (self.left > 1))
        kinds[marks] = kinds[marks + 1]
        return np.cumsum(np.diff(kinds, prepend=kinds[:1]) != 0)

    def expected(self, pieces: SubwordPieces) -> Floats:
        """Returns how often each piece occurs, over all segmentations weighted by their
        probability."""
        chance = pieces.chances()
        before, after, total = self.passes(chance)
        share = np.divide(self.count, total, out=np.zeros_like(total), where=total > 0)
        place = np.arange(len(self.text)) + self.word
        start = before[place] * share[self.word]
        expected = np.zeros(len(pieces) + 2)
        for n, ids in enumerate(self.inside, 1):
            weight = start * chance[n - 1][ids] * after[place + n]
            expected += np.bincount(ids, weight, len(pieces) + 2)
        return expected[: len(pieces)]

    def passes(self, chance: list[Floats]) -> tuple[Floats, Floats, Floats]:
        """Returns the forward and the backward sums at each gap between characters, and each word's
        total."""
        gaps = self.start + np.arange(len(self.start))  # a word of n characters has n + 1 gaps
        size = len(self.text) + len(self.start) + LONGEST
        before, after = np.zeros(size), np.zeros(size)
        before[gaps] = after[gaps + self.length] = 1
        longest = int(self.length[0])
        for end in range(1, longest + 1):
            many = int(np.searchsorted(-self.length, -end, "right"))
            gap, place = gaps[:many] + end, self.start[:many] + end
            total = np.zeros(many)
            for n in range(1, min(len(self.inside), end) + 1):
                total += before[gap - n] * chance[n - 1][self.inside[n - 1][place - n]]
            before[gap] = total
        for begin in range(longest - 1, -1, -1):
            many = int(np.searchsorted(-self.length, -begin, "left"))
            gap, place = gaps[:many] + begin, self.start[:many] + begin
            total = np.zeros(many)
            for n in range(1, len(self.inside) + 1):
                total += after[gap + n] * chance[n - 1][self.inside[n - 1][place]]
            after[gap] = total
        return before, after, before[gaps + self.length]


class SubwordPieces:
    """The current pieces, as slices of the words. Single characters are never dropped."""

    def __init__(self, words: WordCounts, size: int) -> None:
        first = list(seeds(words))
        start, length, weight = (np.concatenate(column) for column in zip(*first, strict=True))
        letters = len(first[0][0])
        others = letters + best(weight[letters:] * length[letters:], SEEDS * size)
        chosen = np.concatenate([best(weight[:letters], size * 3 // 4), others])
        self.start, self.length = start[chosen], length[chosen]
        self.score = np.log(weight[chosen] / weight[chosen].sum())
        words.inside = [
            self.placed(words, n, *window) for n, window in enumerate(words.windows(), 1)
        ]

    def __len__(self) -> int:
        return len(self.start)

    def placed(self, words: WordCounts, n: int, places: Integers, keys: Integers) -> Integers:
        """Returns the pieces of n characters at each place."""
        nothing, unknown = len(self), len(self) + 1
        ids = np.full(len(words.text), nothing, np.int32)
        if n == 1:
            ids[:] = unknown
        mine = np.flatnonzero(self.length == n)
        if len(mine):
            of_place = np.zeros(len(words.text), np.uint64)
            of_place[places] = keys
            known = of_place[self.start[mine]]
            order = np.argsort(known)
            near = np.minimum(np.searchsorted(known[order], keys), len(mine) - 1)
            same = known[order][near] == keys
            ids[places[same]] = mine[order][near[same]]
        return ids

    def chances(self) -> list[Floats]:
        """Returns probabilities by length, scaled so that a long word neither overflows nor
        underflows."""
        chance = np.exp(self.score)
        level = -(chance * self.score).sum() / (chance * self.length).sum()
        scores = np.concatenate([self.score, [-np.inf, self.score.min() + UNKNOWN]])
        return [np.exp(scores + level * n) for n in range(1, LONGEST + 1)]

    def prune(self, words: WordCounts, expected: Floats, keep: int) -> None:
        """Drops the pieces whose removal raises the loss of the text least."""
        loss = expected * (self.score - self.instead(words))
        loss[self.length == 1] = np.inf
        left = np.sort(best(loss, keep))
        new = np.full(len(self) + 2, len(left), np.int32)
        new[left] = np.arange(len(left))
        new[-1] = len(left) + 1
        words.inside = [new[ids] for ids in words.inside]
        self.start, self.length, self.score = self.start[left], self.length[left], self.score[left]

    def instead(self, words: WordCounts) -> Floats:
        """Returns the score of the best way to write each piece with two or more others."""
        scores = np.concatenate([self.score, [-np.inf, self.score.min() + UNKNOWN]])
        reached = np.full((len(self), LONGEST + 1), -np.inf)
        reached[:, 0] = 0
        for end in range(1, LONGEST + 1):
            for n in range(1, min(end, len(words.inside)) + 1):
                rows = np.flatnonzero(self.length >= end if n < end else self.length > end)
                step = scores[words.inside[n - 1][self.start[rows] + end - n]]
                reached[rows, end] = np.maximum(reached[rows, end], reached[rows, end - n] + step)
        whole: Floats = reached[np.arange(len(self)), self.length]
        return whole


class SubwordWindows(NamedTuple):
    """All windows of one length."""

    places: Integers  # where the windows begin
    which: Integers  # the number of each window's content
    first: Integers  # where each content occurs first
    counts: Floats  # how often each content occurs


def seeds(words: WordCounts) -> Iterator[tuple[Integers, Integers, Floats]]:
    """Yields the initial pieces, length by length: their places, their length, their count.

    Longer pieces must occur more often. A piece that is as frequent as a longer one around it never
    stands alone.
    """
    mixed = words.mixed()

    def counted(places: Integers, keys: Integers) -> SubwordWindows:
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.bincount(which, words.count[words.word[places]])
        return SubwordWindows(places, which, places[first], counts)

    every = (counted(*window) for window in words.windows())
    for n, (own, longer) in enumerate(pairwise(chain(every, [None])), 1):
        assert own is not None
        keep = own.counts >= (1 if n == 1 else max(2, n // 2))
        keep &= mixed[own.first] == mixed[own.first + n - 1]
        if n > 1 and longer is not None:
            pure = mixed[longer.places] == mixed[longer.places + n]
            places, count = longer.places[pure], longer.counts[longer.which[pure]]
            number = np.full(len(words.text), -1)
            number[own.places] = own.which
            for side in (number[places], number[places + 1]):
                keep[side[own.counts[side] == count]] = False
        yield own.first[keep], np.full(int(keep.sum()), n), own.counts[keep]


def best(values: Floats, many: int) -> Integers:
    """Returns the indices of the largest values; equal values keep their order."""
    return np.argsort(-values, kind="stable")[:many]
