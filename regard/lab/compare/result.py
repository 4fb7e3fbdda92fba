"""What a comparison gives in Python: the table of its report, which shows itself in a notebook."""

from __future__ import annotations

from typing import Any

from regard.core.text import Bilingual
from regard.lab.compare.verdict import MEASURES
from regard.report import notebook

TABLES = 3  # metrics that are shown
NAMES = {measure.key: measure.name for measure in MEASURES}


class ComparisonResult(notebook.ShownTable):
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
