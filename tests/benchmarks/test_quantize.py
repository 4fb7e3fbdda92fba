"""Quantization on real data: the page is made of all cells, whichever are measured now."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import quantize

from tests.benchmarks.bilingual import check_chinese


def kind(before: float, after: float, share: float) -> dict[str, Any]:
    return {
        "bytes": {"before": 1000, "after": 1000 * share},
        "speed": {"before": 10.0, "after": 15.0},
        "score": {"figure": "accuracy", "before": before, "after": after},
    }


def measure(script: str, words: list[str]) -> dict[str, Any]:
    options = dict(zip(words[::2], words[1::2], strict=True))
    kinds = dict.fromkeys(quantize.KINDS, kind(0.8, 0.799, 0.26))
    return {"task": options["--only"], "seed": int(options["--seeds"]), "kinds": kinds}


def arguments(place: Path, only: list[str], seeds: int) -> Namespace:
    tasks = {name: quantize.TASKS[name] for name in quantize.CHOSEN}
    return Namespace(only=only, seeds=seeds, examples=0, data=place, out=place,
                     cells=place / "cells", tasks=tasks)  # fmt: skip


def test_a_part_that_is_measured_again_leaves_the_others_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize, "in_process", measure)
    quantize.measured(arguments(tmp_path, ["wnut17", "reviews"], 2))
    rows = quantize.measured(arguments(tmp_path, ["entail"], 1))
    assert [(row["task"], row["seed"]) for row in rows] == [
        ("reviews", 1), ("reviews", 2), ("wnut17", 1), ("wnut17", 2), ("entail", 1)
    ]  # fmt: skip
    text = quantize.section(rows)
    check_chinese("quantization", text)
    assert text.count("| movie reviews |") == 3 == text.count("| SICK entailment |")
    file = tmp_path / "cells" / "reviews-2.json"
    cell = json.loads(file.read_text())
    cell["settings"]["epochs"] += 1
    file.write_text(json.dumps(cell))
    left = quantize.measured(arguments(tmp_path, ["entail"], 1))
    assert len(left) == 4 and ("reviews", 2) not in [(row["task"], row["seed"]) for row in left]


def test_goals_that_are_missed_are_said() -> None:
    def rows(facts: dict[str, Any]) -> list[list[str]]:
        kinds = dict.fromkeys(quantize.KINDS, facts)
        return quantize.rows_of([{"task": "reviews", "seed": 1, "kinds": kinds}])

    assert not any("missed" in word for row in rows(kind(0.8, 0.799, 0.26)) for word in row)
    missed = [sum("missed" in word for word in row) for row in rows(kind(0.8, 0.7, 0.6))]
    assert missed == [2, 2, 2]
