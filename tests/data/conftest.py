"""Small texts, and a data directory made from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.data.prepare import PreparePlan, prepare
from regard.data.splits import SplitShares

ENGLISH = [
    f"The {animal} crossed the street. It was {state}, said Dr. No! Was it {count}?\n  Yes."
    for animal in ("animal", "cat", "dog", "horse", "mouse")
    for state in ("tired", "fast", "small", "old")
    for count in range(6)
]
CHINESE = [
    f"小{animal}过了{number}条街。“它累了吗？”他问道。没有人知道答案，因为大家都睡着了！"
    for animal in ("猫", "狗", "马", "鸟", "鱼")
    for number in range(12)
]
ALL = SplitShares(0, 0)  # everything learns

Make = Callable[..., tuple[dict[str, Any], Path]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(ENGLISH + CHINESE) + "\n", "utf-8")
    return file


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Prepares; returns the summary and the data directory."""

    def run(*sources: str | Path, out: str = "data", **changes: Any) -> tuple[dict[str, Any], Path]:
        plan = PreparePlan(tuple(map(str, sources)), tmp_path / out, **changes)
        return prepare(plan), tmp_path / out

    return run
