"""A run that is only rehearsed, so that nothing dear is done for one that would be refused."""

from __future__ import annotations

import copy

from regard.training.build import check_tokenizer, labelled
from regard.training.freezing import freeze
from regard.training.parallel import Group
from regard.training.plan import foresee, optimizer_for, schedule_for
from regard.training.recipe import Recipe
from regard.training.resolve import settle_budget
from regard.training.run import pick_device

ANY = 1000  # steps, where only a clock will say how many


def rehearse(recipe: Recipe) -> None:
    """Refuses what the run of a recipe would refuse before its first step. Its model is there, of
    which only the shape is looked at; the recipe stays as it is.
    """
    recipe, alone = copy.deepcopy(recipe), Group()
    device = pick_device(recipe.engine.device)
    objective, _, ghost, batches, _ = foresee(
        recipe, alone, device, lambda note: None, settled=False
    )
    batches.close()
    if not labelled(recipe):
        check_tokenizer(recipe, objective.corpus)
    settle_budget(recipe, objective, flops=1.0)
    freeze(recipe, ghost, alone.world)
    optimizer_for(recipe, ghost)
    given = recipe.schedule.warmup
    warmup = 1 if given < 0 else given  # left open, it will be long enough
    schedule_for(recipe, ghost, warmup, recipe.budget.steps or ANY)
