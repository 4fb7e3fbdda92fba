"""A run that is only rehearsed, so that nothing dear is done for one that would be refused."""

from __future__ import annotations

import copy
from typing import Any

from regard.training.batches import Batches
from regard.training.build import (
    check_tokenizer,
    labelled,
    objective_for,
    outline,
    settle_batch,
    validation_for,
)
from regard.training.freezing import freeze
from regard.training.optimizer import optimizer
from regard.training.parallel import Group
from regard.training.plan import (
    about,
    refuse_too_large,
    settle_budget,
    settle_engine,
    settle_optimizer,
)
from regard.training.recipe import Recipe
from regard.training.robust import check_model, settle_robust
from regard.training.run import pick_device
from regard.training.schedule import schedule

ANY = 1000  # steps, where only a clock will say how many


def rehearse(recipe: Recipe) -> None:
    """Refuses what the run of a recipe would refuse before its first step. Its model is there, of
    which only the shape is looked at; the recipe stays as it is.
    """
    recipe, alone = copy.deepcopy(recipe), Group()
    device = pick_device(recipe.engine.device)
    settle_engine(recipe, alone, device, lambda note: None, settled=False)
    settle_robust(recipe, alone.world)
    settle_batch(recipe)
    objective, valid = objective_for(recipe, "train"), validation_for(recipe)
    ghost = outline(recipe, objective)
    check_model(recipe.robust, ghost)
    if valid is not None:
        valid.check(ghost)
    if not labelled(recipe):
        check_tokenizer(recipe, objective.corpus)
    settle_optimizer(recipe, ghost)
    batches = Batches(objective, recipe.batch.samples, recipe.batch.accumulate, 0, alone.world)
    batches.close()
    refuse_too_large(about(recipe, ghost, objective, batches))
    settle_budget(recipe, objective, flops=1.0)
    freeze(recipe, ghost, alone.world)
    check_rates(recipe, ghost)


def check_rates(recipe: Recipe, model: Any) -> None:
    """Builds the optimiser and the schedule, which refuse what they cannot be."""
    chosen, planned = recipe.optimizer, recipe.schedule
    optimizer(
        chosen.name,
        model,
        rate=chosen.rate,
        betas=(chosen.betas[0], chosen.betas[1]),
        epsilon=chosen.epsilon,
        decay=chosen.decay,
        fall=chosen.fall,
    )
    schedule(
        planned.name,
        rate=chosen.rate,
        warmup=1 if planned.warmup < 0 else planned.warmup,  # left open, it will be long enough
        steps=recipe.budget.steps or ANY,
        width=model.config.width,
        floor=planned.floor,
        power=planned.power,
        until=planned.until or None,
    )
