"""benchmarks/embed.py: its data, and what it says of its cells."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import embed
import numpy as np
import pytest

from tests.benchmarks.bilingual import check_chinese


def test_questions_of_one_article_stay_together(tmp_path: Path) -> None:
    def article(number: int) -> Any:
        qas = [{"question": f"q{number}.{i}"} for i in range(2)]
        return {"paragraphs": [{"context": f"passage {number}", "qas": qas}]}

    (tmp_path / "answer").mkdir()
    with gzip.open(tmp_path / "answer" / "xquad.en.json.gz", "wt", encoding="utf-8") as file:
        json.dump({"data": [article(i) for i in range(8)]}, file)
    train, test = embed.xquad(tmp_path)
    assert len(train) == 12 and len(test) == 4
    assert not {row["positive"] for row in train} & {row["positive"] for row in test}
    options = SimpleNamespace(out=tmp_path / "out", few=3, data=tmp_path)
    train_file, test_file = embed.files("xquad", options)
    assert len(train_file.read_text().splitlines()) == len(test_file.read_text().splitlines()) == 3

    def encode(texts: list[str]) -> np.ndarray:  # a question is its passage
        places = [int(text.split()[-1] if "passage" in text else text[1]) for text in texts]
        return np.eye(8)[places]

    assert embed.scores(encode, test_file)["recall_at_1"] == 1.0


def test_the_page_marks_what_missed_a_goal() -> None:
    def cell(side: str, seed: int, score: float, seconds: float) -> dict[str, Any]:
        scores = {"spearman": score}
        return {"task": "sick", "side": side, "seed": seed, "scores": scores, "steps": 11,
                "seconds": seconds}  # fmt: skip

    sides = (("ours", 10), ("theirs", 15))
    rows = [cell(side, seed, 0.7 + seed / 100, t) for seed in (1, 2) for side, t in sides]
    (row,) = embed.summary(rows, {"sick": {"spearman": 0.6}})
    assert row["faster"] == [1.5, 1.5] and row["apart"] == pytest.approx(0.0)
    page = embed.section([row])
    check_chinese("embeddings", page)
    assert "1.50 ×" in page and "0.600" in page and "missed" not in page
    worse = [cell("ours", 1, 0.1, 15), cell("ours", 2, 0.11, 15), *rows[1::2]]
    assert embed.section(embed.summary(worse, {})).count("(missed)") == 2
