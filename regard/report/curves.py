"""Curves as SVG, drawn by hand: lines over steps, readable in light and dark, on paper and phones.

A line that is `faint` lies behind the others and does not decide how high the picture is, so that
the noise of single steps does not flatten what matters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from regard.core.text import Bilingual
from regard.report import clean
from regard.report.charts import LineChart, Point, thin

ACROSS, DOWN = 640, 250  # pixels of a panel
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 52, 34

STYLE = """
    .c-ground { fill: #ffffff } .c-grid { stroke: #e5e7eb; stroke-width: 1 }
    .c-line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
    .c-1 { stroke: #1d4ed8 } .c-2 { stroke: #c2410c } .c-3 { stroke: #047857 }
    .c-4 { stroke: #7e22ce } .c-5 { stroke: #be185d } .c-6 { stroke: #0e7490 }
    .c-7 { stroke: #a16207 } .c-8 { stroke: #4b5563 } .c-faint { stroke-width: 1; opacity: 0.35 }
    .c-dot.c-1 { fill: #1d4ed8 } .c-dot.c-2 { fill: #c2410c } .c-dot.c-3 { fill: #047857 }
    .c-dot.c-4 { fill: #7e22ce } .c-dot.c-5 { fill: #be185d } .c-dot.c-6 { fill: #0e7490 }
    .c-dot.c-7 { fill: #a16207 } .c-dot.c-8 { fill: #4b5563 }
    .c-band { stroke-width: 0; opacity: 0.18 }
    .c-text { fill: #1f2937; font: 12px system-ui, 'Noto Sans', 'Noto Sans CJK SC', sans-serif }
    .c-heading { font-size: 14px; font-weight: 600 } .c-note { fill: #6b7280; font-size: 11px }
    @media (prefers-color-scheme: dark) {
      .c-ground { fill: #111827 } .c-grid { stroke: #374151 }
      .c-1 { stroke: #93c5fd } .c-2 { stroke: #fdba74 } .c-3 { stroke: #6ee7b7 }
      .c-4 { stroke: #d8b4fe } .c-5 { stroke: #f9a8d4 } .c-6 { stroke: #67e8f9 }
      .c-7 { stroke: #fde047 } .c-8 { stroke: #9ca3af }
      .c-dot.c-1 { fill: #93c5fd } .c-dot.c-2 { fill: #fdba74 } .c-dot.c-3 { fill: #6ee7b7 }
      .c-dot.c-4 { fill: #d8b4fe } .c-dot.c-5 { fill: #f9a8d4 } .c-dot.c-6 { fill: #67e8f9 }
      .c-dot.c-7 { fill: #fde047 } .c-dot.c-8 { fill: #9ca3af }
      .c-text { fill: #e5e7eb } .c-note { fill: #9ca3af }
    }"""


@dataclass(frozen=True)
class CurveLine:
    name: str
    points: Sequence[Point]
    ink: int = 1  # 1 … 8
    faint: bool = False
    dots: bool = False
    band: Sequence[tuple[float, float, float]] = ()  # (x, lowest, highest): the spread around it


@dataclass(frozen=True)
class Panel:
    """One picture: a title and lines over the same steps."""

    title: str
    lines: Sequence[CurveLine]
    zero: bool = False  # the scale begins at 0
    across: str = "step"
    span: tuple[float, float] | None = None  # from where to where; that of the lines unless given
    logarithmic: tuple[bool, bool] = (False, False)  # the scale across, the scale upwards
    marks: Sequence[float] = ()  # places across that get a number; the two ends unless given

    @property
    def known(self) -> list[CurveLine]:
        """Lines that have something to show; a logarithm wants numbers above 0."""
        lines = [
            replace(x, points=self.shown(x.points), band=[b for b in x.band if self.fits(*b)])
            for x in self.lines
        ]
        return [line for line in lines if line.points]

    def shown(self, points: Sequence[Point]) -> list[Point]:
        return [p for p in finite(points) if self.fits(*p)]

    def fits(self, x: float, *ys: float) -> bool:
        across, up = self.logarithmic
        seen = all(map(math.isfinite, ys))
        return seen and (x > 0 or not across) and (min(ys) > 0 or not up)


def panel_of(chart: LineChart) -> Panel:
    """A chart of a page as a picture that is saved, in English."""

    def english(text: Bilingual | str) -> str:
        return text.en if isinstance(text, Bilingual) else text

    lines = [
        CurveLine(
            english(line.name),
            [(x, y) for x, y in chart.known(line.points) if x is not None and y is not None],
            line.ink, line.faint, len(line.points) <= 24, line.band,
        )
        for line in chart.shown
    ]  # fmt: skip
    x = chart.axes[0]
    return Panel(english(chart.title), lines, chart.y.zero, english(x.name), x.span,
                 (x.log, chart.y.log), x.ticks)  # fmt: skip


def svg(panels: Sequence[Panel]) -> str:
    """A file of its own with one panel above the other."""
    shown = [panel for panel in panels if panel.known]
    height = max(1, len(shown)) * DOWN
    title = ", ".join(clean(panel.title) for panel in shown) or "no curves"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {ACROSS} {height}" '
        f'width="{ACROSS}" height="{height}" role="img">',
        f"  <title>{escape(title)}</title>",
        f"  <style>{STYLE}\n  </style>",
        '  <rect class="c-ground" width="100%" height="100%"/>',
    ]
    for i, panel in enumerate(shown):
        body += [f'  <g transform="translate(0 {i * DOWN})">', *drawn(panel), "  </g>"]
    return "\n".join([*body, "</svg>"]) + "\n"


def drawn(panel: Panel) -> list[str]:
    lines = panel.known
    xs = panel.span or [x for line in lines for x, _ in line.points]
    clear = [line for line in lines if not line.faint] or lines
    ys = [y for line in clear for _, y in line.points]
    ys += [y for line in clear for _, *edges in line.band for y in edges]
    low, high = (0.0 if panel.zero else min(ys)), max(ys)
    ticks = decades(low, high) if panel.logarithmic[1] else steps_between(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    first, last = min(xs), max(xs)

    def place(point: Point) -> Point:
        across = share(point[0], first, last, panel.logarithmic[0])
        up = share(point[1], low, high, panel.logarithmic[1])
        return LEFT + across * (ACROSS - LEFT - RIGHT), DOWN - BOTTOM - up * (DOWN - TOP - BOTTOM)

    body = [
        f'  <text class="c-text c-heading" x="{LEFT}" y="20">{escape(clean(panel.title))}</text>'
    ]
    body += legend(lines)
    for tick in ticks:
        y = place((first, tick))[1]
        body.append(
            f'  <line class="c-grid" x1="{LEFT}" x2="{ACROSS - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="c-text c-note" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{said(tick)}</text>"
        )
    body += below(panel, first, last, [(m, place((m, high))[0]) for m in panel.marks])
    name = "clip-" + re.sub(r"\W+", "-", panel.title.lower()).strip("-")
    body.append(
        f'  <clipPath id="{name}"><rect x="{LEFT}" y="{TOP - 4}" width="{ACROSS - LEFT - RIGHT}" '
        f'height="{DOWN - TOP - BOTTOM + 8}"/></clipPath>'
    )
    for line in sorted(lines, key=lambda x: not x.faint):
        if line.band:
            edge = [place((x, y)) for x, _, y in line.band]
            edge += [place((x, y)) for x, y, _ in reversed(line.band)]
            way = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(edge))
            body.append(f'  <path class="c-band c-dot c-{line.ink}" d="{way} Z"/>')
        body.append(path(line, [place(p) for p in thin(line.points)], name))
        if line.dots:
            body += [dot(line, p, place(p)) for p in line.points]
    return body


def share(value: float, low: float, high: float, logarithmic: bool) -> float:
    """How far between low and high: 0 … 1."""
    if logarithmic:
        value, low, high = math.log(max(value, 1e-300)), math.log(low), math.log(high)
    return (value - low) / ((high - low) or 1.0)


def path(line: CurveLine, points: Sequence[Point], clip: str) -> str:
    inks = f"c-line c-{line.ink}" + (" c-faint" if line.faint else "")
    way = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    return f'  <path class="{inks}" clip-path="url(#{clip})" d="{way}"/>'


def dot(line: CurveLine, point: Point, place: Point) -> str:
    tip = escape(f"{clean(line.name)} at {point[0]:,.0f}: {point[1]:.5g}")
    return (
        f'  <circle class="c-dot c-{line.ink}" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="3">'
        f"<title>{tip}</title></circle>"
    )


def legend(lines: Sequence[CurveLine]) -> list[str]:
    """Which line is which, where there are several."""
    body, x, y = [], float(LEFT), 36
    for line in lines if len(lines) > 1 else []:
        wide = 44 + 6.5 * len(line.name)
        if x > LEFT and x + wide > ACROSS:  # a second row
            x, y = float(LEFT), y + 13
        ink = f"c-line c-{line.ink}" + (" c-faint" if line.faint else "")
        body.append(
            f'  <path class="{ink}" d="M{x:.0f} {y} h18"/><text class="c-text c-note" '
            f'x="{x + 24:.0f}" y="{y + 4}">{escape(clean(line.name))}</text>'
        )
        x += wide
    return body


def below(panel: Panel, first: float, last: float, marks: Sequence[Point] = ()) -> list[str]:
    """The numbers under the picture (its marks, or its two ends), and what they count."""
    y, right = DOWN - BOTTOM + 18, ACROSS - RIGHT
    body = [
        f'  <text class="c-text c-note" x="{(LEFT + right) / 2:.0f}" '
        f'y="{y + (12 if marks else 0)}" text-anchor="middle">{escape(clean(panel.across))}</text>'
    ]
    if not marks:
        marks = [(first, LEFT), (last, right)]
    shown = -1e9
    for value, x in marks:
        if x - shown >= 40:  # or the numbers would touch
            anchor = "start" if x <= LEFT + 1 else "end" if x >= right - 1 else "middle"
            body.append(
                f'  <text class="c-text c-note" x="{x:.0f}" y="{y}" text-anchor="{anchor}">'
                f"{said(value)}</text>"
            )
            shown = x
    return body


def decades(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers that cover low … high on a logarithmic scale."""
    if low < high < 3 * low:  # too near for powers
        return steps_between(low, high)
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        candidates = [float(f"{d}e{k}") for k in range(first, last + 1) for d in digits]
        start = max(i for i, v in enumerate(candidates) if v <= low * (1 + 1e-9))
        end = min(i for i, v in enumerate(candidates) if v >= high * (1 - 1e-9))
        ticks = candidates[start : max(end, start + 1) + 1]
        if len(ticks) <= most:
            return ticks
    step = -(-(last - first) // (most - 1))  # powers that are so far apart
    return [10.0**k for k in range(first, last + step, step)]


def steps_between(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers that cover low … high, about `count` steps apart."""
    if not high > low:
        low, high = low - (abs(low) or 1.0) * 0.1, high + (abs(high) or 1.0) * 0.1
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    start, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(start, end + 1)]


def finite(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def said(value: float) -> str:
    """A number under or beside the picture: short."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 10 or (abs(value) >= limit and value % limit == 0):
            return f"{value / limit:.4g}{letter}"
    return f"{value:.0e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}"
