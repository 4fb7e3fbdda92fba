"""Distillation on real data: what is averaged, what is marked as missed."""

from __future__ import annotations

from typing import Any

import pytest
from distill import NAMES, TASKS, compared, lines_of, section, settings_of

from tests.benchmarks.bilingual import check_chinese


def cell(seed: int, student: float, speed: float, parameters: int = 59) -> Any:
    measure = TASKS["reviews"].measure
    scored = {"teacher": 0.9, "student": student, "alone": 0.8}
    return {
        "task": "reviews",
        "seed": seed,
        "precision": "fp32",
        "epochs": 10,
        "seconds": {"teacher": 5.0, "student": 9.0, "alone": 4.0},
        "scores": {side: {measure: value} for side, value in scored.items()},
        "speed": {"teacher": 10.0, "student": 10.0 * speed, "alone": 10.0 * speed},
        "parameters": {"teacher": 100, "student": parameters, "alone": parameters},
        "bytes": {"teacher": 400, "student": 236, "alone": 236},
    }


def test_means_over_the_seeds() -> None:
    (row,) = compared([cell(1, 0.88, 1.8), cell(2, 0.90, 2.0)])
    assert row["kept"] == pytest.approx(0.89 / 0.9) and row["share"] == 0.59
    assert row["speed"] == pytest.approx([1.8, 2.0]) and row["seeds"] == 2
    assert row["alone_kept"] == pytest.approx(0.8 / 0.9)


def test_misses_are_said() -> None:
    good = " ".join(lines_of(compared([cell(1, 0.88, 1.8)]))[0])
    assert "missed" not in good and "97.8%" in good
    for bad in (cell(1, 0.85, 1.8), cell(1, 0.88, 1.5), cell(1, 0.88, 1.8, 61)):
        assert " ".join(lines_of(compared([bad]))[0]).count("missed") == 1
    text = section([cell(1, 0.88, 1.8)])
    assert "## Distillation" in text and "## 蒸馏" in check_chinese("distillation", text)


def test_a_cell_depends_on_all_that_the_student_learns_by() -> None:
    settings = settings_of(TASKS[NAMES[0]], 1, "fp32", 10)
    assert settings != settings_of(TASKS[NAMES[0]], 1, "fp32", 9)
    assert {"student", "words", "losses", "student_rate"} <= set(settings)
