"""The colors of pages, pictures and notebooks: those that static/base.css names, each for a light
and for a dark ground."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

SHEET = Path(__file__).parent / "static" / "base.css"
NAMED = re.compile(r"--(\w+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")


class Color(NamedTuple):
    light: str
    dark: str

    def __str__(self) -> str:
        """As a style sheet has it."""
        return f"light-dark({self.light}, {self.dark})"


@cache
def palette() -> dict[str, Color]:
    """Colors by name: ground, paper, ink …, and i1, i2 … of lines."""
    sheet = SHEET.read_text(encoding="utf-8")
    return {name: Color(light, dark) for name, light, dark in NAMED.findall(sheet)}
