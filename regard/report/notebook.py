"""How objects show themselves in a notebook: plain data in, one piece of HTML out.

The HTML runs no script and asks for nothing. It follows the notebook's light or dark theme and the
language of its document. Whatever others wrote only ever becomes text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from regard.core.text import Bilingual
from regard.report import pages
from regard.report.curves import panel
from regard.report.heatmap import Weights, label, largest, width
from regard.report.palette import palette

if TYPE_CHECKING:
    from regard.report.drawings import Curves

LEVELS = 20  # of a heat map's shades
CELL, LETTER = 18, 7.2  # pixels of a square, and of a letter beside it
TIPS = 1600  # squares that say their number
INKS = 6  # colors of labels
ROWS, ITEMS = 20, 12  # of a table, and of a list in one line

Text = Bilingual | str
YES, NO = Bilingual("yes", "是"), Bilingual("no", "否")


@dataclass(frozen=True)
class Facts:
    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[Text, Any]]
    title: Text = ""


@dataclass(frozen=True)
class Table:
    kind: ClassVar[str] = "table"
    head: Sequence[Text]
    rows: Sequence[Sequence[Any]]
    title: Text = ""


@dataclass(frozen=True)
class Bars:
    """Shares of 1 with their names; `best` names those that are the answer."""

    kind: ClassVar[str] = "bars"
    rows: Sequence[tuple[Text, float]]
    best: Sequence[Text] = ()
    high: float = 1.0
    form: str = "{:.4f}"


@dataclass(frozen=True)
class Token:
    text: str
    probability: float
    alternatives: Sequence[tuple[str, float]] = ()

    @property
    def tip(self) -> str:
        others = [f"{label(text)} {chance:.4f}" for text, chance in self.alternatives]
        return " · ".join([f"{label(self.text)} {self.probability:.4f}", *others])


@dataclass(frozen=True)
class Tokens:
    """Tokens, each as strong as it is probable."""

    kind: ClassVar[str] = "tokens"
    tokens: Sequence[Token]
    before: str = ""


@dataclass(frozen=True)
class Marked:
    """A text in pieces; those with a label are marked."""

    kind: ClassVar[str] = "marked"
    pieces: Sequence[tuple[str, str]]

    @property
    def inks(self) -> dict[str, int]:
        labels = sorted({name for _, name in self.pieces if name})
        return {name: i % INKS + 1 for i, name in enumerate(labels)}


@dataclass(frozen=True)
class Paragraph:
    kind: ClassVar[str] = "paragraph"
    text: Text


@dataclass(frozen=True)
class CurveCharts:
    kind: ClassVar[str] = "charts"
    curves: Sequence[Curves]

    @property
    def panels(self) -> list[dict[str, Any]]:
        return [each for chart in self.curves if (each := panel(chart)) is not None]


@dataclass(frozen=True)
class Matrix:
    """A heat map; a `small` one has no names. Below 0 its color is another one."""

    title: Text
    values: Weights
    rows: Sequence[str]
    columns: Sequence[str]
    axes: tuple[Text, Text] = ("", "")
    span: tuple[float, float] | None = None  # from 0 to the largest unless given
    small: bool = False
    tip: str = ""

    @property
    def down(self) -> list[str]:
        return [label(name) for name in self.rows]

    @property
    def across(self) -> list[str]:
        return [label(name) for name in self.columns]

    @property
    def left(self) -> int:
        return 8 + round(LETTER * max(map(width, self.down), default=0))

    @property
    def top(self) -> int:
        return 8 + round(LETTER * max(map(width, self.across), default=0))

    @property
    def scale(self) -> tuple[float, float]:
        return self.span or (0.0, largest(self.values))

    def level(self, value: float) -> int:
        """From -LEVELS to LEVELS: how strong a square is."""
        low, high = self.scale
        low = min(low, 0.0) if low < 0 else low
        share = value / (high or 1.0) if low < 0 else (value - low) / ((high - low) or 1.0)
        return round(min(max(share, -1.0), 1.0) * LEVELS) if math.isfinite(share) else 0

    @property
    def paths(self) -> Iterator[tuple[int, str]]:
        """The squares of each level as one path, in units of a square."""
        drawn: dict[int, list[str]] = {}
        for i, row in enumerate(self.values):
            for level, run in groupby(enumerate(row), lambda cell: self.level(cell[1])):
                cells = list(run)
                way = f"M{cells[0][0]} {i}h{len(cells)}v1h-{len(cells)}z"
                drawn.setdefault(level, []).append(way)
        yield from ((level, "".join(ways)) for level, ways in sorted(drawn.items()) if level)

    @property
    def tips(self) -> Iterator[tuple[int, int, str]]:
        if len(self.rows) * len(self.columns) <= TIPS:
            for i, row in enumerate(self.values):
                for j, value in enumerate(row):
                    yield i, j, f"{self.rows[i]} → {self.columns[j]}: {value:.4f}"


@dataclass(frozen=True)
class Matrices:
    kind: ClassVar[str] = "matrices"
    matrices: Sequence[Matrix]
    title: Text = ""


Part = Facts | Table | Bars | Tokens | Marked | Paragraph | CurveCharts | Matrices


def rendered(title: Text, *parts: Part) -> str:
    """One piece of HTML, with its style."""
    return str(
        environment()
        .get_template("notebook.html")
        .render(
            title=title,
            parts=parts,
            words=pages.words("notebook"),
            style=pages.as_it_is(pages.text_of("notebook.css")),
            levels=LEVELS,
            cell=CELL,
            colors=palette(),
            inks=[f"i{ink}" for ink in range(1, INKS + 1)],
        )
    )


@cache
def environment() -> Any:
    return pages.environment().overlay(finalize=shown)


def shown(value: Any) -> Any:
    """Returns how a template writes a value: short numbers, and texts as on every page."""
    if isinstance(value, bool):
        return pages.shown(YES if value else NO)
    return short(value) if isinstance(value, int | float) else pages.shown(value)


def short(value: str | int | float) -> str:
    if isinstance(value, str | bool):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


class ShownTable(dict[str, Any]):
    """What a command gives: a table of names and values."""

    def parts(self) -> list[Part]:
        """What stands under the title."""
        return parts_of(self)

    def heading(self) -> Text:
        return str(self.get("title", ""))

    def _repr_html_(self) -> str:
        return rendered(self.heading(), *self.parts())


def parts_of(table: Mapping[str, Any], title: str = "") -> list[Part]:
    """The facts of a table, and under its name each table that is inside of it."""
    parts: list[Part] = []
    facts = facts_of(table, title)
    if facts.rows:
        parts.append(facts)
    for name, value in table.items():
        path = " · ".join(filter(None, [title, spaced(name)]))
        if isinstance(value, Mapping):
            parts += parts_of(value, path)
        elif tables := rows_of(value):
            parts += table_of(tables, path)
    return parts


def facts_of(table: Mapping[str, Any], title: Text = "") -> Facts:
    """The numbers and texts of a table, and its short lists of them."""
    rows = [(spaced(name), joined(value)) for name, value in table.items()]
    return Facts([(name, value) for name, value in rows if value is not None], title)


def table_of(tables: Sequence[Mapping[str, Any]], title: Text) -> list[Part]:
    """A row for each of several tables, with the facts that any of them has."""
    flat = [dict(facts_of(unfolded(each)).rows) for each in tables[:ROWS]]
    head = list(dict.fromkeys(name for row in flat for name in row))
    if not head:
        return []
    parts: list[Part] = [Table(head, [[row.get(name) for name in head] for row in flat], title)]
    if rest := len(tables) - len(flat):
        parts.append(Paragraph(Bilingual(f"and {rest:,} more", f"还有 {rest:,} 行")))
    return parts


def unfolded(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose inner tables are its own columns."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= value if isinstance(value, Mapping) else {name: value}
    return flat


def rows_of(value: Any) -> list[Mapping[str, Any]]:
    """The tables of a list of them; none of anything else."""
    known = list(value) if isinstance(value, list | tuple) else []
    return known if all(isinstance(each, Mapping) for each in known) else []


def joined(value: Any) -> Any:
    """A value that is no table, as one line; None where it has none."""
    if isinstance(value, str | int | float | Bilingual):
        return value
    known = value if isinstance(value, list | tuple) and len(value) <= ITEMS else ()
    if known and all(isinstance(each, str | int | float) for each in known):
        return ", ".join(map(short, known))
    return None


def spaced(name: Any) -> str:
    return str(name).replace("_", " ")


# -- pictures


def matrices(shown_matrices: Sequence[Matrix]) -> str:
    """Large ones, each under its own title."""
    return "".join(rendered(matrix.title, Matrices([matrix])) for matrix in shown_matrices)


def curves(charts: Sequence[Curves]) -> str:
    return rendered("", CurveCharts(charts))


def bars(title: Text, counts: Mapping[Text, float], unit: Text) -> str:
    high = max(counts.values(), default=0.0) or 1.0
    total = Bilingual(*(f"{word} {sum(counts.values()):,.0f}" for word in ("in all", "共")))
    rows = Bars(list(counts.items()), high=high, form="{:,.0f}")
    return rendered(title, rows, Facts([(unit, total)]))
