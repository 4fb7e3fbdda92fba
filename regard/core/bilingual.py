"""The type of sentences in English and Chinese, for pages that people read."""

from __future__ import annotations

from typing import NamedTuple


class Bilingual(NamedTuple):
    """One sentence in English and in Chinese."""

    en: str
    zh: str
