"""What a run of claims gives in Python: its table, which shows itself in a notebook."""

from __future__ import annotations

from typing import Any

from regard.core.text import Bilingual
from regard.lab.claims import claim as find
from regard.lab.claims.engine.page import MARKS, VERDICTS
from regard.report import notebook


class ClaimsResult(notebook.ShownTable):
    def heading(self) -> Bilingual:
        count = len(self["claims"])
        return Bilingual(f"{count:,} claim{'s' * (count != 1)}", f"{count:,} 个论断")

    def parts(self) -> list[notebook.Part]:
        head = [Bilingual("claim", "论断"), Bilingual("statement", "内容"),
                Bilingual("verdict", "结论"), Bilingual("effort", "投入")]  # fmt: skip
        rows = [
            [row["name"], find(row["name"]).statement, verdict_of(row["verdict"]), row["effort"]]
            for row in self["claims"]
        ]
        failures = [
            notebook.Paragraph(Bilingual(f"{name} failed: {why}", f"{name} 失败：{why}"))
            for name, why in self.get("failed", {}).items()
        ]
        places = [(Bilingual("directory", "目录"), self["out"])] if "out" in self else []
        return [notebook.Facts(places), notebook.Table(head, rows), *failures]


def verdict_of(verdict: Any) -> Bilingual | None:
    if not verdict:
        return None
    mark, (english, chinese) = MARKS[verdict][1], VERDICTS[verdict]
    return Bilingual(f"{mark} {english}", f"{mark} {chinese}")
