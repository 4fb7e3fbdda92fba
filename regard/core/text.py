"""Text that people read: sentences in both languages, and text of unknown origin on a terminal,
where what would steer the terminal is shown, not sent."""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import IO, NamedTuple

from regard.core.errors import UnknownName

LANGUAGES = ("en", "zh")


class Bilingual(NamedTuple):
    """A sentence in both languages."""

    en: str
    zh: str


def spoken(text: Bilingual | str, lang: str) -> str:
    """Returns the text in one language; a plain text is the same in both."""
    if lang not in LANGUAGES:
        raise UnknownName("language", lang, LANGUAGES)
    return str(getattr(text, lang)) if isinstance(text, Bilingual) else text


# Control characters but tab and line feed, and those that turn the direction of writing.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Returns the text with its control characters written out: an escape becomes \x1b."""
    return STEERING.sub(lambda match: ascii(match[0])[1:-1], text)


def shown(text: str, stream: IO[str] | None = None) -> str:
    """Returns the text as it is printed: exact in a file or a pipe, `visible` on a terminal."""
    return visible(text) if (stream or sys.stdout).isatty() else text


def json_visible(text: str) -> str:
    r"""Returns JSON with the same meaning and without control characters: \u009b."""
    return STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def clean(text: str) -> str:
    """Returns the text for a page or a picture: what XML may not hold has a sign in its place."""
    return "".join(sign(character) for character in text)


def sign(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return "↵" if character == "\n" else chr(0x2400 + code)  # ␀ … ␟
    turns = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069  # writing direction
    broken = unicodedata.category(character) in {"Cc", "Cs"} or code & 0xFFFE == 0xFFFE
    return "\N{REPLACEMENT CHARACTER}" if turns or broken else character
