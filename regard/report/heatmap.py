"""Attention weights as a picture for a terminal, in block characters.

A row asks, a column is looked at; the stronger a cell, the more it is seen. The scale runs from
nothing to the largest weight of the picture, so that long rows stay visible.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from regard.core.errors import InputError
from regard.core.text import clean

Weights = Sequence[Sequence[float]]

LONGEST = 18  # letters of a label
SHADES = " ░▒▓█"
PLAIN_SHADES = " .:*#"  # for a terminal that knows only ASCII


def blocks(
    weights: Weights,
    rows: Sequence[str],
    columns: Sequence[str],
    shades: str = SHADES,
    most: float | None = None,
) -> str:
    """Lines for a terminal, as dark as `most` says (the largest weight unless given). Rows and
    columns are numbered, unless their names are numbers already; of a column's the last digit is
    shown. Columns are listed below where they have names that are not those of the rows.
    """
    check(weights, rows, columns)
    names = [label(x) for x in rows]
    margin = max((width(x) for x in names), default=0)
    most = largest(weights) if most is None else most
    step = 2 if len(columns) <= 40 else 1
    digits = len(str(max(len(rows), len(columns))))
    counted = all(map(str.isdecimal, columns))
    alone = counted and all(map(str.isdecimal, rows))
    ends = [x[-1] if counted else str(j % 10) for j, x in enumerate(columns, 1)]
    left = margin + 2 if alone else digits + margin + 3
    lines = [" " * left + "".join(f"{end:>{step}}" for end in ends)]
    for i, row in enumerate(weights):
        shaded = "".join(shade(value, most, shades) * step for value in row)
        name = " " * (margin - width(names[i])) + names[i]
        number = "" if alone else f"{i + 1:>{digits}} "
        lines.append(f"{number}{name}  {shaded}".rstrip())
    if list(rows) != list(columns) and not counted:
        lines.append("columns: " + "  ".join(f"{j} {label(x)}" for j, x in enumerate(columns, 1)))
    return "\n".join(lines)


def shade(value: float, most: float, shades: str) -> str:
    return shades[math.ceil(share(value, most) * (len(shades) - 1) - 0.25)]


def share(value: float, most: float) -> float:
    """Between 0 and 1; what is not a number counts as nothing."""
    return min(max(value / most, 0.0), 1.0) if most > 0 and math.isfinite(value) else 0.0


def largest(weights: Weights) -> float:
    return max((x for row in weights for x in row if math.isfinite(x)), default=0.0)


def check(weights: Weights, rows: Sequence[str], columns: Sequence[str]) -> None:
    if len(weights) != len(rows):
        raise InputError(f"{len(weights)} rows of weights for {len(rows)} row names")
    for i, row in enumerate(weights):
        if len(row) != len(columns):
            raise InputError(f"row {i} has {len(row)} weights for {len(columns)} column names")


def label(text: str) -> str:
    """Short, and visible even where the text is only a space."""
    text = clean(text)
    text = "␣" * len(text) if text.isspace() else text.strip()
    while width(text) > LONGEST:
        text = text.rstrip("…")[:-1] + "…"
    return text


def width(text: str) -> int:
    """How many terminal columns the text takes: accents and joiners none, Chinese letters two."""
    return sum(
        1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
        if unicodedata.category(c) not in {"Mn", "Me", "Cf"}
    )
