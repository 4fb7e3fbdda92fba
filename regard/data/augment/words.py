"""A text as its words and what stands between them: put together again, nothing is lost.

A word is a run of letters and digits, with apostrophes inside of words and points inside of
numbers. Chinese is cut by jieba; other scripts without spaces (Japanese, Thai) are not cut, so that
a run of them is moved or left out as a whole: a word is never divided into its characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.core.errors import ConfigError, UnknownName
from regard.data.words import chinese_cutter, is_unspaced

LANGUAGES = {"": "by the text", "zh": "Chinese, by jieba", "en": "at spaces and punctuation alone"}
RUN = re.compile(r"[^\W_]+")
HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff]")
JOINING = frozenset("-\u2010\u2011–/_&+")  # hyphens and the like
OPENING = ("", *"([{“‘«「『（【《〈")

Cut = Callable[[str], Any]
Span = tuple[int, int]  # of characters, the end not included


@dataclass(frozen=True, slots=True)
class WordUnit:
    """A word, or several that stay together."""

    text: str
    origin: int  # its number in the text; of an inserted word that of the word it was chosen for
    free: bool = True  # may another word take its place, or be chosen for it?
    loose: bool = True  # may it be moved, or left out?


@dataclass(frozen=True)
class WordSequence:
    """Units and gaps in turn: there is a gap before the first unit and behind the last."""

    units: tuple[WordUnit, ...]
    gaps: tuple[str, ...]

    def __str__(self) -> str:
        parts = [self.gaps[0]]
        for unit, gap in zip(self.units, self.gaps[1:], strict=True):
            parts += (unit.text, gap)
        return "".join(parts)

    @property
    def words(self) -> list[str]:
        return [unit.text for unit in self.units]

    def places(self) -> Iterator[Span]:
        """Where each unit stands in the text."""
        at = len(self.gaps[0])
        for unit, gap in zip(self.units, self.gaps[1:], strict=True):
            yield at, at + len(unit.text)
            at += len(unit.text) + len(gap)

    def replaced(self, words: Mapping[int, str]) -> WordSequence:
        """Other words in these places, in the case of those that they replace."""
        units = list(self.units)
        for place, word in words.items():
            units[place] = replace(units[place], text=in_case(word, units[place].text))
        return WordSequence(tuple(units), self.gaps)

    def swapped(self, first: int, second: int) -> WordSequence:
        """Punctuation stays where it is."""
        units, gaps = list(self.units), list(self.gaps)
        units[first], units[second] = units[second], units[first]
        for at in {first, first + 1, second, second + 1} - {0, len(units)}:
            gaps[at] = mended(gaps[at], [units[at - 1]], [units[at]])
        return WordSequence(tuple(units), tuple(gaps))

    def without(self, places: Collection[int]) -> WordSequence:
        """Punctuation stays; of the white space on two sides that of one does."""
        units: list[WordUnit] = []
        gaps = [self.gaps[0]]
        for place, unit in enumerate(self.units):
            if place in places:
                last = place == len(self.units) - 1
                after = self.gaps[place + 1]
                gaps[-1] = closed(gaps[-1], after, first=not units, last=last)
            else:
                units.append(unit)
                gaps.append(self.gaps[place + 1])
        return WordSequence(tuple(units), tuple(gaps))

    def inserted(self, place: int, unit: WordUnit) -> WordSequence:
        """Before the unit of this place."""
        units = (*self.units[:place], unit, *self.units[place:])
        gaps = [*self.gaps[: place + 1], between(unit, self.units[place]), *self.gaps[place + 1 :]]
        gaps[place] = mended(gaps[place], units[max(0, place - 1) : place], [unit])
        return WordSequence(units, tuple(gaps))


def split(text: str, language: str = "", fixed: Sequence[Span] = ()) -> WordSequence:
    """The words of a text. What is `fixed` (in its order, without overlaps) stays as it is, with
    the words that it touches.
    """
    if language not in LANGUAGES:
        raise UnknownName("language", language, [name for name in LANGUAGES if name])
    spans = [(span, True) for span in word_spans(text, language)]
    for start, end in fixed:
        touched = [s for s, _ in spans if s[0] < end and start < s[1]]
        whole = (min([start, *(s[0] for s in touched)]), max([end, *(s[1] for s in touched)]))
        spans = [each for each in spans if each[0] not in touched]
        spans.append((whole, False))
    spans.sort()
    edges = [0, *(edge for span, _ in spans for edge in span), len(text)]
    gaps = tuple(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    units = tuple(
        WordUnit(text[start:end], number, free, free)
        for number, ((start, end), free) in enumerate(spans)
    )
    return WordSequence(units, gaps)


def whole(text: str) -> WordSequence:
    """A text that is not cut."""
    return WordSequence((WordUnit(text, 0, free=False, loose=False),), ("", ""))


def word_spans(text: str, language: str = "") -> list[Span]:
    spans: list[Span] = []
    for match in RUN.finditer(text):
        start, end = match.span()
        while end < len(text) and unicodedata.category(text[end]).startswith("M"):
            end += 1  # a mark upon the last letter
        if spans and joined(text, spans[-1][1], start):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    chinese = language == "zh" or (not language and is_chinese(text))
    return list(cut_spans(text, spans, cutter())) if chinese else spans


def is_one_word(text: str, language: str = "") -> bool:
    """Is it a single word of a text that is cut?"""
    try:
        spans = word_spans(text, language)
    except ConfigError:  # Chinese without jieba: a text of it would have been refused
        spans = word_spans(text, "en")
    return spans == [(0, len(text))]


def joined(text: str, end: int, start: int) -> bool:
    """Is what stands between two runs a part of one word?"""
    between, before, after = text[end:start], text[end - 1], text[start]
    if between in ("'", "’"):
        return before.isalpha() and after.isalpha()
    if between in (".", ","):
        return before.isdecimal() and after.isdecimal()
    return not between


def is_chinese(text: str) -> bool:
    return HAN.search(text) is not None and KANA.search(text) is None


def cut_spans(text: str, spans: Sequence[Span], cut: Cut) -> Iterator[Span]:
    for start, end in spans:
        if HAN.search(text, start, end) is None:
            yield start, end
            continue
        for word in cut(text[start:end]):
            yield start, start + len(word)
            start += len(word)


def cutter() -> Cut:
    try:
        return chinese_cutter()
    except ConfigError:
        raise ConfigError(
            "the words of Chinese are found with jieba, which is not installed; run "
            "'pip install regard[chinese]', or give texts whose words stand between spaces and "
            "say --language en"
        ) from None


# -- spaces


def between(before: WordUnit, after: WordUnit) -> str:
    """What stands between two words that had nothing to do with each other."""
    return "" if is_unspaced(before.text[-1:]) and is_unspaced(after.text[:1]) else " "


def mended(gap: str, before: Sequence[WordUnit], after: Sequence[WordUnit]) -> str:
    """Two words that were not beside each other before do not grow together."""
    return gap or (between(before[0], after[0]) if before and after else "")


def closed(before: str, after: str, *, first: bool = False, last: bool = False) -> str:
    """The gap that a word leaves behind, perhaps as the first of a text, or the last. What joined
    the word to its neighbor, as a hyphen does, goes with it.

    >>> closed(" ", ", "), closed(" (", ") "), closed(" ", " "), closed(' "', " "), closed("-", " ")
    (', ', ' () ', ' ', ' "', ' ')
    """
    if joins(before):
        return before if joins(after) else after
    if joins(after):
        return before
    if before[-1:].isspace() and after[:1] not in OPENING:
        return before.rstrip() + after
    if before[-1:].isspace() and not after and last:
        return before.rstrip()
    if after[:1].isspace() and (first or any(map(str.isspace, before))):
        return before + after.lstrip()
    return before + after


def joins(gap: str) -> bool:
    return bool(gap) and all(character in JOINING for character in gap)


# -- case


def in_case(word: str, like: str) -> str:
    """A word written in small or capital letters as another is."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if like[:1].isupper() else word
