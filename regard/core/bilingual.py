"""Sentences in both languages, for pages and pictures that people read."""

from __future__ import annotations

from typing import NamedTuple

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
