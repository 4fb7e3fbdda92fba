"""What a run will be, before its first step: all that is built, and what it will need."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from regard.core.errors import RegardError
from regard.objectives.base import Objective
from regard.training.adversary import Disturbed
from regard.training.batches import Batches
from regard.training.build import (
    about_data,
    describe,
    labelled,
    model_for,
    objective_for,
    outline,
    settle_batch,
    validation_for,
)
from regard.training.freezing import Thaw, freeze, work
from regard.training.hardware import (
    gemm_peak,
    memory,
    resting_memory,
    step_flops,
    training_memory,
)
from regard.training.loop import Loop
from regard.training.optimizer import optimizer
from regard.training.parallel import Group, engine
from regard.training.rdrop import agreeing
from regard.training.recipe import Recipe
from regard.training.resolve import paper_of, settle_budget, settle_engine, settle_optimizer
from regard.training.robust import check_model, deepen, disturbs, passes, settle_robust
from regard.training.schedule import BY_WIDTH, schedule
from regard.training.train_module import DTYPES, Learner, checkpoint_blocks

WARMUP = 0.1  # of a run too short for the paper's warm-up
LEAST_WARMUP = 0.02  # where a paper gives a share of very many steps
VALIDATIONS = 20  # in a run
WORTH_COMPILING = 15 * 60.0  # seconds; a shorter run cannot repay a minute of compiling
CHECKING = 0.1  # of the time of a run may go into validations on the way
LONG = 20.0  # seconds of a step; one wants to know before waiting for a few
SHORT = 50  # steps of a run that is over before it is measured
REHEARSAL = 0.02  # of a budget in minutes goes into measuring a step


@dataclass
class Plan:
    recipe: Recipe
    objective: Objective
    valid: Objective | None
    batches: Batches
    loop: Loop
    facts: dict[str, Any]
    peak: float  # FLOP/s of this machine, measured
    step_flops: float


def prepare(
    recipe: Recipe,
    group: Group,
    device: torch.device,
    note: Callable[[str], None],
    *,
    settled: bool,  # the recipe is that of a run to go on with
    patience: float = math.inf,  # seconds; a step that takes longer is estimated, not measured
) -> Plan:
    """Builds everything, estimates, refuses what cannot fit, and settles the number of steps."""
    objective, valid, _, batches, facts = foresee(recipe, group, device, note, settled=settled)
    facts["data"] = about_data(recipe, objective, valid)
    model = model_for(recipe, objective)
    for held in (objective, valid):
        if held is not None and held.note:
            note(held.note)
    if recipe.engine.precision == "fp64":
        model.double()
    model.to(device)
    if recipe.robust.depth:
        deepen(model, recipe.robust.depth)
    if recipe.engine.checkpointing:
        checkpoint_blocks(model)
    rows = rows_of(objective)
    usual, samples = round(objective.usual / rows), recipe.batch.samples * rows
    flops = step_flops(model, usual, samples, **extent(model, objective)) * passes(recipe.robust)
    settle_budget(recipe, objective, flops)
    freeze(recipe, model, group.world)
    loop = loop_for(recipe, model, objective, batches, group)
    peak = gemm_peak(DTYPES[recipe.engine.precision])
    if not settled:
        facts["seconds_needed"] = rehearse(recipe, loop, flops / peak, patience, note)
    elif recipe.engine.compile == "yes":
        loop.engine.learner.compile()
    if recipe.optimizer.thaw:  # from here on: what was rehearsed is the most that a step costs
        loop.thaw = Thaw(model, recipe.optimizer.frozen, recipe.optimizer.thaw)
    settle_steps(recipe, loop, model, objective)
    flops *= work(model)
    facts |= {"steps": recipe.budget.steps, "gemm_peak": peak, "step_flops": flops}
    return Plan(recipe, objective, valid, batches, loop, facts, peak, flops)


class Foreseen(NamedTuple):
    objective: Objective
    valid: Objective | None
    ghost: Any  # the model without weights
    batches: Batches
    facts: dict[str, Any]


def foresee(
    recipe: Recipe,
    group: Group,
    device: torch.device,
    note: Callable[[str], None],
    *,
    settled: bool,
) -> Foreseen:
    """All that is known before there are weights; what cannot be, or cannot fit, is refused."""
    settle_engine(recipe, group, device, note, settled)
    settle_robust(recipe, group.world)
    settle_batch(recipe)
    objective, valid = objective_for(recipe, "train"), validation_for(recipe)
    ghost = outline(recipe, objective)
    check_model(recipe.robust, ghost)
    if valid is not None:
        valid.check(ghost)
    else:
        note("the data has no validation text: nothing is measured on the way")
    settle_optimizer(recipe, ghost)
    batches = Batches(
        objective, recipe.batch.samples, recipe.batch.accumulate, group.rank, group.world
    )
    facts = about(recipe, ghost, objective, batches)
    refuse_too_large(facts)
    return Foreseen(objective, valid, ghost, batches, facts)


def loop_for(
    recipe: Recipe, model: Any, objective: Objective, batches: Batches, group: Group
) -> Loop:
    robust, words = recipe.robust, None
    if disturbs(robust):
        corpus = objective.corpus
        words = Disturbed(model, robust, corpus.special, corpus.vocabulary, recipe.seed)
    if robust.agree:
        objective = agreeing(objective, robust.agree, words)
    learner = Learner(model, objective)
    made = engine(recipe.engine.parallel, learner, group, recipe.engine.every, recipe.engine.warmup)
    loop = Loop(
        made,
        objective,
        batches,
        optimizer_for(recipe, model),
        lambda step: 0.0,  # the schedule is known once the steps are
        group,
        seed=recipe.seed,
        precision=recipe.engine.precision,
        limit=recipe.optimizer.clip,
    )
    if words is not None:
        loop.passes = words
    return loop


def optimizer_for(recipe: Recipe, model: Any) -> torch.optim.Optimizer:
    chosen = recipe.optimizer
    return optimizer(
        chosen.name,
        model,
        rate=chosen.rate,
        betas=(chosen.betas[0], chosen.betas[1]),
        epsilon=chosen.epsilon,
        decay=chosen.decay,
        fall=chosen.fall,
        products=torch.bfloat16 if recipe.engine.precision == "bf16" else None,
        keep_zeros=chosen.zeros,
    )


def schedule_for(recipe: Recipe, model: Any, warmup: float, steps: int) -> Callable[[int], float]:
    planned = recipe.schedule
    return schedule(
        planned.name,
        rate=recipe.optimizer.rate,
        warmup=warmup,
        steps=steps,
        width=model.config.width,
        floor=planned.floor,
        power=planned.power,
        until=planned.until or None,
    )


def rehearse(
    recipe: Recipe, loop: Loop, least: float, patience: float, note: Callable[[str], None]
) -> float:
    """Minutes become steps, and it shows whether compiling pays; the seconds that a run will take,
    0 for one too short to be worth asking. By its operations a step takes `least` seconds or more.
    """
    budget, machine = recipe.budget, recipe.engine
    timed = bool(budget.minutes) and not budget.steps
    seconds = max(1.0, budget.minutes * 60 * REHEARSAL)
    if machine.compile == "yes":
        loop.engine.learner.compile()
    if not timed and budget.steps < SHORT:
        machine.compile = "no" if machine.compile == "auto" else machine.compile
        return 0.0
    if least > LONG:
        note(
            f"by its operations alone a step takes {least:.0f} s on this machine; for shorter ones "
            "choose a smaller --size or batch.samples"
        )
    plain = least if least > patience else loop.rehearse(seconds)
    whole = budget.minutes * 60 if timed else budget.steps * plain
    if machine.compile == "auto":
        machine.compile = "no"
        if whole > WORTH_COMPILING and plain <= patience:
            plain = try_compiled(recipe, loop, plain, whole, note)
    if timed:
        budget.steps = max(1, int(budget.minutes * 60 / plain))
        note(f"{plain:.3g} s a step: {budget.minutes:g} minutes are {budget.steps:,} steps")
    return budget.steps * plain


def try_compiled(
    recipe: Recipe, loop: Loop, plain: float, whole: float, note: Callable[[str], None]
) -> float:
    """Compiles if what it saves is more than what it costs."""
    import time

    began = time.perf_counter()
    loop.engine.learner.compile()
    try:
        quick = loop.rehearse(5 * plain)
    except Exception as error:  # whatever a compiler can fail at, the plain way remains
        note(f"not compiled: {type(error).__name__}")
        quick = plain
    cost = time.perf_counter() - began
    cost, quick = loop.group.share([cost, quick])
    saved = whole * (1 - quick / plain)
    if saved > cost:
        recipe.engine.compile = "yes"
        note(f"compiled: {plain:.3g} s a step became {quick:.3g} s")
        return quick
    loop.engine.learner._compiled_call_impl = None
    return plain


def settle_steps(recipe: Recipe, loop: Loop, model: Any, objective: Objective) -> None:
    """What depends on the number of steps."""
    steps, planned = recipe.budget.steps, recipe.schedule
    if planned.warmup < 0:
        planned.warmup = float(paper_of(recipe).warmup)
        if 0 < planned.warmup < LEAST_WARMUP and not recipe.examples.task:
            planned.warmup = LEAST_WARMUP
        short = max(1.0, float(int(WARMUP * steps)))
        if planned.warmup > short:
            if planned.name in BY_WIDTH:  # the height of the curve stays that of the paper
                recipe.optimizer.rate *= (short / planned.warmup) ** 0.5
            planned.warmup = short
    loop.rate = schedule_for(recipe, model, planned.warmup, steps)
    if recipe.budget.clock:
        limit = 60 * recipe.budget.minutes
        loop.at = lambda step: min(steps, max(1, round(loop.progress.seconds / limit * steps)))
    checks = recipe.validation
    if labelled(recipe):  # every epoch, and all of it: examples are few
        checks.every = checks.every or max(1, len(objective) // recipe.batch.samples)
        checks.samples = checks.samples or 2**31
    if checks.every == 0:
        checks.every = max(1, steps // VALIDATIONS)
    if checks.samples == 0:  # going forward is a third of a step
        times = max(1, steps // checks.every)
        checks.samples = max(1, int(3 * CHECKING * steps / times)) * recipe.batch.samples


def about(recipe: Recipe, model: Any, objective: Objective, batches: Batches) -> dict[str, Any]:
    """What is said before a run, and stands in run.json."""
    need = training_memory(
        model,
        batches.size * rows_of(objective) * (2 if recipe.robust.agree else 1),
        objective.longest,
        optimizer=recipe.optimizer.name,
        precision=recipe.engine.precision,
        checkpointing=recipe.engine.checkpointing,
        **extent(model, objective),
    )
    need += sum(map(resting_memory, objective.beside()))
    return {
        "model": {"name": recipe.model, **describe(model)},
        "objective": objective.name,
        "samples": len(objective),
        "tokens_per_step": round(recipe.batch.samples * objective.usual),
        "memory_needed": need,
        "memory_free": memory()["available"],
        "precision": recipe.engine.precision,
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": recipe.engine.threads,
        },
    }


def rows_of(objective: Objective) -> int:
    """How many rows a sample is read as: none of them sees another."""
    return -(-objective.largest // max(1, objective.longest))


def extent(model: Any, objective: Objective) -> dict[str, int]:
    """How many targets a row of a sample has, and how many rows a model remembers."""
    targets = objective.targets_in(objective.collate([objective.get(0)]))
    past = getattr(model.config, "memory", 0) if objective.recurrent else 0
    return {"targets": -(-targets // rows_of(objective)), "past": past or 0}


def refuse_too_large(facts: dict[str, Any]) -> None:
    need, free = facts["memory_needed"], facts["memory_free"]
    if need > free:
        raise RegardError(
            f"this run needs about {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free; choose "
            "a smaller size, batch.accumulate for smaller micro-batches, or "
            "engine.checkpointing=true"
        )
