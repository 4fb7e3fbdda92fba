"""Preference tuning: a model that generates text learns what people prefer.

    method   learns                                              from
    reward   to score replies (a model of its own)               pairs
    dpo      to prefer the chosen replies itself                 pairs
    ipo      the same, with a margin that is not to be exceeded  pairs
    grpo     to write replies that get a high reward             prompts, and a reward

All are objectives of the one training loop. dpo, ipo and grpo stay near the model that they start
as, which is loaded a second time and never changed. Learning rates and sizes are our own, for
models of a laptop's size: papers tune models a hundred times larger at a tenth of the rate and
less.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, UnknownName
from regard.formats.directory import Checkpoint
from regard.methods.preference.rewards import reward_options
from regard.methods.runs import check_pretrained, run
from regard.training import recipe as recipes
from regard.training.recipe import Recipe, Table
from regard.training.recipe_parts import Robust

TASK = "prefer"
SHARED: Table = {
    "examples": {"task": TASK},
    "optimizer": {"weight_decay": 0.0, "grad_clip": 1.0},
    "schedule": {"name": "linear", "warmup": 0.1},
    "engine": {"compile": "no"},  # rows have all lengths, and a second model runs
}
QUIET = asdict(Robust())
METHODS: dict[str, Table] = {
    name: {
        "objective": objective,
        "batch": {"size": samples},
        "budget": {"epochs": epochs},
        "optimizer": {"lr": rate},
    }
    for name, objective, samples, epochs, rate in (
        ("reward", {"name": "reward"}, 16, 2.0, 1e-4),
        ("dpo", {"name": "prefer", "loss": "sigmoid"}, 16, 2.0, 2e-5),
        ("ipo", {"name": "prefer", "loss": "ipo"}, 16, 2.0, 2e-5),
        ("grpo", {"name": "reinforce"}, 8, 1.0, 2e-5),
    )
}


def recipe_for(method: str, *tables: Table) -> Recipe:
    """Returns the recipe of a method, updated by `tables`. A budget in them replaces the method's
    budget."""
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    base = dict(METHODS[method])
    if any("budget" in table for table in tables):
        base.pop("budget")
    return recipes.make(SHARED, base, *tables)


def prefer(
    recipe: Recipe, out: Path, *, resume: bool = False, display: str = "auto"
) -> dict[str, Any]:
    """Trains by a recipe of `recipe_for` and returns the content of run.json."""
    if not resume:
        check(recipe)
    return run(recipe, Path(out), resume=resume, display=display)


def check(recipe: Recipe) -> None:
    """Raises ConfigError for a recipe that cannot be trained in this way, before any data
    is read."""
    check_pretrained(recipe.model, "preference tuning needs a trained model")
    name, parallel = recipe.objective.get("name"), recipe.engine.parallel
    if name != "reward" and reward_options(Path(recipe.model)) is not None:
        raise ConfigError(
            f"{recipe.model} is a reward model, which scores replies and cannot write them; give "
            "the model that it was made from, and this one as --reward with --method grpo"
        )
    if name == "reinforce" and parallel == "fsdp":
        raise ConfigError(
            "engine.parallel is fsdp, but replies have different lengths, so the processes would "
            "wait for each other; use ddp"
        )
    disturbances = [key for key, value in asdict(recipe.robust).items() if value != QUIET[key]]
    if disturbances and name != "reward":
        raise ConfigError(
            f"robust.{disturbances[0]} disturbs the model, and here it is compared with the start "
            "model, which is not disturbed; leave it out (--method reward may use it)"
        )
    if recipe.augment.methods:
        raise ConfigError(
            "augment.methods would change the replies, and then the chosen one may no longer be "
            "the better one; leave it out"
        )


def check_reward(loaded: Checkpoint) -> None:
    """Raises ConfigError if the model is no reward model."""
    if loaded.path is None or reward_options(loaded.path) is None:
        raise ConfigError(
            f"{loaded.path or 'this model'} is no reward model; make one with 'regard align MODEL "
            "--method reward --data PAIRS --out RUN'"
        )
