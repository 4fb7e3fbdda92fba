"""Readable labels for tokens: whole characters only, whatever bytes a token holds."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from regard.core.text import clean
from regard.data.tokenizer import Tokenizer
from regard.decoding.pieces import BROKEN

TOGETHER = 8  # tokens that may share characters: one for each byte, and the start of the next
LONGEST = 40  # characters of a label


@dataclass(frozen=True)
class LookToken:
    """One row or column. If several tokens make one character, `part` counts them from 1."""

    text: str
    part: int = 0
    parts: int = 0
    marks: tuple[str, ...] = ()  # special, memory, global, branch, entity, start
    rank: int | None = None  # XLNet: its position in the prediction order, from 1
    place: int = 0  # its number in the text if that differs from its row; negative in a memory

    def marked(self, *names: str) -> LookToken:
        return replace(self, marks=(*self.marks, *names))

    def table(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"t": self.text}
        if self.parts:
            fields["p"] = [self.part, self.parts]
        if self.marks:
            fields["m"] = list(self.marks)
        if self.rank is not None:
            fields["r"] = self.rank
        if self.place:
            fields["n"] = self.place
        return fields


def tokens_of(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[LookToken]:
    """Returns a label for each id, or its number if there is no tokenizer.

    If the bytes of a character are spread over several tokens, each of these tokens is shown as the
    whole character, with the number of its part.
    """
    if tokenizer is None or tokenizer.fast is None:
        return [LookToken(str(i)) for i in ids]
    special = {
        i for i, token in tokenizer.ready.get_added_tokens_decoder().items() if token.special
    }
    tokens: list[LookToken] = []
    place = 0
    while place < len(ids):
        end = whole(tokenizer, ids, place)
        if end == 0:
            tokens.append(LookToken(in_bytes(tokenizer, ids[place])))
        else:
            text = label(tokenizer.decode(list(ids[place:end]), special=True))
            marks = ("special",) if ids[place] in special else ()
            size = end - place
            if size == 1:
                tokens.append(LookToken(text, marks=marks))
            else:
                tokens += [LookToken(text, i + 1, size) for i in range(size)]
        place = max(end, place + 1)
    return tokens


def whole(tokenizer: Tokenizer, ids: Sequence[int], start: int) -> int:
    """Returns the end of the shortest run of tokens from `start` that is whole characters; 0 if
    there is none."""
    for end in range(start + 1, min(start + TOGETHER, len(ids)) + 1):
        if BROKEN not in tokenizer.decode(list(ids[start:end]), special=True):
            return end
    return 0


def label(text: str) -> str:
    """Returns a visible label of limited length, even for a text that is only a space or a new
    line."""
    if text.isspace():
        text = "".join("⏎" if c in "\n\r" else "⇥" if c == "\t" else "␣" for c in text)
    text = clean(text.strip()) or "∅"
    if all(unicodedata.category(c)[0] in "CM" for c in text):  # a joiner or an accent alone
        text = " ".join(f"U+{ord(c):04X}" for c in text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def in_bytes(tokenizer: Tokenizer, token: int) -> str:
    """Returns the bytes of a token that is no whole character, as hexadecimal numbers."""
    piece = tokenizer.tokens([token])[0]
    table = byte_letters()
    if piece and all(letter in table for letter in piece) and not piece.startswith("<0x"):
        return " ".join(f"{table[letter]:02X}" for letter in piece)
    return label(piece.replace(BROKEN, "?"))


@cache
def byte_letters() -> dict[str, int]:
    """Returns the characters that GPT-2's tokenizer writes bytes with: a printable byte stands for
    itself, the others are the characters from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in set(seen)]
    table = {chr(byte): byte for byte in seen}
    return table | {chr(256 + i): byte for i, byte in enumerate(hidden)}
