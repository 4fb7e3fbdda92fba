"""What a picture is: a heat map, curves or bars, each as SVG, PNG, terminal text and plain data.

A PNG is painted without a font: its letters are dots, and those that are not ASCII empty boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from regard.core.errors import InputError
from regard.report import paint
from regard.report.curves import CurveLine, Panel, svg
from regard.report.heatmap import SHADES, Weights, blocks, heat_map

WIDEST = 128  # rows and columns of a heat map


class Picture(Protocol):
    @property
    def title(self) -> str: ...
    def svg(self) -> str: ...
    def png(self) -> bytes: ...
    def text(self, shades: str = SHADES) -> str: ...
    def data(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class HeatDrawing:
    """A matrix of numbers, from `low` (nothing) to `high` (full ink)."""

    title: str
    values: Weights
    rows: Sequence[str]
    columns: Sequence[str]
    low: float = 0.0
    high: float = 1.0
    note: str = "rows look at columns"

    @property
    def shares(self) -> list[list[float]]:
        span = (self.high - self.low) or 1.0
        return [[(value - self.low) / span for value in row] for row in self.values]

    def svg(self) -> str:
        span = self.low, self.high
        return heat_map(self.values, self.rows, self.columns, self.title, span=span, note=self.note)

    def png(self) -> bytes:
        return paint.heat(self.title, self.shares, self.rows, self.columns)

    def text(self, shades: str = SHADES) -> str:
        return f"{self.title}\n{blocks(self.shares, self.rows, self.columns, shades, most=1.0)}"

    def data(self) -> dict[str, Any]:
        return {"title": self.title, "rows": list(self.rows), "columns": list(self.columns),
                "values": [list(row) for row in self.values]}  # fmt: skip


@dataclass(frozen=True)
class Curves:
    """Lines over the same steps."""

    title: str
    lines: dict[str, list[tuple[float, float]]]
    across: str = "step"

    def svg(self) -> str:
        lines = [
            CurveLine(name, points, 1 + i % 8)
            for i, (name, points) in enumerate(self.lines.items())
        ]
        return svg([Panel(self.title, lines, zero=True, across=self.across)])

    def png(self) -> bytes:
        return paint.curves(self.title, self.lines, self.across)

    def text(self, shades: str = SHADES) -> str:
        """One row of bars a line, with its height: the lines stand under each other."""
        rows, name = [self.title], max(map(len, self.lines))
        for line, points in self.lines.items():
            most = max(y for _, y in points)
            shown = bars([y for _, y in points], most, shades)
            rows.append(f"{line:>{name}}  {shown}  up to {most:.3g}")
        places = [x for x, _ in next(iter(self.lines.values()))]
        rows.append(f"{'':>{name}}  {self.across} {places[0]:g} to {places[-1]:g}")
        return "\n".join(rows)

    def data(self) -> dict[str, Any]:
        lines = {name: [list(p) for p in points] for name, points in self.lines.items()}
        return {"title": self.title, "across": self.across, "lines": lines}


@dataclass(frozen=True)
class BarDrawing:
    """Counts, one above the other."""

    title: str
    counts: dict[str, float]
    unit: str = ""

    def svg(self) -> str:
        return paint.bars_svg(self.title, self.counts, self.unit)

    def png(self) -> bytes:
        return paint.bars(self.title, self.counts, self.unit)

    def text(self, shades: str = SHADES) -> str:
        most = max(self.counts.values(), default=0.0) or 1.0
        name = max(map(len, self.counts), default=0)
        rows = [
            f"{part:<{name}}  {shades[-1] * round(40 * count / most):<40}  {count:>15,.0f}"
            for part, count in self.counts.items()
        ]
        total = f"{'in all':<{name}}  {'':<40}  {sum(self.counts.values()):>15,.0f} {self.unit}"
        return "\n".join([self.title, *rows, total.rstrip()])

    def data(self) -> dict[str, Any]:
        return {"title": self.title, "unit": self.unit, "counts": self.counts,
                "total": sum(self.counts.values())}  # fmt: skip


def bars(values: Sequence[float], most: float, shades: str, columns: int = 56) -> str:
    """A line of text whose letters are as high, or as dark, as the values."""
    steps = " ▁▂▃▄▅▆▇█" if shades == SHADES else shades
    picked = [values[i * len(values) // columns] for i in range(columns)]
    return "".join(steps[round((len(steps) - 1) * value / (most or 1.0))] for value in picked)


def check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(f"{name} is {value:,}; a picture holds from {least:,} to {most:,}")
