"""What a writer of docs/results.md has to keep to: its section can be said in Chinese."""

from __future__ import annotations

import re

from chinese import in_chinese, untranslated

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?%?")


def numbers(text: str) -> list[str]:
    """Returns the numbers of a text in their order."""
    return NUMBER.findall(text)


def check_chinese(section: str, text: str) -> str:
    """Returns the section in Chinese: no English word is left, and the numbers are the same."""
    chinese = in_chinese(section, text)
    english_left = untranslated(chinese)
    assert not english_left, english_left
    assert numbers(chinese) == numbers(text), chinese
    return chinese
