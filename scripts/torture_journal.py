"""What came of each case of scripts/torture.py, and the table of it in docs/reliability.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PARTS = ("kills", "files", "disk", "power")


class ResultJournal:
    """What came of each case: one JSON object per line."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: list[dict[str, Any]] = []
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        whole, newline, torn = text.rpartition("\n")  # a run that was killed tears its last line
        if torn:
            file.write_text(whole + newline, encoding="utf-8")
        self.rows += [json.loads(line) for line in whole.split("\n") if line]

    def known(self, part: str) -> set[int]:
        return {row["case"] for row in self.rows if row["part"] == part}

    def kills(self) -> int:
        return sum(row["kills"] for row in self.rows if row["part"] == "kills")

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if row["wrong"]:
            print(f"{row['part']} {row['case']}: {json.dumps(row, ensure_ascii=False)[:3000]}")

    def summary(self) -> list[str]:
        """Rows of a table, one a part."""
        lines = []
        for part in PARTS:
            rows = [row for row in self.rows if row["part"] == part]
            if not rows:
                continue
            wrong = sum(bool(row["wrong"]) for row in rows)
            kinds = Counter(str(row.get("scene") or row.get("reader")) for row in rows)
            detail = ", ".join(f"{name} {count:,}" for name, count in sorted(kinds.items()))
            number = f"{len(rows):,}"
            if part == "kills":
                timed = sum(row["timed"] for row in rows)
                number += f" ends, {self.kills():,} kills ({timed:,} timed)"
            if part in ("disk", "power"):
                number += f" of {rows[-1]['of']:,}"
            if part == "power":
                number += f" ({sum('refused' in row for row in rows):,} refused)"
            if part == "files":
                number += f" ({sum(row['refused'] for row in rows):,} refused)"
            lines.append(f"| `{part}` | {number} | {detail} | {wrong} |")
        return lines


def write_tables(rows: list[str]) -> None:
    """Puts the table into both languages of docs/reliability.md, between its two marks."""
    from regard.core.files import write_text

    for name, head in (
        ("reliability.md", "| part | cases | of which | wrong |"),
        ("reliability.zh.md", "| 部分 | 用例 | 其中 | 出错 |"),
    ):
        file = HERE.parent / "docs" / name
        text = file.read_text(encoding="utf-8")
        before, begin, rest = text.partition("<!-- table -->\n")
        _, end, after = rest.partition("<!-- end -->")
        table = "\n".join([head, "| --- | --- | --- | ---: |", *rows, ""])
        write_text(file, before + begin + table + end + after)
