"""What an evaluation gives in Python: the table of test.json, which shows itself in a notebook."""

from __future__ import annotations

from typing import Any

from regard.core.text import Bilingual
from regard.report import notebook
from regard.report.pages import named, translated, words

CLASSES, ERRORS, LABELS = 20, 5, 24  # rows of the tables, and sides of the confusion matrix


class EvaluationResult(notebook.ShownTable):
    def parts(self) -> list[notebook.Part]:
        if "figures" not in self:  # by prompts, or of an n-gram
            return [notebook.facts_of(self)]
        parts: list[notebook.Part] = [
            notebook.facts_of(self, ["task", "examples", "data", "out"]),
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

    def figures(self) -> notebook.Table:
        rows: list[list[Any]] = []
        for name, value in self["figures"].items():
            span = self.get("intervals", {}).get(name)
            interval = f"{span[0]:.4g} – {span[1]:.4g}" if span else ""
            rows.append([named(name), value, interval])
        head = [Bilingual("metric", "指标"), Bilingual("value", "值"),
                Bilingual("95% interval", "95% 区间")]  # fmt: skip
        return notebook.Table(head, rows)

    def classes(self) -> notebook.Table:
        names = ("label", "precision", "recall", "f1", "support")
        rows = [[row.get(name) for name in names] for row in self["classes"][:CLASSES]]
        test = words("test")
        return notebook.Table([test.get(name) or named(name) for name in names], rows)

    def errors(self) -> notebook.Table:
        head = [Bilingual("error", "错误"), Bilingual("right answer", "正确答案"),
                Bilingual("model", "模型")]  # fmt: skip
        rows = [[str(row.get(name, "")) for name in ("text", "gold", "predicted")]
                for row in self["worst"][:ERRORS]]  # fmt: skip
        return notebook.Table(head, rows)
