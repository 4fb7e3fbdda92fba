"""What a picture is: a heat map, curves or bars, which can be plotted, saved and written as text.

    picture.save("picture.png", lang="zh")  # or .pdf or .svg, by Matplotlib
    picture.plot()                          # Matplotlib's own Figure, to go on with
    picture.text()                          # for a terminal
    picture.data()                          # its numbers, for a program

In a notebook a picture shows itself, without Matplotlib.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.errors import InputError, StorageError
from regard.core.files import replacing
from regard.core.text import Bilingual, spoken
from regard.report import plot
from regard.report.heatmap import SHADES, Weights, blocks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 128  # rows and columns of a heat map
Text = Bilingual | str
Point = tuple[float, float]
STEP = Bilingual("step", "步")
LOOKS = (
    Bilingual("query: the token that looks", "查询：看的词元"),
    Bilingual("key: the token that is seen", "键：被看的词元"),
)


class Picture(ABC):
    title: Text

    @abstractmethod
    def plot(self, lang: str = "en") -> Figure:
        """Matplotlib's figure."""

    @abstractmethod
    def text(self, shades: str = SHADES, lang: str = "en") -> str:
        """Lines for a terminal."""

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """The numbers, and names in English."""

    @abstractmethod
    def _repr_html_(self) -> str:
        """For a notebook."""

    def content(self, kind: str, lang: str = "en") -> bytes:
        """The bytes of a file: png, pdf or svg."""
        return plot.saved(self.plot(lang), kind)

    def svg(self, lang: str = "en") -> str:
        return self.content("svg", lang).decode("utf-8")

    def save(self, out: Path | str, lang: str = "en") -> Path:
        """By the ending of the name; written whole, or not at all."""
        file = Path(out)
        content = self.content(plot.check_out(file), lang)
        try:
            with replacing(file) as part:
                part.write_bytes(content)
        except OSError as error:
            raise StorageError(
                f"{file} cannot be written: {error.strerror}; give another"
            ) from None
        return file


@dataclass(frozen=True)
class HeatDrawing(Picture):
    """A matrix of numbers, from `low` (nothing) to `high` (full ink)."""

    title: Text
    values: Weights
    rows: Sequence[str]
    columns: Sequence[str]
    low: float = 0.0
    high: float = 1.0
    axes: tuple[Text, Text] = LOOKS  # what a row is, and what a column is

    @property
    def shares(self) -> list[list[float]]:
        span = (self.high - self.low) or 1.0
        return [[(value - self.low) / span for value in row] for row in self.values]

    def plot(self, lang: str = "en") -> Figure:
        names = spoken(self.axes[0], lang), spoken(self.axes[1], lang)
        title, span = spoken(self.title, lang), (self.low, self.high)
        return plot.heat(title, self.values, self.rows, self.columns, span, names)

    def text(self, shades: str = SHADES, lang: str = "en") -> str:
        matrix = blocks(self.shares, self.rows, self.columns, shades, most=1.0)
        return f"{spoken(self.title, lang)}\n{matrix}"

    def data(self) -> dict[str, Any]:
        return {"title": spoken(self.title, "en"), "rows": list(self.rows),
                "columns": list(self.columns),
                "values": [list(row) for row in self.values]}  # fmt: skip

    def _repr_html_(self) -> str:
        from regard.report import notebook

        matrix = notebook.Matrix(self.title, self.values, self.rows, self.columns, self.axes,
                                 (self.low, self.high))  # fmt: skip
        return notebook.matrices([matrix])


@dataclass(frozen=True)
class Curves(Picture):
    """Lines over the same steps."""

    title: Text
    lines: Mapping[Text, Sequence[Point]]
    across: Text = STEP
    up: Text = ""
    zero: bool = True  # the scale begins at 0
    dots: Sequence[Text] = ()  # lines that are single points

    def plot(self, lang: str = "en") -> Figure:
        lines = {spoken(name, lang): points for name, points in self.lines.items()}
        axes = spoken(self.across, lang), spoken(self.up, lang)
        dots = [spoken(name, lang) for name in self.dots]
        return plot.curves(spoken(self.title, lang), lines, axes, zero=self.zero, dots=dots)

    def text(self, shades: str = SHADES, lang: str = "en") -> str:
        """One row of bars a line, with its height: the lines stand under each other."""
        names = [spoken(name, lang) for name in self.lines]
        rows, wide = [spoken(self.title, lang)], max(map(len, names))
        highest = spoken(Bilingual("up to", "最高"), lang)
        for name, points in zip(names, self.lines.values(), strict=True):
            most = max(y for _, y in points)
            shown = bars([y for _, y in points], most, shades)
            rows.append(f"{name:>{wide}}  {shown}  {highest} {most:.3g}")
        first, *_, last = next(iter(self.lines.values()))
        span = spoken(Bilingual("{:g} to {:g}", "{:g} 至 {:g}"), lang).format(first[0], last[0])
        rows.append(f"{'':>{wide}}  {spoken(self.across, lang)} {span}")
        return "\n".join(rows)

    def data(self) -> dict[str, Any]:
        lines = {spoken(name, "en"): [list(p) for p in line] for name, line in self.lines.items()}
        return {"title": spoken(self.title, "en"), "across": spoken(self.across, "en"),
                "lines": lines}  # fmt: skip

    def _repr_html_(self) -> str:
        from regard.report import notebook

        return notebook.curves([self])


@dataclass(frozen=True)
class BarDrawing(Picture):
    """Counts, one above the other."""

    title: Text
    counts: Mapping[Text, float]
    unit: Text = ""

    def total(self, lang: str) -> str:
        sentence = spoken(Bilingual("{:,.0f} {} in all", "共 {:,.0f} {}"), lang)
        return sentence.format(sum(self.counts.values()), spoken(self.unit, lang))

    def plot(self, lang: str = "en") -> Figure:
        counts = {spoken(name, lang): count for name, count in self.counts.items()}
        return plot.bars(spoken(self.title, lang), counts, self.total(lang))

    def text(self, shades: str = SHADES, lang: str = "en") -> str:
        counts = {spoken(name, lang): count for name, count in self.counts.items()}
        most = max(counts.values(), default=0.0) or 1.0
        wide = max(map(len, counts), default=0)
        rows = [
            f"{part:<{wide}}  {shades[-1] * round(40 * count / most):<40}  {count:>15,.0f}"
            for part, count in counts.items()
        ]
        return "\n".join([spoken(self.title, lang), *rows, self.total(lang)])

    def data(self) -> dict[str, Any]:
        counts = {spoken(name, "en"): count for name, count in self.counts.items()}
        return {"title": spoken(self.title, "en"), "unit": spoken(self.unit, "en"),
                "counts": counts, "total": sum(counts.values())}  # fmt: skip

    def _repr_html_(self) -> str:
        from regard.report import notebook

        return notebook.bars(self.title, self.counts, self.unit)


def bars(values: Sequence[float], most: float, shades: str, columns: int = 56) -> str:
    """A line of text whose letters are as high, or as dark, as the values."""
    steps = " ▁▂▃▄▅▆▇█" if shades == SHADES else shades
    picked = [values[i * len(values) // columns] for i in range(columns)]
    return "".join(steps[round((len(steps) - 1) * value / (most or 1.0))] for value in picked)


def check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(f"{name} is {value:,}; a picture holds from {least:,} to {most:,}")
