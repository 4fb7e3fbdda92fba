"""Cells and the page they make."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from page import apart, cells, goal, once, put


def test_a_cell_is_measured_once_for_its_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, calls = tmp_path / "cells" / "a.json", []

    def measure() -> dict[str, float]:
        calls.append(len(calls))
        return {"seconds": float(len(calls))}

    first = once(file, measure, {"lr": 1e-3, "betas": (0.9, 0.98)})
    assert once(file, measure, {"lr": 1e-3, "betas": [0.9, 0.98]}) == first
    assert (len(calls), capsys.readouterr().err) == (1, "")
    second = once(file, measure, {"lr": 2e-3, "betas": [0.9, 0.98]})
    assert second == {"seconds": 2.0, "settings": {"lr": 2e-3, "betas": [0.9, 0.98]}}
    assert "a.json has other settings: measured again" in capsys.readouterr().err
    assert json.loads(file.read_text()) == second
    assert once(file, measure) == second


def test_a_cell_that_does_not_say_its_settings_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"seconds": 1}')
    assert once(tmp_path / "a.json", lambda: {"seconds": 2}, {"a": 1})["seconds"] == 2


def test_cells_of_other_settings_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, settings in {"now": {"rate": 1}, "before": {"rate": 2}, "gone": {"x": 1}}.items():
        row = {"name": name, "settings": settings}
        (tmp_path / f"{name}.json").write_text(json.dumps(row))
    (tmp_path / "bare.json").write_text('{"name": "bare"}')
    found = cells(tmp_path, lambda row: {"rate": 1} if "rate" in row["settings"] else None)
    assert [row["name"] for row in found] == ["now"]
    said = capsys.readouterr().err
    assert all(f"{name}.json has other settings" in said for name in ("before", "gone", "bare"))


def test_how_far_two_means_are_apart() -> None:
    assert apart([1.0, 3.0], [4.0, 6.0]) == pytest.approx(-3 / 2**0.5)
    assert apart([1.0], [2.0, 3.0]) is None
    assert apart([2.0, 2.0], [1.0, 1.0]) == math.inf
    assert apart([2.0, 2.0], [2.0, 2.0]) == 0.0


def test_a_missed_goal_is_marked(tmp_path: Path) -> None:
    assert (goal("1.2", True), goal("1.2", False)) == ("1.2", "1.2 (missed)")
    put("one", "first", tmp_path / "page.md")
    put("two", "second", tmp_path / "page.md")
    put("one", "third", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "first" not in text and text.index("third") < text.index("second")
