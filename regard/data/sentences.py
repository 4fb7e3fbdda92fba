"""Splits text into sentences, in English-like scripts and in scripts without spaces. Nothing is
lost: concatenated, the sentences are the text.

A sentence keeps the white space in front of it. So a sentence boundary is also a boundary of the
tokenizer, and text encoded sentence by sentence has the same ids as the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 8192  # characters; a longer sentence is cut, at white space if there is any
AHEAD = 256  # characters of lookahead behind an end

CLOSING = "\"'”’»)\\]」』）】》〉"
STOP = ".!?…"
FULL = "。！？｡．।॥؟۔።။"  # these end a sentence without a space behind them

# The pattern begins with one set of characters, to which the search jumps; lookbehinds then ask
# which it was. Every repetition is bounded or possessive, so a line of a million dots is not slow.
END = re.compile(
    rf"[{STOP}{FULL}\n](?:"
    rf"(?<=\n)(?:[^\S\n]*+\n)++"
    rf"|(?<=[{STOP}])[{STOP}]{{0,8}}+[{CLOSING}]{{0,8}}+(?=\s++(?![a-z])\S)"
    rf"|(?<=[{FULL}])[{FULL}]{{0,8}}+[{CLOSING}]{{0,8}}+)"
)
NOT_ALONE = frozenset(
    """mr mrs ms dr prof st vs e.g i.e eg ie cf no nos fig figs eq sec ch vol pp ed eds jr sr inc
    ltd co corp gen col lt capt sgt rep sen gov hon rev messrs mme approx dept al viz ca jan feb
    mar apr jun jul aug sep sept oct nov dec""".split()
)
SPACE = re.compile(r"(?<=\S)(?=\s)")


class SentenceSplitter:
    """Splits a document that arrives in pieces."""

    def __init__(self) -> None:
        self.rest = ""

    def feed(self, text: str, *, ends: bool) -> list[str]:
        """Returns the sentences that are complete by now; all of them if the document ends here."""
        text = self.rest + text
        whole: list[str] = []
        start = 0
        last = len(text) if ends else len(text) - AHEAD
        for match in END.finditer(text):
            stop, end = match.span()
            letter = text[stop]
            if letter == "\n":
                end = stop  # line breaks belong to the next sentence
                if end == start or text[start:end].isspace():
                    continue
            elif letter == "." and end == stop + 1 and abbreviated(text, stop):
                continue
            if end > last:
                break
            if end <= start + LONGEST:
                whole.append(text[start:end])
            else:
                whole.extend(bounded(text[start:end]))
            start = end
        self.rest = text[start:]
        if ends or len(self.rest) > LONGEST + AHEAD:
            parts = list(bounded(self.rest))
            self.rest = "" if ends else parts.pop()
            whole.extend(parts)
        return whole


def abbreviated(text: str, stop: int) -> bool:
    """Tells whether a full stop closes an abbreviation or an initial, not a sentence."""
    word = text[max(0, stop - 9) : stop].split()[-1:]
    if not word:
        return False
    bare = word[0].lstrip("(\"'“‘[")
    return (len(bare) == 1 and bare.isalpha() and bare.isupper()) or (
        bare[-2:-1] == "." or bare.lower() in NOT_ALONE
    )


def bounded(text: str) -> Iterator[str]:
    """Yields the text in parts of at most LONGEST characters."""
    start = 0
    while len(text) - start > LONGEST:
        end = start + LONGEST
        for match in SPACE.finditer(text, start + LONGEST // 2, end):
            end = match.start()
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def sentences(text: str) -> list[str]:
    """Returns the sentences of a whole text.

    >>> sentences("Dr. No waits. 他来了。走！")
    ['Dr. No waits.', ' 他来了。', '走！']
    """
    return SentenceSplitter().feed(text, ends=True)
