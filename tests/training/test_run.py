"""A run from beginning to end: what it chooses, when it stops, what it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.core.errors import ConfigError, RegardError, StorageError
from regard.core.processes import RunLock
from regard.data.corpus import Corpus
from regard.training import plan as plans
from regard.training import run as runs
from regard.training.checkpoint import Checkpoints
from regard.training.parallel import ProcessGroup
from regard.training.recipe import Recipe, make, read_resolved, replaced
from tests.refusals import refuses
from tests.training.small import data, recipe


def train(run_recipe: Recipe, out: Path, **more: Any) -> dict[str, Any]:
    return runs.train(run_recipe, out, display="silent", **more)


def test_the_run_is_a_model_directory(where: Path, tmp_path: Path) -> None:
    """And it holds the best weights, not the last."""
    facts = train(recipe("gpt", where, optimizer={"lr": 0.5}), tmp_path / "run")
    loaded = regard.load(tmp_path / "run")
    best = Checkpoints(tmp_path / "run" / "checkpoints").best()
    assert best is not None and best.step == facts["best"]["step"]
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(value, best.tensors("weights")[name])
    assert loaded.tokenizer is not None and loaded.tokenizer.decode([8]) == "w8"
    assert {"README.md", "report.html", "run.json"} <= {
        file.name for file in (tmp_path / "run").iterdir()
    }


def test_the_final_figures_are_those_of_the_whole_split(where: Path, tmp_path: Path) -> None:
    """On the way a few samples are enough."""
    changes = {"validation": {"every": 3, "samples": 4}}
    part = train(recipe("gpt", where, **changes), tmp_path / "part")
    whole = train(recipe("gpt", where, validation={"samples": 10**6}), tmp_path / "whole")
    assert part["valid"]["bits_per_byte"] == pytest.approx(whole["best"]["value"], rel=1e-6)
    lines = (tmp_path / "part" / "metrics.jsonl").read_text().splitlines()
    seen = [json.loads(line) for line in lines if "valid" in line]
    assert [line["step"] for line in seen] == [3, 6]
    assert seen[-1]["valid"]["bits_per_byte"] != part["valid"]["bits_per_byte"]


def test_stopping_early(where: Path, tmp_path: Path) -> None:
    """A rate that only makes it worse ends after as many validations as patience allows."""
    changes: dict[str, Any] = {
        "optimizer": {"lr": 3.0, "grad_clip": 0.0},
        "validation": {"every": 1, "patience": 2},
        "budget": {"steps": 50},
    }
    facts = train(recipe("gpt", where, **changes), tmp_path / "run")
    assert facts["outcome"].startswith("stopped early")
    assert facts["progress"]["step"] == facts["best"]["step"] + 2 < 50


def test_the_mean_of_the_last_checkpoints(where: Path, tmp_path: Path) -> None:
    changes = {"checkpoint": {"every": 1, "average": 3}, "validation": {"every": 100}}
    train(recipe("gpt", where, **changes), tmp_path / "run")
    last = Checkpoints(tmp_path / "run" / "checkpoints").intact()[-3:]
    assert [saved.step for saved in last] == [4, 5, 6]
    name = "blocks.0.feed_forward.layer.wide.weight"
    expected = torch.stack([s.tensors("weights")[name].double() for s in last]).mean(0)
    averaged = regard.load(tmp_path / "run").model.state_dict()[name]
    assert torch.equal(averaged, expected.float())


def test_minutes_become_steps(where: Path, tmp_path: Path) -> None:
    run_recipe = recipe(
        "gpt", where, budget={"steps": None, "minutes": 0.05}, validation={"every": 10**6}
    )
    facts = train(run_recipe, tmp_path / "run")
    settled = read_resolved(tmp_path / "run" / "recipe.toml")
    assert settled.budget.steps > 5 and facts["progress"]["step"] <= settled.budget.steps
    assert facts["progress"]["seconds"] < 3 * 1.5


def test_long_steps_are_estimated(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only wants to see the plan does not wait for a few steps of minutes each."""
    steps: list[int] = []
    monkeypatch.setattr(plans.Loop, "step", lambda self, number: steps.append(number))
    monkeypatch.setattr(plans, "gemm_peak", lambda dtype, device: 1e5)
    notes: list[str] = []
    run_recipe = recipe("gpt", where, budget={"steps": None, "minutes": 600.0})
    plan = plans.prepare(
        run_recipe, ProcessGroup(), torch.device("cpu"), notes.append, patience=1.0
    )
    plan.batches.close()
    step = plan.facts["step_flops"] / 1e5
    assert step > plans.LONG and not steps
    assert plan.recipe.budget.steps == int(36000 / step)
    assert any("a step takes" in note and "--size" in note for note in notes)


@pytest.mark.parametrize(
    ("budget", "steps"),
    [({"tokens": 4 * 32 * 7}, 7), ({"epochs": 2.0}, None), ({"steps": 9}, 9)],
)
def test_other_budgets(budget: dict[str, Any], steps: int | None, where: Path) -> None:
    run_recipe = recipe("gpt", where, budget={"steps": None} | budget)
    plan = plans.prepare(run_recipe, ProcessGroup(), torch.device("cpu"), lambda text: None)
    plan.batches.close()
    assert plan.recipe.budget.steps == (steps or round(2 * len(plan.objective) / 4))


def test_compiling_is_tried_where_it_may_pay(
    where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cheap stand-in for the compiler; what is decided is what is measured."""
    monkeypatch.setattr(plans, "WORTH_COMPILING", 0.0)
    notes: list[str] = []
    compiled: list[bool] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: compiled.append(True))
    run_recipe = recipe("gpt", where, engine={"compile": None}, budget={"steps": 10**9})
    plan = plans.prepare(run_recipe, ProcessGroup(), torch.device("cpu"), notes.append)
    plan.batches.close()
    assert compiled and plan.recipe.engine.compile in ("yes", "no")
    assert (plan.recipe.engine.compile == "yes") == any("compiled:" in note for note in notes)


def test_two_processes_cannot_write_one_run(where: Path, tmp_path: Path) -> None:
    run_recipe = recipe("gpt", where, checkpoint={"every": 1})
    train(run_recipe, tmp_path / "run")
    with RunLock(tmp_path / "run"), refuses(StorageError, tmp_path / "run"):
        train(Recipe(), tmp_path / "run", resume=True)


def test_a_run_that_is_there_is_not_overwritten(where: Path, tmp_path: Path) -> None:
    train(recipe("gpt", where), tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with refuses(ConfigError, tmp_path / "run", "--resume"):
        train(recipe("gpt", where, seed=2), tmp_path / "run")
    facts = train(Recipe(), tmp_path / "run", resume=True)  # nothing is left to do
    assert facts["progress"]["step"] == 6
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_a_longer_budget_goes_on(where: Path, tmp_path: Path) -> None:
    train(recipe("gpt", where), tmp_path / "run")
    facts = train(make({"budget": {"steps": 9}}), tmp_path / "run", resume=True)
    assert facts["progress"]["step"] == 9


def test_a_finished_run_that_goes_on_removes_what_a_killed_one_left(
    where: Path, tmp_path: Path
) -> None:
    train(recipe("gpt", where), tmp_path / "run")
    debris = tmp_path / "run" / "checkpoints" / ".removing-step-00000001"
    debris.mkdir()
    train(make({}), tmp_path / "run", resume=True)
    assert not debris.exists()


def test_a_model_of_another_tokenizer_is_refused(where: Path, tmp_path: Path) -> None:
    train(recipe("gpt", where), tmp_path / "run")
    other = data(tmp_path / "other")
    text = (other / "tokenizer.json").read_text().replace('"w9"', '"word9"')
    (other / "tokenizer.json").write_text(text)
    run_recipe = replaced(recipe(str(tmp_path / "run"), other), shape={})
    with refuses(RegardError, other, tmp_path / "run"):
        train(run_recipe, tmp_path / "more")


def test_data_that_is_damaged_is_refused(tmp_path: Path) -> None:
    place = data(tmp_path / "data")
    tokens = place / "train-00000.tokens"
    tokens.write_bytes(tokens.read_bytes()[:-3])
    with refuses(RegardError, "train-00000.tokens", "bytes"):
        Corpus.open(place, "train")


def test_half_precision_learns_too(where: Path, tmp_path: Path) -> None:
    """bf16: products in half, weights in full precision."""
    facts = train(recipe("bert", where, engine={"precision": "bf16"}), tmp_path / "run")
    assert facts["outcome"] == "done"
    assert all(
        v.dtype == torch.float32 for v in load_file(tmp_path / "run/model.safetensors").values()
    )
    with refuses(ConfigError, "engine.precision", "fp16", "CUDA"):
        train(recipe("bert", where, engine={"precision": "fp16"}), tmp_path / "other")
