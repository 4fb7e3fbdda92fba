"""Plans a run before its first step: builds everything, and estimates what it needs."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from regard.core.errors import InputError, RegardError, counted
from regard.models import FAMILIES
from regard.models.family import PaperDefaults
from regard.objectives.base import Objective, hooks_of
from regard.training.build import (
    describe,
    family,
    is_directory,
    machine_facts,
    model_for,
    outline,
    resolved,
    shaped,
)
from regard.training.data import BuiltData, TextData
from regard.training.hardware import (
    gemm_peak,
    memory,
    resting_memory,
    step_flops,
    training_memory,
)
from regard.training.loop import Batches, Loop
from regard.training.optimizer import GradualUnfreezing, freeze, layers_of, optimizer, work
from regard.training.parallel import ProcessGroup, engine
from regard.training.recipe import FrozenConfig, Recipe, Resolved
from regard.training.resolve import (
    RunFacts,
    disturbs,
    lr_scale,
    milestones_of,
    paper_of,
    several_passes,
    with_budget,
    with_steps,
)
from regard.training.schedule import BY_WIDTH, schedule, warmup_steps
from regard.training.sizing import sized
from regard.training.train_module import DTYPES, TrainModule, checkpoint_blocks

WORTH_COMPILING = 15 * 60.0  # seconds; a shorter run cannot repay a minute of compiling
LONG = 20.0  # seconds; the user is warned of longer steps before a few are measured
SHORT = 50  # steps; a shorter run is over before it could be measured
FEW_STEPS = 30  # steps; a shorter run says that it is short
REHEARSAL = 0.02  # the share of a budget in minutes for measuring a step

Note = Callable[[str], None]


@dataclass
class TrainingPlan:
    recipe: FrozenConfig
    objective: Objective
    valid: Objective | None
    batches: Batches
    loop: Loop
    facts: dict[str, Any]
    peak: float  # FLOP/s of matrix products on the devices of all processes, measured
    step_flops: float
    milestones: dict[int, list[int]]  # the words after which a model is saved, by their step


def prepare(
    recipe: Recipe,
    group: ProcessGroup,
    device: torch.device,
    note: Note,
    *,
    resumed: bool = False,  # whether the recipe is that of a run to resume
    data: TextData | None = None,
    patience: float = math.inf,  # seconds; a step that takes longer is estimated, not measured
) -> TrainingPlan:
    """Builds everything, estimates the cost, refuses what cannot fit, and resolves the recipe."""
    data, began, group = data or TextData(), time.perf_counter(), group.split(recipe.engine.tensor)
    (objective, valid, config), _, batches, facts, paper = foresee(
        recipe, group, device, note, resumed=resumed, data=data
    )
    facts["data"] = data.about(BuiltData(objective, valid, config))
    model = model_for(config, objective)
    for built in (objective, valid):
        if built is not None and built.note:
            note(built.note)
    if config.engine.precision == "fp64":
        model.double()
    model.to(device)
    if config.robust.drop_path:
        from regard.training.robust import deepen

        deepen(model, config.robust.drop_path)
    if config.engine.checkpointing:
        checkpoint_blocks(model)
    run = run_facts(config, model, objective, data)
    config = with_budget(config, paper, run)
    freeze(config, model)
    loop = loop_for(config, model, objective, batches, group)
    peak = gemm_peak(DTYPES[config.engine.precision], device=device) * group.world
    timing = Timing(None, config.engine.compile == "yes")
    if config.engine.compile == "yes":
        loop.engine.learner.compile()
    if not resumed:
        timing = rehearse(config, loop, run.flops / peak, patience, note)
    frozen = with_steps(config, paper, run, seconds=timing.seconds, compiled=timing.compiled)
    if not resumed:
        facts["seconds_needed"] = frozen.budget.steps * (timing.seconds or 0.0)
        if config.budget.steps is None:
            pace = f"{timing.seconds:.3g} s a step: {frozen.budget.minutes:g} minutes are"
            note(f"{pace} {counted(frozen.budget.steps, 'step')}")
    milestones = milestones_of(frozen, len(objective), data.words(frozen))
    if not resumed:
        gone = time.perf_counter() - began
        late = late_milestones(milestones, frozen.budget.steps)
        for text in (*notes(recipe, frozen, paper, model, gone), *late):
            note(text)
    set_pace(frozen, loop, model)
    flops = run.flops * work(model)
    chosen = frozen.optimizer
    facts["learning"] = f"{chosen.name}, lr {chosen.lr:.3g}, {frozen.schedule.name}"
    if model.extensions:  # some of them freeze the weights of the model
        learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
        facts["learning"] += f" · {learning:,} of them learn" * (learning < model.parameter_count())
    facts |= {"steps": frozen.budget.steps, "gemm_peak": peak, "step_flops": flops}
    return TrainingPlan(frozen, objective, valid, batches, loop, facts, peak, flops, milestones)


def notes(
    recipe: Recipe, config: FrozenConfig, paper: PaperDefaults, model: Any, seconds: float
) -> Iterator[str]:
    """What a user may not expect of the rates and the steps; `seconds` have gone before them."""
    steps, minutes, lr = config.budget.steps, config.budget.minutes, config.optimizer.lr
    warmup, width = warmup_steps(config.schedule.warmup, steps), model.config.width
    if minutes and seconds > minutes * 60:
        yield (
            f"to get ready took {seconds:.0f} s, longer than the budget of {minutes * 60:.0f} s, "
            "which is for the steps alone: the whole takes longer"
        )
    if steps < FEW_STEPS:
        yield (
            f"{steps} steps are few, {warmup} of them with a rising learning rate; for more give "
            "more --epochs or --steps, or a smaller --batch-size"
        )
    if recipe.schedule.warmup is not None and recipe.schedule.warmup != config.schedule.warmup:
        yield (
            f"a warm-up of {recipe.schedule.warmup:g} steps is longer than this run of {steps}; it "
            f"takes {warmup} instead"
        )
    scale = lr_scale(paper, model.family, width)
    if recipe.optimizer.lr is None and scale > 1:
        yield (
            f"the paper's learning rate of {paper.lr:.3g} is for a wider model; this one of width "
            f"{width} learns at {scale:.3g} times that, {lr:.3g} (--lr changes it)"
        )
    elif recipe.optimizer.lr is not None and config.examples.task and scale > 1 and lr <= paper.lr:
        yield (
            f"lr {lr:.3g} is a rate for a wider model; one of width {width} usually learns at up "
            f"to {scale:.3g} times that, as with --lr {scale * lr:.2g}"
        )
    if config.schedule.name in BY_WIDTH and recipe.optimizer.lr is not None:
        highest = lr / (width * max(1.0, config.schedule.warmup)) ** 0.5
        yield (
            f"with the schedule {config.schedule.name} the rate is a factor, and the highest "
            f"learning rate is {highest:.2g}; --schedule linear takes --lr as it is"
        )


def late_milestones(milestones: dict[int, list[int]], steps: int) -> Iterator[str]:
    late = [words for step, each in milestones.items() for words in each if step > steps]
    if late:
        yield (
            f"this run of {counted(steps, 'step')} ends before {late[0]:,} words of the text are "
            "read, so checkpoint.at_words saves no model there"
        )


class PlannedRun(NamedTuple):
    built: BuiltData
    ghost: Any  # the model without weights
    batches: Batches
    facts: dict[str, Any]
    paper: PaperDefaults


def foresee(
    recipe: Recipe,
    group: ProcessGroup,
    device: torch.device,
    note: Note,
    *,
    data: TextData,
    resumed: bool = False,
) -> PlannedRun:
    """Returns all that is known before there are weights; refuses what cannot run or fit."""
    if recipe.engine.threads and not resumed:
        torch.set_num_threads(recipe.engine.threads)
    machine = machine_facts(device, group.world)
    for change in machine.changes(recipe) if resumed else []:
        note(change)
    if not resumed and not data.of_examples:
        speed = partial(speed_of, group, device)
        recipe = sized(recipe, FAMILIES[family(recipe)], speed, note)
    built = data.build(resolved(recipe, data, machine))
    built = built._replace(config=shaped(built.config, built.objective, resumed=resumed))
    objective, valid, config = built
    ghost = outline(config, objective)
    if config.robust.drop_path:
        from regard.training.robust import check_model

        check_model(config.robust, ghost)
    if valid is not None:
        valid.check(ghost)
    else:
        note("the data has no validation text: nothing is measured on the way")
    batch = config.batch
    batches = Batches(objective, batch.size, batch.grad_accum, group.data_rank, group.data_world)
    facts = about(config, ghost, objective, batches)
    refuse_too_large(facts)
    if not config.examples.task and len(objective) < batch.size:
        raise InputError(
            f"{config.data} has {len(objective):,} samples of {batch.seq_len} tokens to learn "
            f"from, fewer than one batch of {batch.size}; prepare more text, or choose "
            f"--batch-size {max(1, len(objective) // 2)} or a smaller --seq-len"
        )
    paper = paper_of(config, FAMILIES[family(config)], is_directory(config.model))
    return PlannedRun(built, ghost, batches, facts, paper)


def speed_of(group: ProcessGroup, device: torch.device) -> float:
    """Returns the operations of matrix products in a second, on the devices of all processes, in
    fp32: a small model does not come near what a processor can do in bf16."""
    return group.share([gemm_peak(torch.float32, device=device)])[0] * group.world


def run_facts(config: Resolved, model: Any, objective: Objective, data: TextData) -> RunFacts:
    rows = rows_of(objective)
    usual = round(objective.mean_len / rows)
    flops = step_flops(model, usual, config.batch.size * rows, **extent(model, objective))
    if several_passes(config.robust):
        from regard.training.robust import passes

        flops *= passes(config.robust)
    layers = len(layers_of(model))
    samples = len(objective)
    return RunFacts(samples, objective.mean_len, layers, flops, data.of_examples, objective.best_by)


def loop_for(
    config: Resolved, model: Any, objective: Objective, batches: Batches, group: ProcessGroup
) -> Loop:
    robust, words = config.robust, None
    if disturbs(robust):
        from regard.training.adversary import AdversarialReader

        corpus = objective.corpus
        words = AdversarialReader(model, robust, corpus.special, corpus.vocab_size, config.seed)
    if robust.rdrop:
        from regard.training.rdrop import agreeing

        objective = agreeing(objective, robust.rdrop, words)
    learner, chosen = TrainModule(model, objective), config.engine
    loop = Loop(
        engine(chosen.parallel, learner, group, chosen.sync_every, chosen.sync_warmup),
        objective,
        batches,
        optimizer_for(config, model),
        lambda step: 0.0,  # the schedule is known once the steps are
        group,
        seed=config.seed,
        precision=chosen.precision,
        limit=config.optimizer.grad_clip,
    )
    if words is not None:
        loop.passes = words
    return loop


def optimizer_for(config: Resolved, model: Any) -> torch.optim.Optimizer:
    chosen = config.optimizer
    return optimizer(
        chosen.name,
        model,
        lr=chosen.lr,
        betas=(chosen.betas[0], chosen.betas[1]),
        eps=chosen.eps,
        weight_decay=chosen.weight_decay,
        layer_decay=chosen.layer_decay,
        products=torch.bfloat16 if config.engine.precision == "bf16" else None,
        keep_zeros=chosen.keep_sparsity,
    )


def schedule_for(config: FrozenConfig, model: Any) -> Callable[[int], float]:
    planned = config.schedule
    return schedule(
        planned.name,
        lr=config.optimizer.lr,
        warmup=planned.warmup,
        steps=config.budget.steps,
        width=model.config.width,
        min_lr_ratio=planned.min_lr_ratio,
        power=planned.power,
        until=planned.until,
        decay_fraction=planned.decay_fraction,
    )


def set_pace(config: FrozenConfig, loop: Loop, model: Any) -> None:
    """Sets the learning rate of each step, and which weights learn in it."""
    chosen, steps, minutes = config.optimizer, config.budget.steps, config.budget.minutes
    loop.rate = schedule_for(config, model)
    if chosen.unfreeze_every:  # from here on: what was rehearsed is the most that a step costs
        loop.thaw = GradualUnfreezing(model, chosen.freeze_layers or 0, chosen.unfreeze_every)
    if config.budget.clock and minutes:
        limit = 60 * minutes
        loop.at = lambda step: min(steps, max(1, round(loop.progress.seconds / limit * steps)))


class Timing(NamedTuple):
    seconds: float | None  # of a step; None: the run is too short to be worth measuring
    compiled: bool


def rehearse(config: Resolved, loop: Loop, least: float, patience: float, note: Note) -> Timing:
    """Measures how long a step takes, and whether compiling pays. By its FLOPs a step takes at
    least `least` seconds."""
    steps, minutes, compiled = config.budget.steps, config.budget.minutes, config.engine.compile
    if steps is not None and steps < SHORT:
        return Timing(None, compiled == "yes")
    if least > LONG:
        note(
            f"by its operations alone a step takes {least:.0f} s on this machine; for shorter ones "
            "choose a smaller --size or batch.size"
        )
    seconds = max(1.0, (minutes or 0.0) * 60 * REHEARSAL)
    plain = least if least > patience else loop.rehearse(seconds)
    whole = steps * plain if steps is not None else (minutes or 0.0) * 60
    if compiled is None and whole > WORTH_COMPILING and plain <= patience:
        return try_compiled(loop, plain, whole, note)
    return Timing(plain, compiled == "yes")


def try_compiled(loop: Loop, plain: float, whole: float, note: Note) -> Timing:
    """Compiles the module if that saves more time than it costs."""
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
        note(f"compiled: {plain:.3g} s a step became {quick:.3g} s")
        return Timing(quick, True)
    loop.engine.learner._compiled_call_impl = None
    return Timing(plain, False)


def about(config: Resolved, model: Any, objective: Objective, batches: Batches) -> dict[str, Any]:
    """Returns the facts that are shown before a run, and stored in run.json."""
    rows = batches.size * rows_of(objective) * (2 if config.robust.rdrop else 1)
    need = training_memory(
        model,
        min(rows, objective.rows_at_once or rows),
        objective.longest,
        optimizer=config.optimizer.name,
        precision=config.engine.precision,
        checkpointing=config.engine.checkpointing,
        **extent(model, objective),
    )
    need += sum(map(resting_memory, hooks_of(objective).auxiliary_models()))
    return {
        "model": {"name": config.model, **describe(model)},
        "objective": objective.name,
        "pipeline_tag": objective.pipeline_tag,
        "samples": len(objective),
        "tokens_per_step": round(config.batch.size * objective.mean_len),
        "memory_needed": need,
        "memory_free": memory()["available"],
        "precision": config.engine.precision,
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": config.engine.threads,
        },
    }


def rows_of(objective: Objective) -> int:
    """Returns the number of rows as which a sample is read; no row sees another."""
    return -(-objective.max_len // max(1, objective.longest))


def extent(model: Any, objective: Objective) -> dict[str, int]:
    """Returns how many targets a row of a sample has, and how many rows a model remembers."""
    targets = objective.targets_in(objective.collate([objective.get(0)]))
    past = getattr(model.config, "mem_len", 0) if objective.recurrent else 0
    return {"targets": -(-targets // rows_of(objective)), "past": past or 0}


def refuse_too_large(facts: dict[str, Any]) -> None:
    need, free = facts["memory_needed"], facts["memory_free"]
    if need > free:
        raise RegardError(
            f"this run needs about {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free; choose "
            "a smaller size, batch.grad_accum for smaller micro-batches, or "
            "engine.checkpointing=true"
        )
