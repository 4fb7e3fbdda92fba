"""Replaces words by words that a masked language model predicts in their place.

| rule | which words | from what they are predicted | which candidate |
| --- | --- | --- | --- |
| some | max(1, int(share · words)) at random | the text without the word | by its probability |
| tinybert | each with a chance of 0.4 | that, and the text behind it once more | any |

Of the `top` candidates (15 in TinyBERT), only whole words are used. Stop words are never replaced.
By TinyBERT's rule (Jiao et al. 2020, algorithm 1, and its code), a word of several pieces is
replaced by a neighbor of its GloVe vector. There are no GloVe vectors here, so such a word stays as
it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.augment.eda import changes, is_stop
from regard.data.augment.words import WordSequence
from regard.data.words import WordStarts, is_inner
from regard.decoding.decode_state import at_rest, right_padded
from regard.decoding.filling import MaskedFiller as Filler
from regard.decoding.filling import filler_for
from regard.formats.directory import Checkpoint

RULES = ("some", "tinybert")
TOP = 15
CHANCE = 0.4
ROWS = 32  # rows of a batch; always the same ones, so that the result does not depend on the caller


class MaskedRow(NamedTuple):
    """The input that predicts one word: token ids, segment ids, and the position of the mask."""

    ids: list[int]
    segments: list[int]
    place: int


class WordCandidates(NamedTuple):
    words: list[str]
    chances: np.ndarray


NONE = WordCandidates([], np.empty(0))


class MaskedAugmenter:
    """Replaces words of a sentence by predictions of a model."""

    def __init__(self, loaded: Checkpoint, *, top: int = TOP, rule: str = "some") -> None:
        if rule not in RULES:
            raise UnknownName("rule", rule, RULES)
        if top < 1:
            raise ConfigError(f"top is {top}; at least 1 candidate is needed")
        filler = filler_for(loaded, top, "each", 1)
        if not isinstance(filler, Filler):
            raise InputError(
                f"a {type(loaded.model).__name__} fills blanks one token after the other; "
                "replacing words needs a masked model: bert, longformer, xlnet"
            )
        self.filler, self.model, self.top, self.rule = filler, filler.model, top, rule
        masks = self.model.fills == "masked" and "order" in self.model.accepts
        if rule == "tinybert" and not masks:
            name = type(self.model).__name__
            raise ConfigError(f"TinyBERT's rule is for bert, and this is a {name}; choose 'some'")
        known = WordStarts(filler.words, self.model.config.vocab_size)
        self.whole = known.opens | known.closes
        self.whole[[i for i in filler.special.ids() if i < len(self.whole)]] = False
        self.limit: int = getattr(self.model.config, "context", None) or 2**62

    def __call__(
        self, sentence: WordSequence, share: float, dice: np.random.Generator
    ) -> WordSequence:
        places = [i for i, u in enumerate(sentence.units) if u.free and not is_stop(u.text)]
        if not places:
            return sentence
        if self.rule == "tinybert":
            return self.each(sentence, places, dice)
        count = min(changes(sentence, share), len(places))
        chosen = sorted(places[i] for i in dice.permutation(len(places))[:count])
        new = {}
        candidates = self.candidates(sentence, chosen)
        for place, (words, chances) in zip(chosen, candidates, strict=True):
            own = sentence.units[place].text.lower()
            others = [i for i, word in enumerate(words) if word.lower() != own]
            if chances[others].sum() > 0:  # rounding may give the old word all probability
                shares = chances[others] / chances[others].sum()
                new[place] = words[others[int(dice.choice(len(others), p=shares))]]
        return sentence.replaced(new)

    def each(
        self, sentence: WordSequence, places: Sequence[int], dice: np.random.Generator
    ) -> WordSequence:
        """Applies TinyBERT's rule. It draws first which words to replace, so that only these are
        predicted."""
        plain = [i for i in places if is_plain(sentence.units[i].text)]
        chosen = [
            i for i, draw in zip(plain, dice.random(len(plain)), strict=True) if draw < CHANCE
        ]
        candidates = self.candidates(sentence, chosen)
        new = {
            place: words[int(dice.integers(len(words)))]
            for place, (words, _) in zip(chosen, candidates, strict=True)
            if words
        }
        return sentence.replaced(new)

    # -- candidates

    def candidates(self, sentence: WordSequence, places: Sequence[int]) -> list[WordCandidates]:
        """Returns, for each of these words, the words that might replace it, the likeliest
        first."""
        every = enumerate(self.rows(sentence, places))
        rows = [(number, row) for number, row in every if row is not None]
        candidates = [NONE] * len(places)
        with torch.inference_mode(), at_rest(self.model):
            for at in range(0, len(rows), ROWS):
                part = rows[at : at + ROWS]
                for (number, _), one in zip(part, self.guess([r for _, r in part]), strict=True):
                    candidates[number] = one
        return candidates

    def rows(self, sentence: WordSequence, places: Sequence[int]) -> list[MaskedRow | None]:
        """Returns the input that predicts each of these words, or None for a word that cannot be
        predicted."""
        encoded = self.filler.words.ready.encode(str(sentence), add_special_tokens=False)
        spans = list(sentence.places())
        rows = []
        for start, end in (spans[place] for place in places):
            pieces = [i for i, (a, b) in enumerate(encoded.offsets) if a < end and start < b]
            rows.append(self.row(encoded.ids, pieces))
        return rows

    def row(self, ids: list[int], pieces: list[int]) -> MaskedRow | None:
        """Replaces all pieces of a word by one mask. If the text is too long, the tokens farthest
        from the mask are dropped. Returns None if the word cannot be predicted."""
        if not pieces:
            return None
        if self.rule == "tinybert":
            return self.twice(ids, pieces)
        first, last = pieces[0], pieces[-1]
        place, masked = first, [*ids[:first], self.filler.mask, *ids[last + 1 :]]
        room = self.limit - 2  # without the special tokens around it
        if len(masked) > room:
            start = min(max(0, place - room // 2), len(masked) - room)
            place, masked = place - start, masked[start : start + room]
        framed = self.filler.frame(masked)
        return MaskedRow(framed, [0] * len(framed), place + int(framed[: len(masked)] != masked))

    def twice(self, ids: list[int], pieces: list[int]) -> MaskedRow | None:
        """Builds [CLS] the masked text [SEP] the text [SEP], cut at the model's last position."""
        if len(pieces) > 1 or pieces[0] + 1 >= self.limit:
            return None
        special = self.filler.special
        cls, sep, place = special.need("cls"), special.need("sep"), pieces[0]
        first = [cls, *ids[:place], self.filler.mask, *ids[place + 1 :], sep]
        second = [*ids, sep]
        segments = [0] * len(first) + [1] * len(second)
        return MaskedRow([*first, *second][: self.limit], segments[: self.limit], place + 1)

    def guess(self, rows: list[MaskedRow]) -> list[WordCandidates]:
        ids = [row.ids for row in rows]
        tokens, attention_mask = right_padded(ids, self.model.device, self.filler.special.pad or 0)
        hidden = self.hidden(rows, tokens, attention_mask)
        best = self.filler.best(hidden)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [self.words_of(tokens, chances) for tokens, chances in pairs]

    def hidden(
        self, rows: list[MaskedRow], tokens: Tensor, attention_mask: Tensor | None
    ) -> Tensor:
        if self.rule == "some":
            return self.filler.rows(tokens, attention_mask, [[row.place] for row in rows])
        segments = right_padded([row.segments for row in rows], self.model.device)[0]
        states: Tensor = self.model(tokens, attention_mask, segments)
        return states[torch.arange(len(rows)), torch.tensor([row.place for row in rows])]

    def words_of(self, ids: Sequence[int], chances: Sequence[float]) -> WordCandidates:
        """Keeps only whole words: no pieces, special tokens or punctuation."""
        words = [
            (word, chance)
            for token, chance in zip(ids, chances, strict=True)
            if token < len(self.whole) and self.whole[token]
            if is_word(word := self.filler.say(token))
        ]
        return WordCandidates([w for w, _ in words], np.array([c for _, c in words], np.float64))


def is_word(text: str) -> bool:
    return any(map(str.isalpha, text)) and all(map(is_inner, text))


def is_plain(word: str) -> bool:
    """Returns whether TinyBERT's code replaces the word: only words of the letters a to z."""
    return word.isascii() and word.isalpha()
