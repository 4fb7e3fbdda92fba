"""Curves in a notebook, where no script runs: places are found here, a template writes the SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.core.text import Bilingual, clean, spoken
from regard.report.charts import Point, thin

if TYPE_CHECKING:
    from regard.report.drawings import Curves

ACROSS, DOWN = 640, 200  # of the picture
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 10, 24  # of its margins
INKS = 6  # colors of lines
FEW = 24  # points that are also drawn as dots


def panel(curves: Curves) -> dict[str, Any] | None:
    """What the template needs: lines as paths, and the numbers beside and below them; None where
    there is nothing to show."""
    finite = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        for name, points in curves.lines.items()
    }
    lines = {name: thin(points) for name, points in finite.items() if points}
    if not lines:
        return None
    xs, ys = zip(*(point for points in lines.values() for point in points), strict=True)
    ticks = steps_between(min(0.0, *ys) if curves.zero else min(ys), max(ys))
    first, last = min(xs), max(xs)

    def place(x: float, y: float) -> Point:
        across = (x - first) / ((last - first) or 1.0)
        up = (y - ticks[0]) / (ticks[-1] - ticks[0])
        return LEFT + across * (ACROSS - LEFT - RIGHT), DOWN - BOTTOM - up * (DOWN - TOP - BOTTOM)

    return {
        "title": curves.title,
        "name": clean(spoken(curves.title, "en")),
        "across": curves.across,
        "lines": [
            {"name": name, "ink": i % INKS + 1, "way": way([place(*point) for point in points]),
             "dots": dots(name, points, [place(*point) for point in points])}
            for i, (name, points) in enumerate(lines.items())
        ],
        "ticks": [(place(first, tick)[1], short(tick)) for tick in ticks],
        "ends": (short(first), short(last)),
    }  # fmt: skip


def way(places: Sequence[Point]) -> str:
    return " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))


def dots(name: Bilingual | str, points: Sequence[Point], places: Sequence[Point]) -> list[Any]:
    """A place and what stands at it, for each point of a short line."""
    if len(points) > FEW:
        return []
    called = clean(spoken(name, "en"))
    return [
        (f"{x:.1f}", f"{y:.1f}", f"{called} · {point[0]:,.6g}: {point[1]:.5g}")
        for point, (x, y) in zip(points, places, strict=True)
    ]


def steps_between(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers that cover low … high, about `count` steps apart."""
    if not high > low:
        low, high = low - (abs(low) or 1.0) * 0.1, high + (abs(high) or 1.0) * 0.1
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    start, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(start, end + 1)]


def short(value: float) -> str:
    """A number under or beside the picture."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 10 or (abs(value) >= limit and value % limit == 0):
            return f"{value / limit:.4g}{letter}"
    return f"{value:.0e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}"
