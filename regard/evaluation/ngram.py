"""The n-gram model with modified Kneser–Ney smoothing (Chen & Goodman 1998, TR-10-98, section 3 and
eq. 26).

With the context h of w, and h' the same context without its first token,

    p(w | h) = (a(hw) - D(a(hw))) / Σ_v a(hv)  +  γ(h) p(w | h'),

where γ(h) is the mass that the discounts D took away. The unigram backs off to the uniform
distribution, so every token of the vocabulary is possible. a is the count at the highest order, and
below it the number of different tokens seen before hw.

Before the start of a document there is no context. As in KenLM, a begin-of-sentence token stands
there, which is read but never predicted: n-grams that begin with it keep their plain counts at
every order, and it has no unigram count. Here this token is the end token of the previous document.
Its two roles cannot be confused: as a context it is always the begin-of-sentence token, as a
prediction always the end.

Every array of n-grams has one entry more than there are n-grams: an id of -1 ("never seen") reads
that entry, and finds a count of 0 and a weight γ of 1.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from regard.core.errors import ConfigError, FormatError, InputError
from regard.formats.weights import write_weights

FORMAT = "regard-ngram-1"
FALLBACK = (0.5, 1.0, 1.5)  # KenLM's discounts
NEVER = np.iinfo(np.int64).max  # a key that is larger than every real key
MOST_ORDERS = 16
MOST_TOKENS = 2**31 - 1  # ids of n-grams are 32-bit numbers

Report = Callable[[str], None]


def discounts(counts: np.ndarray) -> tuple[np.ndarray, bool]:
    """Returns the discounts of the counts 0, 1, 2, and 3 or more, and whether they are the
    fallback.

    Eq. 26 divides by the numbers of n-grams seen once, twice, three times. If one of them is zero
    (small or artificial text), or a discount is not within 0 < D ≤ its count, all three discounts
    of the order are KenLM's fallback: half of each count. KenLM accepts a discount of zero, but
    then a context whose followers all keep their counts makes every other token impossible.
    """
    n1, n2, n3, n4 = (int(n) for n in np.bincount(np.minimum(counts, 5), minlength=6)[1:5])
    if n1 and n2 and n3:
        y = n1 / (n1 + 2 * n2)
        estimates = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        if all(0 < discount <= count for count, discount in enumerate(estimates, 1)):
            return np.array([0.0, *estimates]), False
    return np.array([0.0, *FALLBACK]), True


class SmoothedCounts:
    """The counts of one kind (plain or continuation) of one order. G is the number of n-grams, C
    the number of contexts."""

    def __init__(self, counts: np.ndarray, contexts: np.ndarray, number: int) -> None:
        """Takes the counts [G], the context of each n-gram [G], and the number of contexts (C)."""
        self.discounts, self.fallback = discounts(counts)
        discounted = self.discounts[np.minimum(counts, 3)]
        totals = np.bincount(contexts, counts, number + 1)
        self.counts = np.append(counts, 0).astype(np.int32)  # [G + 1]
        self.weights = np.ones(number + 1)  # [C + 1]: γ; 1 if no token ever followed
        np.divide(
            np.bincount(contexts, discounted, number + 1),
            totals,
            out=self.weights,
            where=totals > 0,
        )
        self.totals = np.maximum(totals, 1).astype(np.int64)  # [C + 1]

    def share(self, grams: np.ndarray, contexts: np.ndarray | int) -> np.ndarray:
        """Returns the part of the probability that comes from the counts of this order."""
        counts = self.counts[grams]
        left: np.ndarray = counts - self.discounts[np.minimum(counts, 3)]
        return left / self.totals[contexts]


@dataclass
class NgramOrder:
    """The n-grams of one order: key = id of the context (order - 1) × vocabulary + token."""

    keys: np.ndarray  # [G + 1], increasing; the index of a key is the n-gram's id
    top: SmoothedCounts  # plain counts, used if this order is the highest
    below: SmoothedCounts  # continuation counts, used if it is not

    @classmethod
    def make(
        cls, keys: np.ndarray, plain: np.ndarray, continued: np.ndarray, number: int, size: int
    ) -> NgramOrder:
        contexts = keys // size
        top = SmoothedCounts(plain, contexts, number)
        below = top if continued is plain else SmoothedCounts(continued, contexts, number)
        return cls(np.append(keys, NEVER), top, below)

    def __len__(self) -> int:
        return len(self.keys) - 1

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the ids of n-grams, or -1 for n-grams that were never seen."""
        order = np.argsort(keys)  # sorted keys are found 7 times faster in a large table
        places = np.empty_like(order)
        places[order] = np.searchsorted(self.keys, keys[order])
        return np.where(self.keys[places] == keys, places, -1)

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {"keys": self.keys[:-1], "plain": self.top.counts[:-1]}
        return arrays if self.below is self.top else arrays | {"continued": self.below.counts[:-1]}

    @property
    def nbytes(self) -> int:
        kinds = {id(kind): kind for kind in (self.top, self.below)}.values()
        counted = sum(k.counts.nbytes + k.weights.nbytes + k.totals.nbytes for k in kinds)
        return self.keys.nbytes + counted


class Ngram:
    """An n-gram model together with the models of all lower orders; they share the counts below the
    highest order.

    >>> model = Ngram.train(ids, order=5, vocab_size=8192, end=0)
    >>> model.surprisal(others).sum()  # nats
    """

    def __init__(
        self, levels: list[NgramOrder], vocab_size: int, end: int, tokens: int, seconds: float
    ) -> None:
        """`tokens` is the number of tokens that were counted, `seconds` the time it took."""
        self.levels, self.vocab_size, self.end = levels, vocab_size, end
        self.tokens, self.seconds = tokens, seconds

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self.levels)

    @classmethod
    def train(
        cls, ids: np.ndarray, order: int, vocab_size: int, end: int, report: Report | None = None
    ) -> Ngram:
        """Counts the n-grams of `ids`: documents one after the other, each closed by the end token.

        An n-gram's id is its rank among (id of its first n - 1 tokens, last token), so one sort of
        64-bit keys per order finds all of them.
        """
        if not 1 <= order <= MOST_ORDERS:
            raise ConfigError(f"order is {order}; an n-gram has an order of 1 to {MOST_ORDERS}")
        if not 0 < len(ids) < MOST_TOKENS:
            raise InputError(f"there are {len(ids):,} tokens to count; give 1 to {MOST_TOKENS:,}")
        began = time.perf_counter()
        text, depth = lay_out(checked(ids, vocab_size), end)
        plain = np.bincount(text[1:], minlength=vocab_size)
        keys, number, grams = np.arange(vocab_size), 1, text
        levels = []
        at = np.arange(1, len(text))
        for n in range(2, order + 1):
            if report is not None:
                report(f"counting the {n}-grams of {len(ids):,} tokens")
            at = at[depth[at] >= n - 1]
            starts = grams[at - 1].astype(np.int64)
            longer, last, which, counts = distinct(starts * vocab_size + text[at])
            preceded = np.bincount(grams[at[last]], minlength=len(keys))
            continued = np.where(preceded > 0, preceded, plain)  # 0: it begins a document
            levels.append(NgramOrder.make(keys, plain, continued, number, vocab_size))
            keys, number, plain = longer, len(keys), counts
            grams = np.zeros(len(text), np.int32)
            grams[at] = which
        levels.append(NgramOrder.make(keys, plain, plain, number, vocab_size))
        return cls(levels, vocab_size, end, len(ids), time.perf_counter() - began)

    def follow(self, ids: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns, for each order, the ids of the contexts and n-grams of a text; -1 means never
        seen.

        No n-gram was counted after a context with an end token inside, so no context reaches over
        an end token.
        """
        ids = checked(ids, self.vocab_size)
        contexts = np.zeros(len(ids), np.int64)
        ids_of_orders = []
        for n, level in enumerate(self.levels, 1):
            grams = level.find(np.where(contexts < 0, -1, contexts * self.vocab_size + ids))
            ids_of_orders.append((contexts, grams))
            contexts = np.append(self.end if n == 1 else -1, grams)[:-1]
        return ids_of_orders

    def surprisals(self, ids: np.ndarray, context: np.ndarray | tuple[int, ...] = ()) -> np.ndarray:
        """Returns -ln p of every token under the models of order 1, 2, …: [order, tokens].

        A document begins with the context, which is not scored, and after every end token.
        """
        before = np.asarray(context, np.int64)[max(0, len(context) - self.order + 1) :]
        ids = np.concatenate([before, np.asarray(ids, np.int64)])
        lower = np.full(len(ids), 1 / self.vocab_size)
        nats = np.empty((self.order, len(ids) - len(before)))
        for n, (contexts, grams) in enumerate(self.follow(ids)):
            top, below = self.levels[n].top, self.levels[n].below
            sure = top.share(grams, contexts) + top.weights[contexts] * lower
            nats[n] = -np.log(sure[len(before) :])
            if below is not top:
                lower = below.share(grams, contexts) + below.weights[contexts] * lower
        return nats

    def surprisal(self, ids: np.ndarray, context: np.ndarray | tuple[int, ...] = ()) -> np.ndarray:
        """Returns -ln p of every token in nats, [tokens]; see `surprisals`."""
        nats: np.ndarray = self.surprisals(ids, context)[-1]
        return nats

    def probabilities(
        self, context: np.ndarray | list[int], order: int | None = None
    ) -> np.ndarray:
        """Returns the next-token probabilities [vocab_size] after the start of a document."""
        order = self.order if order is None else order
        if not 1 <= order <= self.order:
            raise ConfigError(f"order is {order}; this model knows the orders 1 to {self.order}")
        text = np.append(np.asarray(context, np.int64), self.end)  # the last token may be any
        chances = np.full(self.vocab_size, 1 / self.vocab_size)
        for n, (contexts, _) in enumerate(self.follow(text)[:order], 1):
            level, last = self.levels[n - 1], int(contexts[-1])
            kind = level.top if n == order else level.below
            chances *= kind.weights[last]
            if last >= 0:
                edges = [last * self.vocab_size, (last + 1) * self.vocab_size]
                first, behind = np.searchsorted(level.keys, edges)
                tokens = level.keys[first:behind] - edges[0]
                chances[tokens] += kind.share(np.arange(first, behind), last)
        return chances

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes keys and counts to one safetensors file. `load` computes the rest from them."""
        path = Path(file)
        arrays = {
            f"{n}.{name}": np.ascontiguousarray(array)
            for n, level in enumerate(self.levels, 1)
            for name, array in level.arrays().items()
        }
        facts = {"order": self.order, "vocab_size": self.vocab_size, "end": self.end}
        about = json.dumps(facts | {"tokens": self.tokens, "seconds": self.seconds})
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        write_weights(tensors, path, {"format": FORMAT, "model": about})

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Ngram:
        if not Path(file).is_file():
            raise FormatError(f"there is no file {file}; give one that Ngram.save wrote")
        try:
            with safe_open(file, "numpy") as opened:
                about = opened.metadata() or {}
                if about.get("format") != FORMAT:
                    raise FormatError(f"{file} has no n-gram of the format {FORMAT}; count again")
                facts = json.loads(about["model"])
                arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            number, levels = 1, []
            for n in range(1, facts["order"] + 1):
                keys, plain = arrays[f"{n}.keys"], arrays[f"{n}.plain"]
                continued = arrays.get(f"{n}.continued", plain)
                check_keys(keys, plain, continued, number * facts["vocab_size"])
                levels.append(NgramOrder.make(keys, plain, continued, number, facts["vocab_size"]))
                number = len(keys)
            known = (facts[name] for name in ("vocab_size", "end", "tokens", "seconds"))
            return cls(levels, *known)
        except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
            raise FormatError(f"{file} is damaged: {error}; count the text again") from None


def check_keys(keys: np.ndarray, plain: np.ndarray, continued: np.ndarray, limit: int) -> None:
    """Raises ValueError for keys and counts that no text has: each key below the limit, increasing,
    with a count."""
    whole = keys.dtype == np.int64 and keys.shape == plain.shape == continued.shape
    if not whole or keys.ndim != 1 or not len(keys) or limit > MOST_TOKENS**2:
        raise ValueError("its arrays do not fit each other")
    if keys[0] < 0 or keys[-1] >= limit or (np.diff(keys) <= 0).any():
        raise ValueError("its keys are not in order")
    if min(plain.min(), continued.min()) < 0:
        raise ValueError("a count is negative")


def checked(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise InputError(
            f"the ids run from {ids.min()} to {ids.max()}, but the vocabulary has {vocab_size:,} "
            f"tokens (0 to {vocab_size - 1}); text and model must share a tokenizer"
        )
    return ids


def lay_out(ids: np.ndarray, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the text with a begin token, and how many tokens (with it) precede each token."""
    text = np.concatenate([[end], ids]).astype(np.int32)
    depth = np.arange(len(text), dtype=np.int32)
    depth[1:] -= np.maximum.accumulate(np.where(text == end, depth, 0))[:-1]
    return text, depth


def distinct(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the sorted distinct keys, one position of each, the rank of the key at every
    position, and the counts."""
    order = np.argsort(keys)
    ranked = keys[order]
    new = np.ones(len(keys), bool)
    new[1:] = ranked[1:] != ranked[:-1]
    starts = np.flatnonzero(new)
    which = np.empty(len(keys), np.int32)
    which[order] = np.cumsum(new, dtype=np.int32) - 1
    return ranked[starts], order[starts], which, np.diff(starts, append=len(keys))
