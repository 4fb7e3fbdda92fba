"""A run that is only rehearsed, so that nothing dear is done for one that would be refused."""

from __future__ import annotations

from regard.methods.runs import data_for
from regard.training.build import check_tokenizer
from regard.training.optimizer import freeze
from regard.training.parallel import Group
from regard.training.plan import foresee, optimizer_for, run_facts, schedule_for
from regard.training.recipe import Recipe
from regard.training.resolve import with_budget, with_steps
from regard.training.run import pick_device

ANY = 0.6  # seconds of a step, where only a clock will say how many there are


def rehearse(recipe: Recipe) -> None:
    """Refuses what the run of a recipe would refuse before its first step. Its model is there, of
    which only the shape is looked at.
    """
    data, device = data_for(recipe), pick_device(recipe.engine.device)
    built, ghost, batches, _, paper = foresee(recipe, Group(), device, lambda note: None, data=data)
    batches.close()
    check_tokenizer(recipe, built.objective.corpus)
    facts = run_facts(built.config, ghost, built.objective, data)
    config = with_budget(built.config, paper, facts)
    freeze(config, ghost)
    optimizer_for(config, ghost)
    schedule_for(with_steps(config, paper, facts, seconds=ANY), ghost)
