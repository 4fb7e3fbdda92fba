"""What an evaluation gives in Python: the table of test.json, which shows itself in a notebook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from regard.core.errors import InputError
from regard.core.text import Bilingual, spoken
from regard.evaluation.page import decimals
from regard.report import notebook, plot
from regard.report.pages import named, translated, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES, ERRORS, LABELS = 20, 5, 24  # rows of the tables, and sides of the confusion matrix


class EvaluationResult(notebook.ShownTable):
    """The figures of an evaluation: `.plot()` draws them with their intervals."""

    def plot(self, lang: str = "en") -> Figure:
        """Shares of 1 have one scale; any other figure has its own."""
        rows = [
            plot.Measured(spoken(named(name), lang), value, self.interval(name))
            for name, value in self.get("figures", {}).items()
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        if not rows:
            raise InputError("this evaluation has no figures to plot; it has its numbers alone")
        shares = [
            row for row in rows if all(0 <= x <= 1 for x in (row.value, *(row.interval or ())))
        ]
        groups = [shares] if shares else []
        title = Bilingual("figures, with 95% intervals", "各项指标及其 95% 区间")
        return plot.intervals(
            spoken(title, lang), [*groups, *([row] for row in rows if row not in shares)]
        )

    def interval(self, name: str) -> tuple[float, float] | None:
        span = self.get("intervals", {}).get(name)
        return (span[0], span[1]) if span else None

    def parts(self) -> list[notebook.Part]:
        if "figures" not in self:  # by prompts, or of an n-gram
            return super().parts()
        parts: list[notebook.Part] = [
            self.about(),
            self.figures(),
        ]
        if self.get("classes"):
            parts.append(self.classes())
        confusion = self.get("confusion")
        if confusion and 1 < len(confusion["labels"]) <= LABELS:
            labels = [*map(str, confusion["labels"])]
            axes = Bilingual("right answer", "正确答案"), Bilingual("model", "模型")
            title = Bilingual("confusion", "混淆矩阵")
            matrix = notebook.Matrix(title, confusion["matrix"], labels, labels, axes)
            parts.append(notebook.Matrices([matrix], title))
        if self.get("worst"):
            parts.append(self.errors())
        return [
            *parts,
            *(notebook.Paragraph(translated(str(note))) for note in self.get("notes", ())),
        ]

    def about(self) -> notebook.Facts:
        names = {
            "task": Bilingual("task", "任务"), "examples": words("test")["examples"],
            "data": Bilingual("data", "数据"), "out": Bilingual("directory", "目录"),
        }  # fmt: skip
        known = [key for key in names if isinstance(self.get(key), str | int)]
        return notebook.Facts([(names[key], self[key]) for key in known])

    def figures(self) -> notebook.Table:
        rows: list[list[Any]] = []
        for name, value in self["figures"].items():
            span = self.get("intervals", {}).get(name)
            interval = f"{decimals(span[0])} – {decimals(span[1])}" if span else ""
            rows.append([named(name), decimals(value), interval])
        head = [Bilingual("metric", "指标"), Bilingual("value", "值"),
                Bilingual("95% interval", "95% 区间")]  # fmt: skip
        return notebook.Table(head, rows)

    def classes(self) -> notebook.Table:
        names = ("label", "precision", "recall", "f1", "support")
        rows = [
            [str(row.get("label", "")), *(decimals(row.get(name)) for name in names[1:])]
            for row in self["classes"][:CLASSES]
        ]
        test = words("test")
        return notebook.Table([test.get(name) or named(name) for name in names], rows)

    def errors(self) -> notebook.Table:
        head = [Bilingual("error", "错误"), Bilingual("right answer", "正确答案"),
                Bilingual("model", "模型")]  # fmt: skip
        rows = [[str(row.get(name, "")) for name in ("text", "gold", "predicted")]
                for row in self["worst"][:ERRORS]]  # fmt: skip
        return notebook.Table(head, rows)
