"""What a comparison gives in Python: the table of its report, which shows itself in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.core.errors import UnknownName
from regard.core.text import Bilingual, spoken
from regard.lab.compare.verdict import MEASURES
from regard.report import notebook, plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = 3  # metrics that are shown
NAMES = {measure.key: measure.name for measure in MEASURES}


class ComparisonResult(notebook.ShownTable):
    """The report of a comparison: `.plot()` draws one of its measures, model by model."""

    def plot(self, lang: str = "en", measure: str = "") -> Figure:
        """The first measure unless another is named; a dash is a seed, a line the interval."""
        tables = {key: rows for key, rows in self["tables"].items() if rows}
        key = measure or next(iter(tables), "")
        if key not in tables:
            raise UnknownName("measure", key, tables)
        rows = [
            plot.Measured(row["model"], row["mean"], row["interval"] and tuple(row["interval"]),
                          row["values"] if len(row["values"]) > 1 else ())
            for row in tables[key]
        ]  # fmt: skip
        return plot.intervals(spoken(NAMES.get(key, key), lang), [rows])

    def heading(self) -> Bilingual:
        return Bilingual(**self["title"])

    def parts(self) -> list[notebook.Part]:
        parts: list[notebook.Part] = [
            notebook.Paragraph(Bilingual(**sentence)) for sentence in self["verdict"]
        ]
        tables = [(key, rows) for key, rows in self["tables"].items() if rows][:TABLES]
        for key, rows in tables:
            head = [Bilingual("model", "模型"), NAMES.get(key, key),
                    Bilingual("interval", "区间"), Bilingual("best", "最好")]  # fmt: skip
            parts.append(notebook.Table(head, [row_of(row) for row in rows]))
        return parts


def row_of(row: dict[str, Any]) -> list[Any]:
    span = row.get("interval")
    interval = f"{span[0]:.4g} – {span[1]:.4g}" if span else ""
    return [row["model"], row["mean"], interval, "✓" if row["best"] else ""]
