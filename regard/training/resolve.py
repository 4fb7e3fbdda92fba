"""What a recipe leaves open is settled before a run: engine, optimiser, schedule and budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard.attention.native.library import library
from regard.core.errors import ConfigError
from regard.models import FAMILIES
from regard.models.family import PaperDefaults
from regard.objectives.base import Objective
from regard.training.build import family, is_directory
from regard.training.hardware import fast_bf16
from regard.training.parallel import Group
from regard.training.recipe import Recipe

ADAMS = ("adam", "adamw", "bert-adam")  # their settings are those of Muon's vectors too
DEFAULT_MINUTES = 10.0
HIGHEST = 4.0  # a narrow model's rate is at most so many times the paper's


def settle_engine(
    recipe: Recipe,
    group: Group,
    device: torch.device,
    note: Callable[[str], None],
    settled: bool,
) -> None:
    """Precision, threads, processes: a run resumed with others is not the same to the bit."""
    engine = recipe.engine
    here = {
        "threads": torch.get_num_threads(),
        "processes": group.world,
        "device": device.type,
        "native": library() is not None,
    }
    for name, now in here.items():
        then = getattr(engine, name)
        if settled and then != now:
            note(f"engine.{name} was {then} and is {now}: the result may differ in the last bits")
        elif name == "threads" and then and not settled:
            torch.set_num_threads(then)
            continue
        setattr(engine, name, now)
    if engine.precision == "auto":
        engine.precision = "bf16" if fast_bf16(device) else "fp32"
    if engine.precision == "fp16" and device.type != "cuda":
        raise ConfigError("engine.precision is fp16, which wants CUDA; use bf16 or fp32 here")


def settle_optimizer(recipe: Recipe, model: Any) -> None:
    """What the recipe leaves to the paper."""
    kind, paper = family(recipe), paper_of(recipe)
    chosen, planned = recipe.optimizer, recipe.schedule
    adam = paper.optimizer in ADAMS
    own = chosen.name in ("paper", paper.optimizer) or (chosen.name == "muon" and adam)
    width = model.config.width
    if chosen.rate < 0:
        chosen.rate = paper.lr
        if recipe.examples.task:
            pass  # what was learned before is to be kept, whatever the width
        elif adam and paper.schedule != "noam":
            usual = FAMILIES[kind].config().width  # type: ignore[attr-defined]
            chosen.rate *= min(max(1.0, usual / width), HIGHEST)
    chosen.name = paper.optimizer if chosen.name == "paper" else chosen.name
    chosen.betas = chosen.betas or list(paper.betas if own else (0.9, 0.999))
    if chosen.epsilon < 0:
        chosen.epsilon = paper.eps if own else 1e-8
    chosen.decay = paper.weight_decay if chosen.decay < 0 else chosen.decay
    chosen.clip = paper.grad_clip if chosen.clip < 0 else chosen.clip
    chosen.fall = paper.layer_decay if chosen.fall < 0 else chosen.fall
    if planned.name == "paper":
        planned.name = paper.schedule
        planned.floor = paper.min_lr_ratio if planned.floor < 0 else planned.floor
        planned.power = paper.power if planned.power < 0 else planned.power
        planned.until = planned.until or float(paper.until or 0)
    planned.floor = max(planned.floor, 0.0)
    planned.power = 1.0 if planned.power < 0 else planned.power


def paper_of(recipe: Recipe) -> PaperDefaults:
    """What the paper of the recipe's model trained with."""
    card = FAMILIES[family(recipe)]
    if recipe.examples.task:
        return card.finetuned(recipe.examples.task)
    if is_directory(recipe.model):
        return card.trained()
    paper = card.trained(recipe.model)
    return paper if card.scratch_lr is None else paper.replace(lr=card.scratch_lr)


def settle_budget(recipe: Recipe, objective: Objective, flops: float) -> None:
    """Tokens and epochs are steps already; minutes wait for a rehearsal."""
    budget = recipe.budget
    kinds = ("steps", "tokens", "minutes", "epochs", "flops")
    given = [name for name in kinds if getattr(budget, name)]
    for name in given:
        if not getattr(budget, name) > 0:  # nor what is no number
            raise ConfigError(
                f"budget.{name} is {getattr(budget, name):g}; it must be above 0, or left out"
            )
    if not given and recipe.examples.task:
        budget.epochs = float(FAMILIES[family(recipe)].finetuned(recipe.examples.task).epochs or 1)
    elif not given:
        budget.minutes = DEFAULT_MINUTES
    elif len(given) > 1 and given != ["steps", "minutes"]:
        raise ConfigError(f"the budget is given in {' and '.join(given)}; choose one")
    if budget.clock and (not budget.minutes or recipe.engine.processes > 1):
        raise ConfigError(
            "budget.clock ends a run of a single process by its minutes; give budget.minutes, or "
            "leave the clock out"
        )
    if budget.tokens:
        budget.steps = max(1, int(budget.tokens / (recipe.batch.samples * objective.usual)))
        budget.tokens = 0
    if budget.flops:
        budget.steps, budget.flops = max(1, int(budget.flops / flops)), 0.0
    if budget.epochs:
        budget.steps = max(1, round(budget.epochs * len(objective) / recipe.batch.samples))
        budget.epochs = 0.0
