"""What a probing gives in Python: the table of probe.json, which shows itself in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.core.errors import InputError
from regard.core.text import Bilingual
from regard.methods.probe.page import WORDS, charts, heading, shown
from regard.methods.probe.report import columns_of
from regard.report import notebook
from regard.report.charts import Line, Point
from regard.report.drawings import Curves
from regard.report.pages import filled, translated

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CHARTS = 2  # the first of them; the table has every figure


def points_of(line: Line) -> list[Point]:
    return [(x, y) for x, y in line.points if x is not None and y is not None]


class ProbeResult(notebook.ShownTable):
    """The figures of a probing: `.plot()` draws the first of them over the layers."""

    def plot(self, lang: str = "en") -> Figure:
        curves = self.curves()
        if not curves:
            raise InputError("this probing has no curve to plot: it has not finished")
        return curves[0].plot(lang)

    def curves(self) -> list[Curves]:
        """A chart for each figure, as on the page."""
        drawn = charts(self) if self.get("layers") else {}
        return [
            Curves(chart.title, {line.name: points_of(line) for line in chart.lines},
                   WORDS["layer"], zero=False)
            for chart in drawn.values()
        ]  # fmt: skip

    def heading(self) -> Bilingual | str:
        return filled(WORDS["title"], task=str(self["task"])) if "task" in self else ""

    def parts(self) -> list[notebook.Part]:
        if not self.get("layers"):  # stopped before the end
            return super().parts()
        columns = list(columns_of(self))
        head = [WORDS["layer"], *(heading(self, *column) for column in columns)]
        rows: list[list[Any]] = [
            [row["layer"], *(shown(row.get(source, {}).get(what, {}).get(name))
                             for _, source, what, name in columns)]
            for row in self["layers"]
        ]  # fmt: skip
        about = [(WORDS[name], self[name]) for name in ("family", "depth", "seeds", "kind")]
        return [
            notebook.Facts(about),
            notebook.CurveCharts(self.curves()[:CHARTS]),
            notebook.Table(head, rows),
            *(notebook.Paragraph(translated(str(note))) for note in self.get("notes", ())),
        ]
