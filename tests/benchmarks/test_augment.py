"""The page of augmentation: gains of the same seeds, and what is said of them."""

from __future__ import annotations

from typing import Any

import augment
import pytest

from tests.benchmarks.bilingual import check_chinese

PLAIN = {1: 0.70, 2: 0.72, 3: 0.68}
GAINS = {"file": (0.03, 0.04, 0.035), "on the fly": (0.05, -0.06, 0.01)}


def rows(seeds: int = 3) -> list[dict[str, Any]]:
    study, commands = augment.STUDIES["reviews"], []
    for arm in augment.ARMS:
        for seed in range(1, seeds + 1):
            score = PLAIN[seed] + (GAINS[arm][seed - 1] if arm != "plain" else 0.0)
            commands.append({
                "task": "reviews", "arm": arm, "size": 100, "seed": seed, "examples": 100,
                "rows": 1700 if arm == "file" else 100, "share": 0.05, "copies": 16,
                "scores": {"accuracy": score},
                "settings": study.settings(arm, 100, seed, "x"),
            })  # fmt: skip
    return commands


def test_gains_are_differences_of_the_same_seeds() -> None:
    (row,) = augment.compared(list(reversed(rows())))
    assert row["gains"]["file"] == pytest.approx(GAINS["file"])
    assert row["gains"]["on the fly"] == pytest.approx(GAINS["on the fly"])
    missing = [r for r in rows() if (r["arm"], r["seed"]) != ("file", 2)]
    assert augment.compared(missing)[0]["seeds"] == 2
    assert augment.compared([r for r in rows() if r["arm"] == "plain"]) == []


def test_what_is_said() -> None:
    text = augment.section(rows())
    check_chinese("augmentation", text)
    check_chinese("augmentation", augment.section(rows(1)))
    assert "| passes (plain / file / on the fly) |" in text
    row = "| movie reviews | 100 | 1,700 | 60 | 9.60 / 0.56 / 9.60 | accuracy | 0.700 ± 0.020 |"
    assert row in text  # 60 steps of 16
    assert "In 1 of 1 rows the file with variants is read less than once" in text
    assert "+0.035 ± 0.005 (better)" in text and "+0.000 ± 0.056 (within the noise)" in text
    assert "Of 2 comparisons: 1 better, 1 within the noise." in text
    assert "one seed says nothing" in augment.section(rows(1)) and "SICK" not in text
    assert augment.verdict([0.03, 0.05]) == "within the noise"  # 4 errors, of two pairs
    assert augment.verdict([-0.03, -0.031]) == "worse"


def test_a_file_that_is_read_whole() -> None:
    rows_of_cells = rows()
    for row in rows_of_cells:
        row["rows"] = 400
    assert "less than once" not in augment.section(rows_of_cells)


def test_a_cell_of_other_synonyms_is_another() -> None:
    study = augment.STUDIES["entail"]
    assert study.settings("file", 100, 1, "a") != study.settings("file", 100, 1, "b")
    assert study.settings("plain", 100, 1, "a") == study.settings("plain", 100, 1, "b")
