"""Minimal pairs from plain text: a sentence, and the same sentence with two words swapped.

A model that has learned something of the language finds the original sentence more likely. This
needs no labels and no training. In text without spaces between words (Chinese), tokens are swapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.data.tokenizer import Tokenizer
from regard.decoding.decode_state import at_rest, right_padded
from regard.formats.directory import Checkpoint
from regard.lab.compare.blanks import BlankScorer
from regard.objectives.reading import read_on

SHORTEST, LONGEST = 6, 40  # tokens of a sentence
APART = 4  # the largest distance of two words that are swapped
T = TypeVar("T")


class MinimalPair(NamedTuple):
    """The ids of a sentence and of its changed version, without special tokens around them."""

    real: list[int]
    changed: list[int]


def minimal_pairs(corpus: Corpus, count: int, seed: int, room: int = LONGEST) -> list[MinimalPair]:
    """Returns `count` pairs, or as many as the split has. They depend only on the text and the
    seed. Neither side has more than `room` tokens."""
    tokenizer = corpus.tokenizer
    edges = np.asarray(corpus.sentences)
    sizes = np.diff(edges)
    fit = np.flatnonzero((sizes >= SHORTEST) & (sizes <= min(LONGEST, room)))
    order = fit[keyed(seed, "minimal pairs").permutation(len(fit))]
    pairs: list[MinimalPair] = []
    seen: set[tuple[int, ...]] = set()
    for index in order.tolist():
        if len(pairs) == count:
            break
        ids = [i for i in corpus.read(int(edges[index]), int(edges[index + 1])).tolist()
               if i != corpus.special.end]  # fmt: skip
        if tuple(ids) in seen:
            continue
        seen.add(tuple(ids))
        changed = exchanged(ids, tokenizer, keyed(seed, "exchange", index))
        if changed is not None and len(changed) <= room:
            pairs.append(MinimalPair(ids, changed))
    return pairs


def exchanged(ids: list[int], words: Tokenizer, draw: np.random.Generator) -> list[int] | None:
    """Returns the sentence with two different words swapped; None if that is not possible."""
    text = words.decode(ids)
    parts = text.split(" ")
    if len(parts) < 3:
        return swapped_tokens(ids, draw)
    places = [i for i, word in enumerate(parts) if any(c.isalnum() for c in word)]
    options = [
        (i, j)
        for i in places
        for j in places
        if i < j <= i + APART and bare(parts[i]) != bare(parts[j])
    ]
    if not options:
        return None
    i, j = options[int(draw.integers(len(options)))]
    parts[i], parts[j] = parts[j], parts[i]
    changed: list[int] = words.ready.encode(" ".join(parts), add_special_tokens=False).ids
    again: list[int] = words.ready.encode(text, add_special_tokens=False).ids
    return changed if again == ids and changed != ids else None  # only if decoding is lossless


def bare(word: str) -> str:
    return "".join(c for c in word.lower() if c.isalnum())


def swapped_tokens(ids: list[int], draw: np.random.Generator) -> list[int] | None:
    places = [i for i in range(len(ids) - 1) if ids[i] != ids[i + 1]]
    if not places:
        return None
    i = places[int(draw.integers(len(places)))]
    return [*ids[:i], ids[i + 1], ids[i], *ids[i + 2 :]]


def preferred(
    loaded: Checkpoint, corpus: Corpus, pairs: Sequence[MinimalPair], both_sides: bool
) -> list[bool]:
    """Returns whether the model finds the original sentence of each pair more likely.

    Models that read from left to right give the likelihood of a sentence. Models that see both
    sides only give the likelihood of each token given the others (Salazar et al. 2020), which is
    summed.
    """
    rows = [ids for pair in pairs for ids in pair]
    if both_sides:
        totals = pseudo(BlankScorer(loaded, corpus.special), rows)
    else:
        totals = exact(loaded, corpus, rows)
    return [real > changed for real, changed in zip(totals[::2], totals[1::2], strict=True)]


def pseudo(blanks: BlankScorer, rows: Sequence[list[int]]) -> list[float]:
    blanked = [(i, place) for i, row in enumerate(rows) for place in range(len(row))]
    totals = [0.0] * len(rows)
    for part in chunks(blanked, 4096):
        guesses = blanks([rows[i] for i, _ in part], [place for _, place in part])
        for (i, _), guess in zip(part, guesses, strict=True):
            totals[i] += guess.logprob
    return totals


def exact(loaded: Checkpoint, corpus: Corpus, rows: Sequence[list[int]]) -> list[float]:
    if loaded.model.decoding == "queries":
        return read_in_order(loaded.model, corpus.special.end, rows)
    from regard.evaluation.likelihood import LikelihoodRequest, Scorer

    before = (corpus.special.end,)
    asks = [LikelihoodRequest(before, tuple(row)) for row in rows]
    return [sum(logprobs) for logprobs in Scorer(loaded, None).run(asks)]


def read_in_order(model: Any, end: int, rows: Sequence[list[int]]) -> list[float]:
    """Scores rows with an XLNet that was trained to read from left to right: every row predicts the
    next token, without query rows."""
    totals: list[float] = []
    with torch.inference_mode(), at_rest(model):
        for part in chunks(rows, 64):
            tokens, _ = right_padded([[end, *row[:-1]] for row in part], model.device)
            log_p = model.logits(read_on(model, tokens)).float().log_softmax(-1)
            totals += [
                float(own[range(len(row)), row].sum()) for own, row in zip(log_p, part, strict=True)
            ]
    return totals


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
