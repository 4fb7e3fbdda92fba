"""A text as its words and the gaps between them; put together again, they are the exact text.

A word is a run of letters and digits, with apostrophes inside words and points inside numbers.
Chinese is cut by jieba; other scripts without spaces (Japanese, Thai) are not cut, so that a run of
them is moved or left out as a whole: a word is never divided into its characters.
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
Span = tuple[int, int]  # characters from start to end, the end excluded


@dataclass(frozen=True, slots=True)
class WordUnit:
    """A word, or several words that stay together."""

    text: str
    origin: int  # its number in the text; an inserted word has that of the word it was chosen for
    free: bool = True  # whether a synonym may replace it or be chosen for it
    loose: bool = True  # whether it may be moved or left out


@dataclass(frozen=True)
class WordSequence:
    """Units and gaps in turn; a gap stands before the first unit and after the last."""

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
        """Yields the position of each unit in the text."""
        at = len(self.gaps[0])
        for unit, gap in zip(self.units, self.gaps[1:], strict=True):
            yield at, at + len(unit.text)
            at += len(unit.text) + len(gap)

    def replaced(self, words: Mapping[int, str]) -> WordSequence:
        """Returns the text with other words at these places, in the case of the original words."""
        units = list(self.units)
        for place, word in words.items():
            units[place] = replace(units[place], text=in_case(word, units[place].text))
        return WordSequence(tuple(units), self.gaps)

    def swapped(self, first: int, second: int) -> WordSequence:
        """Returns the text with two units swapped; punctuation stays where it is."""
        units, gaps = list(self.units), list(self.gaps)
        units[first], units[second] = units[second], units[first]
        for at in {first, first + 1, second, second + 1} - {0, len(units)}:
            gaps[at] = mended(gaps[at], [units[at - 1]], [units[at]])
        return WordSequence(tuple(units), tuple(gaps))

    def without(self, places: Collection[int]) -> WordSequence:
        """Returns the text without some units. Punctuation stays; white space stays on one side
        only."""
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
        """Returns the text with a unit inserted before the unit at this place."""
        units = (*self.units[:place], unit, *self.units[place:])
        gaps = [*self.gaps[: place + 1], between(unit, self.units[place]), *self.gaps[place + 1 :]]
        gaps[place] = mended(gaps[place], units[max(0, place - 1) : place], [unit])
        return WordSequence(units, tuple(gaps))


def split(text: str, language: str = "", fixed: Sequence[Span] = ()) -> WordSequence:
    """Splits a text into words. The spans in `fixed` (sorted, without overlaps) stay unchanged,
    with the words they touch."""
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
    """Returns a text as one unit that is not cut."""
    return WordSequence((WordUnit(text, 0, free=False, loose=False),), ("", ""))


def word_spans(text: str, language: str = "") -> list[Span]:
    spans: list[Span] = []
    for match in RUN.finditer(text):
        start, end = match.span()
        while end < len(text) and unicodedata.category(text[end]).startswith("M"):
            end += 1  # a combining mark on the last letter
        if spans and joined(text, spans[-1][1], start):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    chinese = language == "zh" or (not language and is_chinese(text))
    return list(cut_spans(text, spans, cutter())) if chinese else spans


def is_one_word(text: str, language: str = "") -> bool:
    """Tells whether a text is a single word after cutting."""
    try:
        spans = word_spans(text, language)
    except ConfigError:  # Chinese without jieba; a Chinese text would have been refused
        spans = word_spans(text, "en")
    return spans == [(0, len(text))]


def joined(text: str, end: int, start: int) -> bool:
    """Tells whether the characters between two runs make one word of them."""
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
            "'pip install regard[chinese]', or give texts with spaces between words and choose "
            "--language en"
        ) from None


# -- spaces


def between(before: WordUnit, after: WordUnit) -> str:
    """Returns the gap between two words that were not neighbors before."""
    return "" if is_unspaced(before.text[-1:]) and is_unspaced(after.text[:1]) else " "


def mended(gap: str, before: Sequence[WordUnit], after: Sequence[WordUnit]) -> str:
    """Returns the gap, or a new one if two new neighbors would otherwise grow together."""
    return gap or (between(before[0], after[0]) if before and after else "")


def closed(before: str, after: str, *, first: bool = False, last: bool = False) -> str:
    """Returns the gap that a deleted word leaves, perhaps at the start or the end of a text. What
    joined the word to its neighbor, such as a hyphen, is deleted with it.

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
    """Returns a word in the upper or lower case of another word."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if like[:1].isupper() else word
