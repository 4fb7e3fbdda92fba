"""Preference tuning: what the page says of the cells, and which goals it calls missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import prefer
import pytest
from finetune_tasks import TASKS
from prefer import NAMES, WAYS, lines_of, reached, section, settings_of

from tests.benchmarks.bilingual import check_chinese

ASKS = {"start": 0.06, "dpo": 0.5, "ipo": 0.4, "grpo-judge": 0.2, "grpo-rule": 0.9,
        "grpo-firm": 0.3, "grpo-free": 0.95}  # fmt: skip
FAR = {"grpo-firm": 0.1, "grpo-free": 0.9}


def cells(**changes: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in NAMES:
        for seed in (1, 2):
            row: dict[str, Any] = {"name": name, "seed": seed, "seconds": 10.0}
            if name == "judge":
                row["valid"] = {"accuracy": changes.get("judge", 0.97)}
            else:
                figures = {"reward": ASKS[name], "kl": FAR.get(name, 0.2), "length": 9.0}
                row |= {"figures": figures, "samples": [["What?", f"{name}?"]]}
            if name == "start":
                row["data"] = {s: {"prompts": 5, "pairs": 1234} for s in ("train", "test")}
            rows.append(row)
    return rows


def test_goals_are_checked_and_misses_said() -> None:
    rows = cells()
    assert [name for name in NAMES if name != "judge" and not reached(rows, name)] == ["grpo-judge"]
    table = {line[0]: line for line in lines_of(rows)}
    assert table["GRPO, by the reward model"][3].endswith("(missed)")
    assert not table["DPO"][3].endswith("(missed)") and table["DPO"][1:3] == ["0.1", "2"]
    text = section(rows)
    check_chinese("preference", text)
    assert "0.970 ± 0.000 of unseen pairs" in text and "1,234" in text
    assert "What? → grpo-free?" in text
    assert "0.800 ± 0.000 (missed)" in section(cells(judge=0.8))


def test_a_leash_that_does_not_hold_is_said(monkeypatch: Any) -> None:
    monkeypatch.setitem(FAR, "grpo-firm", 0.8)
    firm = next(line for line in lines_of(cells()) if "firm" in line[0])
    assert firm[4].endswith("(missed)") and not firm[3].endswith("(missed)")


def test_a_cell_depends_on_what_it_was_made_with(monkeypatch: Any) -> None:
    before = settings_of("dpo", 1, False)
    assert before != settings_of("dpo", 2, False) != settings_of("dpo", 1, True)
    monkeypatch.setitem(WAYS, "dpo", WAYS["dpo"] | {"beta": 0.2})
    assert settings_of("dpo", 1, False) != before
    monkeypatch.setattr(prefer, "TOKENS", 12)
    assert settings_of("start", 1, False)["tokens"] == 12


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_depends_on_what_it_began_with(name: str, monkeypatch: Any) -> None:
    before = settings_of(name, 1, False)
    with monkeypatch.context() as changed:
        changed.setitem(WAYS, "judge", WAYS["judge"] | {"rate": 1.0})
        assert (settings_of(name, 1, False) != before) == (name in ("judge", "grpo-judge"))
    changes: list[dict[str, Any]] = [{"rate": 1.0}, {"epochs": 1}, {"batch": 1}, {"warmup": 0.5}]
    for change in changes:
        with monkeypatch.context() as changed:
            changed.setitem(TASKS, "dialogue", replace(TASKS["dialogue"], **change))
            assert settings_of(name, 1, False) != before, change
    assert settings_of(name, 1, False) == before
