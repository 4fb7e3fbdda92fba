"""The parts of a training step add up to the step, and a share that is too large is marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import steps

from tests.benchmarks.bilingual import check_chinese
from tests.training.small import data


def test_the_parts_add_up_to_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", str(data(tmp_path / "data")), "--families", "gpt", "bert", "--sizes", "tiny",
             "--tokens", "64", "--seq-len", "16", "--steps", "2", "--json"]  # fmt: skip
    steps.main([*words, "--page", str(tmp_path / "results.md")])
    rows = json.loads(capsys.readouterr().out)
    names = [(row["family"], row["by"]) for row in rows]
    assert names == [(family, by) for family in ("gpt", "bert") for by in ("muon", "adamw")]
    for row in rows:
        assert all(row[part] > 0 for part in steps.PARTS)
        assert sum(row[part] for part in steps.PARTS) == pytest.approx(row["step"])
        assert row["share"] == pytest.approx(row["optimizer"] / row["step"])
    page = (tmp_path / "results.md").read_text()
    assert "<!-- begin steps -->" in page and page.count("| muon |") == 2
    section = page.partition("<!-- begin steps -->\n")[2].partition("\n<!-- end steps -->")[0]
    assert check_chinese("steps", section) in (tmp_path / "results.zh.md").read_text("utf-8")


def test_only_the_goal_of_muon_is_judged() -> None:
    row = dict.fromkeys((*steps.PARTS, "step"), 1.0) | {"family": "gpt", "size": "tiny"}
    cases = [("muon", 4096, 0.16), ("muon", 4096, 0.15), ("muon", 1024, 0.4), ("adamw", 4096, 0.2)]
    rows = [row | {"by": by, "tokens": tokens, "share": share} for by, tokens, share in cases]
    assert ["missed" in line for line in steps.in_words(rows).splitlines()[2:]] == [
        True, False, False, False,
    ]  # fmt: skip
