"""What a page draws: lines, bars and heat maps as plain numbers, for the chart module of pages.

A chart is data. Where it stands, how large it is and what a pointer or a key shows is said by
static/chart.js, in the browser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from regard.core.text import Bilingual, clean

Text = Bilingual | str
Point = tuple[float, float]

INKS = 10  # told apart by color and by shape; an eleventh is the first again, dashed
MOST = 500  # points of a line; more cannot be seen


class PageChart(Protocol):
    @property
    def title(self) -> Text: ...
    def data(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class ChartAxis:
    """`unit` is how its numbers are written: number, count, seconds, bytes or percent."""

    name: Text = ""
    unit: str = "number"
    log: bool = False
    zero: bool = False  # the scale begins at 0
    span: tuple[float, float] | None = None  # from where to where; that of the lines unless given
    ticks: Sequence[float] = ()  # round numbers unless given
    key: str = ""  # by which a page chooses one of several

    def data(self) -> dict[str, Any]:
        return {
            "name": plain(self.name), "unit": self.unit, "log": self.log, "zero": self.zero,
            "span": self.span, "ticks": list(self.ticks), "key": self.key,
        }  # fmt: skip

    def fits(self, value: float | None) -> bool:
        """A logarithm wants numbers above 0."""
        return value is not None and math.isfinite(value) and (value > 0 or not self.log)


@dataclass(frozen=True)
class Line:
    """Points (x, y), or (x of each axis, y) where a page can choose among several."""

    name: Text
    points: Sequence[Sequence[float | None]]
    ink: int = 1  # counted on beyond INKS, with dashes
    faint: bool = False  # lies behind the others and does not decide how high the picture is
    light: bool = False  # one of several of the same ink
    group: Text = ""  # what the legend calls it, once for all of a group; its name unless given
    band: Sequence[tuple[float, float, float]] = ()  # (x, lowest, highest): the spread around it


@dataclass(frozen=True)
class LineChart:
    title: Text
    lines: Sequence[Line]
    x: ChartAxis | Sequence[ChartAxis] = ChartAxis()
    y: ChartAxis = ChartAxis()
    limit: tuple[Text, float] | None = None  # a dashed line through the picture
    note: Text = ""  # what is drawn, beside the title

    @property
    def axes(self) -> list[ChartAxis]:
        return [self.x] if isinstance(self.x, ChartAxis) else list(self.x)

    def data(self) -> dict[str, Any]:
        return {
            "kind": "lines", "title": plain(self.title), "x": [axis.data() for axis in self.axes],
            "y": self.y.data(), "lines": [self.line(each) for each in self.shown],
            "limit": self.limit and [plain(self.limit[0]), self.limit[1]],
        }  # fmt: skip

    @property
    def shown(self) -> list[Line]:
        """Lines that have something to show."""
        return [line for line in self.lines if self.known(line.points)]

    def known(self, points: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
        rows = []
        for *xs, y in points:
            row = [x if a.fits(x) else None for x, a in zip(xs, self.axes, strict=True)]
            if self.y.fits(y) and any(x is not None for x in row):
                rows.append([*row, y])
        return rows

    def line(self, line: Line) -> dict[str, Any]:
        edges = [list(b) for b in line.band
                 if self.axes[0].fits(b[0]) and all(map(self.y.fits, b[1:]))]  # fmt: skip
        return {
            "name": plain(line.name), "ink": line.ink, "faint": line.faint, "light": line.light,
            "group": plain(line.group or line.name), "points": self.known(line.points),
            "band": edges,
        }  # fmt: skip


@dataclass(frozen=True)
class Bar:
    name: Text
    value: float
    low: float  # of what the value is the mean of
    high: float
    ink: int = 1


@dataclass(frozen=True)
class BarChart:
    title: Text
    bars: Sequence[Bar]
    x: ChartAxis = ChartAxis(zero=True)
    note: Text = ""

    def data(self) -> dict[str, Any]:
        bars = [
            {"name": plain(bar.name), "ink": bar.ink,
             **{key: getattr(bar, key) if self.x.fits(bar.value) else None
                for key in ("value", "low", "high")}}
            for bar in self.bars
        ]  # fmt: skip
        return {"kind": "bars", "title": plain(self.title), "x": self.x.data(), "bars": bars}


@dataclass(frozen=True)
class HeatChart:
    """Rows and columns of numbers, from nothing to `high` (their largest unless given)."""

    title: Text
    rows: Sequence[Text]
    columns: Sequence[Text]
    values: Sequence[Sequence[float]]
    high: float | None = None
    headed: bool = True  # the names of columns stand above them
    note: Text = ""

    def data(self) -> dict[str, Any]:
        cells = [[x if math.isfinite(x) else None for x in row] for row in self.values]
        largest = max((x for row in cells for x in row if x is not None), default=0.0)
        return {
            "kind": "heat", "title": plain(self.title), "values": cells, "headed": self.headed,
            "rows": [plain(x) for x in self.rows], "columns": [plain(x) for x in self.columns],
            "high": largest if self.high is None else self.high,
        }  # fmt: skip


def plain(text: Text) -> Text:
    """A text for JSON: [English, Chinese], or one for both."""
    return Bilingual(clean(text.en), clean(text.zh)) if isinstance(text, Bilingual) else clean(text)


def smooth(points: Sequence[Point], window: int | None = None) -> list[Point]:
    """A running mean over about `window` points (a fiftieth of them, unless given)."""
    window = max(2, len(points) // 50) if window is None else window
    keep, total, weight, means = 1.0 - 1.0 / window, 0.0, 0.0, []
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            total, weight = keep * total + (1 - keep) * y, keep * weight + (1 - keep)
            means.append((x, total / weight))
    return means


def thin(points: Sequence[Point], most: int = MOST) -> list[Point]:
    """At most so many points: means of neighbors, the first and the last as they are."""
    if len(points) <= most:
        return list(points)
    inner, groups = points[1:-1], most - 2
    edges = [len(inner) * i // groups for i in range(groups + 1)]
    thinned = [points[0]]
    for a, b in pairwise(edges):
        part = inner[a:b]
        thinned.append((sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)))
    return [*thinned, points[-1]]
