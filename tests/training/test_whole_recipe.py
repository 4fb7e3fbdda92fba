"""A resolved recipe is whole: it alone decides the model, and a resumed run takes it as it is."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import ConfigError
from regard.methods.runs import run
from regard.models import FAMILIES, gpt
from regard.training.build import config_of, configuration, is_whole, shape_table
from regard.training.loop import Loop
from regard.training.recipe import Recipe, dump, make, read_resolved
from tests.refusals import refuses
from tests.training.small import planned
from tests.training.test_never_lost import bits, figures


def small(where: Path, **changes: Any) -> Recipe:
    """What a laptop's size leaves open is left open here, too."""
    table = {"model": "gpt", "data": str(where), "size": "tiny", "budget": {"steps": 6}}
    limits: dict[str, Any] = {"batch": {"size": 2, "seq_len": 16}, "validation": {"every": 2}}
    return make(table, limits, {"shape": {"width": 16}}, changes)


def changed_card(patch: pytest.MonkeyPatch) -> None:
    """Every default of the card, and of its configuration, becomes another one."""
    config = dataclasses.make_dataclass(
        "OtherConfig", [("dropout", float, 0.3), ("layers", int, 3), ("ffn_size", int, 24)],
        bases=(gpt.GPTConfig,), frozen=True,
    )  # fmt: skip
    other = dataclasses.replace(
        gpt.FAMILY,
        config=config,
        laptop=lambda shape, seq_len: {"layers": 1, "heads": 1, "dropout_attention": 0.4},
        objective_fields=lambda objective, options, seq_len: {"norm_eps": 0.1},
        budget_training=gpt.FAMILY.budget_training.replace(
            lr=1e-4, schedule="linear", optimizer="adamw", weight_decay=0.5, warmup=0.5
        ),
        budget_objectives={"causal": {"shift": False, "documents": "separate"}},
    )
    patch.setattr(gpt, "FAMILY", other)


def stop(chosen: Recipe, out: Path, patch: pytest.MonkeyPatch) -> None:
    """Trains until the fourth step."""
    plain = Loop.step

    def step(self: Loop, *rest: Any) -> Any:
        if self.progress.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self, *rest)

    with patch.context() as inside:
        inside.setattr(Loop, "step", step)
        assert run(chosen, out, display="silent")["outcome"] == "interrupted"


def test_a_changed_card_changes_no_resumed_run(
    where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(small(where), tmp_path / "whole", display="silent")
    stop(small(where), tmp_path / "parts", monkeypatch)
    changed_card(monkeypatch)
    result = run(Recipe(), tmp_path / "parts", resume=True, display="silent")
    assert result["outcome"] == "done" and result["progress"]["step"] == 6
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")
    again = planned(small(where)).recipe  # what begins now goes by the card that is there now
    assert (again.optimizer.name, again.shape["layers"]) == ("adamw", 1)


def test_a_resumed_fine_tuning_keeps_the_shape_that_it_began_with(
    where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where config.json of the model that it began from says something else by then."""
    run(small(where), tmp_path / "base", display="silent")
    tuned = make(small(where).table(), {"model": str(tmp_path / "base"), "recipe": "paper"})
    tuned = dataclasses.replace(tuned, size=None, shape={})
    run(tuned, tmp_path / "whole", display="silent")
    stop(tuned, tmp_path / "parts", monkeypatch)
    file = tmp_path / "base" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"resid_pdrop": 0.5}))
    run(Recipe(), tmp_path / "parts", resume=True, display="silent")
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")


@pytest.mark.parametrize("name", list(FAMILIES))
def test_the_recipe_names_every_field_of_the_model(name: str, where: Path) -> None:
    plan = planned(small(where, model=name, shape={}, batch={"seq_len": 32}))
    shape = tomllib.loads(dump(plan.recipe))["shape"]
    card, config = FAMILIES[name], plan.loop.model.config
    assert is_whole(card, shape) and config_of(card, shape) == config
    assert shape_table(config) == shape and configuration(plan.recipe) == config
    dropouts = [value for key, value in shape.items() if key.startswith("dropout")]
    assert len(dropouts) == len([f for f in card.config.__dataclass_fields__ if "dropout" in f]) - (
        getattr(config, "dropout_head", 0) is None
    )


def test_a_resolved_recipe_resolves_to_itself(where: Path, tmp_path: Path) -> None:
    run(small(where), tmp_path / "run", display="silent")
    resolved = read_resolved(tmp_path / "run" / "recipe.toml")
    assert dump(planned(make(resolved.table())).recipe) == dump(resolved)


def test_all_options_of_the_objective_are_named(where: Path) -> None:
    chosen = planned(small(where, model="bert", shape={}, objective={"name": "masked"})).recipe
    assert {"share", "rare", "whole_words", "dynamic", "duplicates"} <= chosen.objective.keys()
    assert chosen.objective["share"] == 0.3


def test_a_directory_has_its_shape(where: Path, tmp_path: Path) -> None:
    run(small(where), tmp_path / "base", display="silent")
    base = {
        "model": str(tmp_path / "base"),
        "data": str(where),
        "budget": {"steps": 2},
        "batch": {"size": 4},
    }
    plan = planned(make(base))
    assert plan.recipe.shape["width"] == 16 and plan.recipe.shape["dropout"] == 0.0
    assert planned(make(plan.recipe.table())).recipe.shape == plan.recipe.shape
    for other in ({"shape": {"width": 8}}, {"size": "tiny"}):
        with refuses(ConfigError, "base", "shape"):
            planned(make(base, other))
