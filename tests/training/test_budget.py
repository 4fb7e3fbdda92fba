"""What a laptop's size learns with by default, and which model is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import ConfigError, FormatError
from regard.data.corpus import read_marker
from regard.models import FAMILIES
from regard.objectives.base import Loss
from regard.training.build import machine_facts, model_for, resolved, shaped
from regard.training.data import TextData
from regard.training.progress import summary
from regard.training.recipe import Recipe, make, overrides, read_resolved
from regard.training.run import train
from tests.refusals import refuses
from tests.training.small import data, recipe


def of_size(where: Path, **changes: Any) -> Recipe:
    return make({"model": "bert", "data": str(where), "size": "tiny"}, changes)


def settled(chosen: Recipe) -> Any:
    return resolved(chosen, TextData(), machine_facts(torch.device("cpu"), 1))


def shape_of(config: Any) -> dict[str, Any]:
    built = TextData().build(config)
    return shaped(built.config, built.objective).shape


def test_a_laptop_size_learns_by_the_budget(where: Path) -> None:
    config = settled(of_size(where, objective={"name": "masked"}))
    assert (config.recipe, config.optimizer.name, config.schedule.name) == ("budget", "muon", "wsd")
    assert config.optimizer.lr == FAMILIES["bert"].budget_training.lr
    assert config.batch.size * config.batch.seq_len == 1024 and config.objective["share"] == 0.3
    shape = shape_of(config)
    assert (shape["dropout"], shape["dropout_attention"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    "changes",
    [{"recipe": "paper"}, {"optimizer": {"name": "adamw"}}, {"size": None, "model": "bert-tiny"}],
    ids=["paper", "adamw", "published"],
)
def test_the_paper_is_asked_for(where: Path, changes: dict[str, Any]) -> None:
    config = settled(of_size(where, **changes))
    assert (config.recipe, config.optimizer.name, config.schedule.name) == (
        "paper",
        "adamw",
        "linear",
    )
    assert "share" not in config.objective
    assert shape_of(config)["dropout"] == 0.1


def test_what_is_set_stays_set(where: Path) -> None:
    changes = {"optimizer": {"lr": 0.1}, "shape": {"dropout": 0.25}, "batch": {"size": 3}}
    config = settled(of_size(where, **changes, objective={"share": 0.2}))
    assert (config.optimizer.lr, config.batch.size, config.objective["share"]) == (0.1, 3, 0.2)
    shape = shape_of(config)
    assert (shape["dropout"], shape["dropout_attention"]) == (0.25, 0.0)


def test_a_run_by_the_budget_goes_on_by_its_own_recipe(where: Path, tmp_path: Path) -> None:
    """What it was resolved to is read back as it was, without a size or a recipe being named."""
    changes: dict[str, Any] = {"size": "tiny", "optimizer": {"lr": None}, "recipe": "budget"}
    chosen = recipe("gpt", where, **changes)
    train(chosen, tmp_path / "whole", display="silent")
    train(make(chosen.table(), {"budget": {"steps": 3}}), tmp_path / "part", display="silent")
    longer = make({"budget": {"steps": 6}})
    assert read_resolved(tmp_path / "whole" / "recipe.toml").optimizer.name == "muon"
    facts = train(longer, tmp_path / "part", resume=True, display="silent")
    assert facts["progress"]["step"] == 6
    again = read_resolved(tmp_path / "part" / "recipe.toml")
    assert (again.optimizer.name, again.recipe, again.size) == ("muon", "budget", "tiny")


def test_the_model_that_is_kept_has_the_lowest_loss(where: Path, tmp_path: Path) -> None:
    """Masked models guess the commonest word for long, so that their accuracy has many ties."""
    chosen = recipe("bert", where, objective={"name": "masked"}, validation={"every": 1})
    facts = train(chosen, tmp_path / "run", display="silent")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    valid = {line["step"]: line["valid"] for line in map(json.loads, lines) if "valid" in line}
    least = min(valid, key=lambda step: (valid[step]["masked_perplexity"], -step))
    assert facts["best"]["step"] == least and len(valid) == 6


def test_badness_is_the_weighted_loss(where: Path) -> None:
    objective = TextData().build(settled(recipe("gpt", where))).objective
    totals = Loss(
        {"causal": torch.tensor(6.0), "more": torch.tensor(8.0)}, {"causal": 3, "more": 4}
    )
    objective.weights = {"more": 0.5}
    assert objective.badness(totals) == pytest.approx(2.0 + 0.5 * 2.0)


def test_every_family_has_a_model_for_the_budget(tmp_path: Path) -> None:
    """Muon finds matrices in each of them, and nothing is refused."""
    where = data(tmp_path / "data")
    for name, card in FAMILIES.items():
        chosen = make(
            {"model": name, "data": str(where), "size": "tiny"}, {"batch": {"seq_len": 32}}
        )
        built = TextData().build(settled(chosen))
        model = model_for(shaped(built.config, built.objective), built.objective)
        assert built.config.recipe == "budget" and isinstance(model, card.model)


def test_a_run_says_first_what_it_learns_with(where: Path, tmp_path: Path) -> None:
    facts = train(recipe("gpt", where, size="tiny"), tmp_path / "run", display="silent")
    assert facts["learning"] == "muon, lr 0.01, linear"
    assert "muon, lr 0.01, linear" in summary(facts)[0]


def test_data_that_cannot_be_read(tmp_path: Path) -> None:
    text = tmp_path / "book.txt"
    text.write_text("a text", encoding="utf-8")
    with refuses(FormatError, text, "regard prepare"):
        read_marker(text)
    older = data(tmp_path / "data")
    marker = json.loads((older / "data.json").read_text())
    marker["vocabulary"] = marker.pop("vocab_size")
    (older / "data.json").write_text(json.dumps(marker))
    with refuses(FormatError, "data.json", "vocab_size"):
        read_marker(older)
    with refuses(ConfigError, text, "--data"):
        overrides([str(text)])
