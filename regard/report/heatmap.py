"""Attention weights as a picture: SVG for a page, block characters for a terminal.

Both show one matrix: a row asks, a column is looked at; the stronger a cell, the more it is seen.
The scale runs from nothing to the largest weight of the picture, so that long rows stay visible.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from xml.sax.saxutils import escape

from regard.core.errors import InputError
from regard.report import clean

Weights = Sequence[Sequence[float]]

CELL, GAP, FONT = 22, 10, 13  # pixels
LETTER = FONT * 0.62  # how wide a letter is, about; a Chinese one is two
LONGEST = 18  # letters of a label
SHADES = " ░▒▓█"
PLAIN_SHADES = " .:*#"  # for a terminal that knows only ASCII

STYLE = """
    .ground { fill: #ffffff } .frame { fill: none; stroke: #c9ced6 } .cell { fill: #1d4ed8 }
    text { fill: #1f2937; font: 13px system-ui, 'Noto Sans', 'Noto Sans CJK SC', sans-serif }
    .heading { font-size: 15px; font-weight: 600 } .note { fill: #6b7280; font-size: 11px }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #111827 } .frame { stroke: #4b5563 } .cell { fill: #93c5fd }
      text { fill: #e5e7eb } .note { fill: #9ca3af }
    }"""


def heat_map(
    weights: Weights,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "attention",
    *,
    span: tuple[float, float] | None = None,
    note: str = "rows look at columns",
) -> str:
    """An SVG file: weights [rows][columns], with the weight of each cell as its tooltip.

    `span` says which values are no ink and full ink; from nothing to the largest, unless given.
    """
    check(weights, rows, columns)
    row_labels, column_labels = [label(x) for x in rows], [label(x) for x in columns]
    heading = clean(title)
    left = 2 * GAP + round(LETTER * max((width(x) for x in row_labels), default=0))
    top = 4 * GAP + FONT + round(LETTER * max((width(x) for x in column_labels), default=0))
    right, bottom = left + CELL * len(columns), top + CELL * len(rows)
    across = max(right + 2 * GAP, 2 * GAP + 1.2 * LETTER * width(heading), 240)
    down = bottom + 4 * GAP
    low, most = (0.0, largest(weights)) if span is None else span
    scale = f"strongest = {most:.3g}" if span is None else f"from {low:.3g} to {most:.3g}"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across:.0f}" height="{down:.0f}" '
        f'viewBox="0 0 {across:.0f} {down:.0f}" role="img" aria-labelledby="title">',
        f'  <title id="title">{escape(heading)}</title>',
        f"  <style>{STYLE}\n  </style>",
        '  <rect class="ground" width="100%" height="100%"/>',
        f'  <text class="heading" x="{GAP}" y="{GAP + 15}">{escape(heading)}</text>',
    ]
    for i, name in enumerate(row_labels):
        y = top + CELL * (i + 0.5) + FONT * 0.35
        body.append(
            f'  <text x="{left - GAP:.1f}" y="{y:.1f}" text-anchor="end">{escape(name)}</text>'
        )
    for j, name in enumerate(column_labels):
        x = left + CELL * (j + 0.5) + FONT * 0.35
        body.append(
            f'  <text transform="translate({x:.1f} {top - GAP:.1f}) rotate(-90)">'
            f"{escape(name)}</text>"
        )
    for i, row in enumerate(weights):
        for j, value in enumerate(row):
            ink = share(value - low, most - low)
            body.append(cell(left + CELL * j, top + CELL * i, value, ink, rows[i], columns[j]))
    body += [
        f'  <rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{CELL * len(columns)}" '
        f'height="{CELL * len(rows)}"/>',
        f'  <text class="note" x="{GAP}" y="{down - GAP}">{escape(clean(note))} · {scale}</text>',
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def cell(x: float, y: float, value: float, ink: float, row: str, column: str) -> str:
    """One square: one ink over whatever the ground is, so it serves light and dark."""
    tip = escape(f"{clean(row)} → {clean(column)}: {value:.4f}")
    return (
        f'  <rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{CELL}" height="{CELL}" '
        f'fill-opacity="{ink:.3f}"><title>{tip}</title></rect>'
    )


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
