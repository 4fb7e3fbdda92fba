"""Which of the models on the way a run keeps, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.methods.finetune.run import finetune
from regard.methods.preference.run import prefer, recipe_for
from regard.methods.runs import run
from regard.training.recipe import make, read_resolved
from tests.methods.preference import preferring
from tests.tasks import tuning
from tests.training.small import data
from tests.training.small import recipe as text_recipe

ENGINE: dict[str, Any] = {"precision": "fp32", "compile": "no"}


def validations(out: Path) -> dict[int, dict[str, float]]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["valid"] for line in lines if "valid" in line}


def best_step(out: Path, metric: str, falling: str = "loss") -> int:
    """The highest metric, of equal ones the lowest loss, of equal ones the last."""
    valid = validations(out)
    return max(valid, key=lambda step: (valid[step][metric], -valid[step][falling], step))


def test_a_task_is_kept_by_its_metric(
    bert: Path, reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tuning.recipe(bert, reviews, optimizer={"lr": 0.01}, validation={"every": 1})
    facts = finetune(recipe, tmp_path / "run", display="plain")
    step = best_step(tmp_path / "run", "accuracy")
    assert facts["best"] == {
        "step": step,
        "value": validations(tmp_path / "run")[step]["accuracy"],
        "by": "accuracy",
        "samples": 8,
    }
    assert read_resolved(tmp_path / "run" / "recipe.toml").validation.best == "metric"
    shown = capsys.readouterr().err
    assert f"the model of step {step}" in shown
    assert "best accuracy" in shown and "on 8 validation samples" in shown


def test_a_task_can_be_kept_by_its_loss(bert: Path, reviews: Path, tmp_path: Path) -> None:
    changes = {"optimizer": {"lr": 0.03}, "validation": {"every": 1, "best": "loss"}}
    facts = finetune(tuning.recipe(bert, reviews, **changes), tmp_path / "run", display="silent")
    valid = validations(tmp_path / "run")
    assert facts["best"]["by"] == "loss"
    assert facts["best"]["step"] == min(valid, key=lambda step: (valid[step]["loss"], -step))


@pytest.mark.parametrize("by", [None, "metric"])
def test_text_is_kept_by_its_loss_unless_the_recipe_says_so(
    by: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = data(tmp_path / "data")
    chosen = text_recipe("bert", where, objective={"name": "masked"})
    facts = run(make(chosen.table(), {"validation": {"every": 1, "best": by}}), tmp_path / "run",
                display="plain")  # fmt: skip
    valid, shown = validations(tmp_path / "run"), capsys.readouterr().err
    lowest = min(valid, key=lambda step: (valid[step]["masked_perplexity"], -step))
    if by is None:
        assert (facts["best"]["step"], facts["best"]["by"]) == (lowest, "loss")
        assert "lowest loss on" in shown
    else:
        chosen_step = best_step(tmp_path / "run", "masked_accuracy", "masked_perplexity")
        assert (facts["best"]["step"], facts["best"]["by"]) == (chosen_step, "masked_accuracy")
        assert "best masked accuracy" in shown


@pytest.mark.parametrize(
    ("method", "by", "more"),
    [
        ("reward", "accuracy", {}),
        ("dpo", "loss", {}),
        ("grpo", "reward", {"reward": "contains:a", "group": 2, "max_new_tokens": 3}),
    ],
)
def test_preferences(method: str, by: str, more: dict[str, Any], tmp_path: Path) -> None:
    model = preferring.gpt(tmp_path / "gpt")
    pairs = [
        {"prompt": p.prompt, "chosen": p.chosen, "rejected": p.rejected}
        for p in preferring.planted(40)
    ]
    file = tuning.write(tmp_path / "pairs.jsonl", pairs)
    table = {"model": str(model), "data": str(file), "objective": more, "engine": ENGINE}
    limits = {"budget": {"steps": 4}, "batch": {"seq_len": 24}, "validation": {"every": 1}}
    facts = prefer(recipe_for(method, table, limits), tmp_path / "run", display="silent")
    valid = validations(tmp_path / "run")
    sign = -1 if by == "loss" else 1
    best = max(sign * figures[by] for figures in valid.values())
    assert facts["best"]["by"] == by
    assert sign * facts["best"]["value"] == sign * valid[facts["best"]["step"]][by] == best


def test_patience_is_lost_where_nothing_gets_better(
    bert: Path, reviews: Path, tmp_path: Path
) -> None:
    """Equal models are no better ones, and the last of them is kept."""
    changes = {"optimizer": {"lr": 0.0}, "validation": {"every": 1, "patience": 3}}
    facts = finetune(tuning.recipe(bert, reviews, **changes), tmp_path / "run", display="silent")
    assert facts["outcome"].startswith("stopped early")
    assert facts["progress"]["step"] == facts["best"]["step"] == 4
