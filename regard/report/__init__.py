"""Charts and pictures, made from plain numbers: the one toolkit of all pages."""

from __future__ import annotations

import unicodedata


def clean(text: str) -> str:
    """What neither XML nor a terminal may see, made visible: control and direction characters."""
    return "".join(visible(c) for c in text)


def visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # ␀ … ␟
    turns = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069  # writing direction
    broken = unicodedata.category(character) in {"Cc", "Cs"} or code & 0xFFFE == 0xFFFE
    return "\N{REPLACEMENT CHARACTER}" if turns or broken else character
