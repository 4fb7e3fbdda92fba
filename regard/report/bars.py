"""Bars as SVG, in the look of `curves`: numbers without an order, and how far they spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from regard.report import clean
from regard.report.curves import (
    ACROSS,
    RIGHT,
    attribute,
    decades,
    said,
    said_twice,
    share,
    steps_between,
)

ROW, HEAD, FOOT, NUMBER = 28, 32, 26, 76  # pixels: a bar with its gap, title, scale, its number
LETTER = 7.0


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    least: float  # of what the value is the mean of
    most: float
    ink: int = 1


@dataclass(frozen=True)
class Bars:
    title: str
    bars: Sequence[Bar]
    logarithmic: bool = False
    chinese: str = ""  # the title, on a page of two languages

    @property
    def height(self) -> int:
        return HEAD + ROW * len(self.bars) + FOOT


def inline(chart: Bars) -> str:
    """A picture for a page that holds the style of `curves` once."""
    head = (
        f'<svg viewBox="0 0 {ACROSS} {chart.height}" role="img" '
        f'aria-label="{attribute(chart.title)}" preserveAspectRatio="xMidYMid meet">'
    )
    return "\n".join([head, *drawn(chart), "</svg>"])


def drawn(chart: Bars) -> list[str]:
    seen = [bar for bar in chart.bars if math.isfinite(bar.value)]
    logarithmic = chart.logarithmic and all(bar.least > 0 for bar in seen)
    ticks = scale(seen, logarithmic)
    low, high = ticks[0], ticks[-1]
    left = 24 + LETTER * max((len(bar.name) for bar in chart.bars), default=0)
    end = ACROSS - RIGHT - NUMBER

    def x(value: float) -> float:
        return left + min(1.0, max(0.0, share(value, low, high, logarithmic))) * (end - left)

    body = said_twice("c-text c-heading", 'x="16" y="20"', chart.title, chart.chinese)
    foot = HEAD + ROW * len(chart.bars)
    for tick in ticks:
        body.append(
            f'  <line class="c-grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{HEAD}" '
            f'y2="{foot}"/><text class="c-text c-note" x="{x(tick):.1f}" y="{foot + 16}" '
            f'text-anchor="middle">{said(tick)}</text>'
        )
    for i, bar in enumerate(chart.bars):
        y = HEAD + ROW * i
        body.append(
            f'  <text class="c-text" x="{left - 8:.0f}" y="{y + 18}" text-anchor="end">'
            f"{escape(clean(bar.name))}</text>"
        )
        if bar in seen:
            body += one(bar, y, left, x)
        number = f"{bar.value:.4g}" if bar in seen else "–"
        body.append(f'  <text class="c-text" x="{end + 10}" y="{y + 18}">{number}</text>')
    return body


def one(bar: Bar, y: float, left: float, x: Callable[[float], float]) -> list[str]:
    """The bar, and a thin line from the least to the most."""
    least, middle, most = x(bar.least), x(bar.value), x(bar.most)
    tip = escape(f"{clean(bar.name)}: {bar.value:.5g} ({bar.least:.5g} … {bar.most:.5g})")
    return [
        f'  <rect class="c-dot c-{bar.ink}" style="stroke:none" x="{left:.1f}" y="{y + 5}" '
        f'width="{max(1.0, middle - left):.1f}" height="{ROW - 10}" opacity="0.8">'
        f"<title>{tip}</title></rect>",
        f'  <path class="c-text" style="stroke:currentColor" d="M{least:.1f} {y + ROW / 2} '
        f'H{most:.1f}"/>',
    ]


def scale(bars: Sequence[Bar], logarithmic: bool) -> list[float]:
    """Round numbers from 0, or on a logarithmic scale from below the smallest, to the largest."""
    if not bars:
        return [0.0, 1.0]
    high = max(bar.most for bar in bars)
    if logarithmic:
        return decades(min(bar.least for bar in bars) / 2, high)
    return steps_between(min(0.0, *(bar.least for bar in bars)), high)
