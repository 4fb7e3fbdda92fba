"""Sentences in both languages, for pages that people read."""

from __future__ import annotations

from typing import NamedTuple


class Bilingual(NamedTuple):
    """A sentence in both languages."""

    en: str
    zh: str
