"""Fills in the open settings of a recipe before a run, by pure functions: recipe and facts in, a
frozen configuration out.

    resolve      batch, objective, engine, optimizer, schedule     from data, card, machine, model
    with_budget  the budget and the frozen layers                  from the samples and the layers
    with_steps   warm-up and validation                            from the seconds of a step

Each keeps what is already set, so that a resolved recipe resolves to itself.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.core.errors import ConfigError
from regard.core.tables import Table
from regard.models.family import Family, PaperDefaults
from regard.training.recipe import FrozenConfig, Recipe, Resolved, known, replaced
from regard.training.recipe_parts import Budget, Optimizer, Robust, Schedule
from regard.training.schedule import BY_WIDTH, DECAY_FRACTION, check_name

LENGTH = 256  # the default number of tokens of a sample
STEP = 4096  # the default number of tokens of a step
ADAMS = ("adam", "adamw", "bert-adam")  # their settings also hold for Muon's vectors
DEFAULT_MINUTES = 10.0
HIGHEST = 4.0  # a narrow model's learning rate is at most this factor times the paper's
WARMUP = 0.1  # the warm-up's share of a run that is too short for the paper's warm-up
LEAST_WARMUP = 0.02  # the least share, for papers whose warm-up is a share of very many steps
VALIDATIONS = 20  # the number of validations in a run
CHECKING = 0.1  # the share of a run's time for validations during training
LEAST_JUDGED = 32  # the least samples of a validation; fewer say too little about a model
ALL = 2**31  # more samples than any validation set has
BUDGETS = ("steps", "tokens", "minutes", "epochs", "flops")
# What each adversary has, and its own choice. FreeLB's is that of its authors' code for MNLI, and
# the others move as far. Code that moves the weights has ε 1 and steps of 0.3 for the words of a
# whole batch; of a sequence that is moved by 0.3 a BERT learns little (docs/results.md).
ADVERSARIES: dict[str, dict[str, float]] = {
    "fgm": {"adv_radius": 0.1},
    "pgd": {"adv_radius": 0.1, "adv_lr": 0.03, "adv_steps": 3},
    "freelb": {"adv_radius": 0.3, "adv_lr": 0.1, "adv_steps": 2, "adv_init": 0.1},
}
OF_ADVERSARIES = ("adv_radius", "adv_lr", "adv_steps", "adv_init")


@dataclass(frozen=True)
class DataFacts:
    objective: str  # the default objective for this kind of data
    options: Table = field(default_factory=dict)  # options of the objective that the data decides


# tests/training/test_threads.py measures it: after 20 further steps of a small GPT.
THREADS_DIFFER = "; 20 steps of a small GPT differed by 2e-7 bits per byte and 3e-5 in a weight"


@dataclass(frozen=True)
class MachineFacts:
    device: str = "cpu"
    threads: int = 1
    processes: int = 1
    native: bool = True
    fast_bf16: bool = False

    def changes(self, recipe: Recipe) -> list[str]:
        """Returns notes for a resumed run on another machine: its result is not the same to the
        bit."""
        notes = []
        for name in ("threads", "processes", "device", "native"):
            then, now = getattr(recipe.engine, name), getattr(self, name)
            if then != now:
                measured = THREADS_DIFFER if name == "threads" else ""
                notes.append(
                    f"engine.{name} was {then} and is {now}: the result may differ in the last "
                    f"bits{measured}"
                )
        return notes


@dataclass(frozen=True)
class ModelFacts:
    width: int
    pretrained: bool = False  # whether it is read from a directory
    context: int | None = None  # the number of positions that a pretrained model has learned


@dataclass(frozen=True)
class RunFacts:
    samples: int  # the samples of an epoch
    mean_len: float  # the mean number of tokens of a sample
    layers: int
    flops: float  # the FLOPs of a step
    of_examples: bool = False  # whether samples are labeled examples, which are few
    best_by: Literal["loss", "metric"] = "loss"  # what chooses the best model


def resolve(
    recipe: Recipe, data: DataFacts, card: Family, machine: MachineFacts, model: ModelFacts
) -> Resolved:
    """Resolves all settings that are known before a model is built."""
    paper = paper_of(recipe, card, model.pretrained)
    name = recipe.objective.get("name", data.objective)
    usual = card.budget_objectives.get(name, {}) if paper is card.budget_training else {}
    recipe = replaced(
        recipe,
        recipe="budget" if paper is card.budget_training else "paper",
        objective={"name": name, **usual, **recipe.objective, **data.options},
        extensions=extensions_of(recipe, model),
        engine=engine_of(recipe, machine),
        robust=robust_of(recipe.robust),
    )
    check_passes(recipe)
    return known(
        Resolved,
        replaced(
            recipe,
            batch=batch_of(
                recipe, paper, machine.processes // (recipe.engine.tensor or 1) or 1, model
            ),
            optimizer=optimizer_of(recipe, paper, card, model.width),
            schedule=schedule_of(recipe.schedule, paper),
        ),
    )


def paper_of(recipe: Recipe, card: Family, pretrained: bool) -> PaperDefaults:
    """Returns the training defaults of the model's paper."""
    if recipe.examples.task:
        return card.finetuned(recipe.examples.task)
    if pretrained:
        return card.trained()
    if recipe.by_budget:
        return card.budget_training
    paper = card.trained(recipe.model)
    return paper if card.scratch_lr is None else paper.replace(lr=card.scratch_lr)


def first(*values: Any) -> Any:
    """Returns the first value that is not None."""
    return next((value for value in values if value is not None), None)


def engine_of(recipe: Recipe, machine: MachineFacts) -> Table:
    """Resolves precision, threads and processes; a run resumed with others is not the same to the
    bit."""
    precision = recipe.engine.precision or ("bf16" if machine.fast_bf16 else "fp32")
    if precision == "fp16" and machine.device != "cuda":
        raise ConfigError("engine.precision is fp16, which wants CUDA; use bf16 or fp32 here")
    compiled = recipe.engine.compile
    if several_passes(recipe.robust) or recipe.robust.drop_path:
        if compiled == "yes":
            raise ConfigError(
                "what [robust] does to a step cannot be compiled; set engine.compile=no"
            )
        compiled = "no"
    if recipe.optimizer.unfreeze_every:
        if machine.processes > 1:
            raise ConfigError(
                "optimizer.unfreeze_every frees layers on the way, which several processes cannot "
                "do together; use one process, or optimizer.freeze_layers alone"
            )
        if compiled == "yes":
            raise ConfigError(
                "optimizer.unfreeze_every changes what is computed, so it would be compiled again "
                "and again; set engine.compile=no"
            )
        compiled = "no"
    tensor = 1 if recipe.engine.tensor is None else recipe.engine.tensor
    if tensor > 1 and machine.processes > 1:
        if compiled == "yes":
            raise ConfigError("split layers (engine.tensor) need engine.compile=no")
        compiled = "no"
    return {
        "precision": precision,
        "compile": compiled,
        "device": machine.device,
        "threads": machine.threads,
        "processes": machine.processes,
        "tensor": tensor,
        "native": machine.native,
    }


def batch_of(recipe: Recipe, paper: PaperDefaults, processes: int, model: ModelFacts) -> Table:
    """Resolves the tokens of a sample and the samples of a step."""
    batch, task = recipe.batch, recipe.examples.task
    length, samples, context = batch.seq_len, batch.size, model.context
    for name in ("size", "seq_len", "grad_accum"):
        value = getattr(batch, name)
        if value is not None and value < 1:
            raise ConfigError(f"batch.{name} is {value}; it must be at least 1, or left out")
    usual = (paper.seq_len if task else None) or LENGTH
    if length is None:
        length = min(usual, context or usual)
    if samples is None:
        whole, step = paper.batch_size if task else None, STEP
        if recipe.by_budget:
            step = paper.batch_tokens or STEP
        samples = whole or max(1, step // (usual if task and batch.seq_len is None else length))
        samples += -samples % (batch.grad_accum * processes)
    if context is not None and length > context:
        raise ConfigError(
            f"batch.seq_len is {length}, but {recipe.model} has learned {context} positions; "
            "choose a smaller length"
        )
    return {"seq_len": length, "size": samples}


def optimizer_of(recipe: Recipe, paper: PaperDefaults, card: Family, width: int) -> Table:
    """Resolves the optimizer settings that the recipe leaves to the paper."""
    optimizer: Optimizer = recipe.optimizer
    adam = paper.optimizer in ADAMS
    own = optimizer.name in (None, paper.optimizer) or (optimizer.name == "muon" and adam)
    rate = optimizer.lr
    if rate is None:
        rate = paper.lr * lr_scale(paper, card, width) * extension_factor(recipe)
    return {
        "name": optimizer.name or paper.optimizer,
        "lr": rate,
        "betas": optimizer.betas or list(paper.betas if own else (0.9, 0.999)),
        "eps": first(optimizer.eps, paper.eps if own else 1e-8),
        "weight_decay": first(optimizer.weight_decay, paper.weight_decay),
        "grad_clip": first(optimizer.grad_clip, paper.grad_clip),
        "layer_decay": first(optimizer.layer_decay, paper.layer_decay),
    }


def lr_scale(paper: PaperDefaults, card: Family, width: int) -> float:
    """By how much a model learns at a higher rate than the paper's, because it is narrower: Turc et
    al. 2019 fine-tune small BERTs at up to six times the rate of the base.
    """
    config: Any = card.config()
    by_width = paper.optimizer in ADAMS and paper.schedule != "noam"
    return min(max(1.0, config.width / width), HIGHEST) if by_width else 1.0


def extensions_of(recipe: Recipe, model: ModelFacts) -> Table:
    if not recipe.extensions:
        return recipe.extensions
    from regard.models.extensions import extension

    place = recipe.model if model.pretrained else ""
    return {name: extension(name).resolved(o, place) for name, o in recipe.extensions.items()}


def extension_factor(recipe: Recipe) -> float:
    """By how much the parts that a recipe adds learn at a higher rate than a whole model."""
    if not recipe.extensions:
        return 1.0
    from regard.models.extensions import extension

    return math.prod(extension(name).lr_factor for name in recipe.extensions)


def schedule_of(schedule: Schedule, paper: PaperDefaults) -> Table:
    if schedule.name is not None:
        check_name(schedule.name)  # before anything is built or measured
        return {
            "min_lr_ratio": first(schedule.min_lr_ratio, 0.0),
            "power": first(schedule.power, 1.0),
            "decay_fraction": first(schedule.decay_fraction, DECAY_FRACTION),
        }
    return {
        "name": paper.schedule,
        "min_lr_ratio": first(schedule.min_lr_ratio, paper.min_lr_ratio),
        "power": first(schedule.power, paper.power),
        "until": first(schedule.until, paper.until),
        "decay_fraction": first(schedule.decay_fraction, paper.decay_fraction),
    }


# -- what disturbs learning


def robust_of(robust: Robust) -> Table:
    """Resolves the numbers of the adversary; refuses impossible and unknown ones."""
    own = ADVERSARIES.get(robust.adversary or "", {})
    for name in OF_ADVERSARIES:
        value = getattr(robust, name)
        if value is not None and name not in own:
            able = ", ".join(kind for kind, numbers in ADVERSARIES.items() if name in numbers)
            kind = f"is {robust.adversary!r}" if robust.adversary else "is not set"
            raise ConfigError(
                f"robust.{name} is {value:g}, and robust.adversary {kind}, which has no such "
                f"number; leave it out, or choose one of {able}"
            )
    numbers = {name: first(getattr(robust, name), value) for name, value in own.items()}
    for name in ("drop_path", "token_noise"):
        if not 0 <= getattr(robust, name) < 1:
            raise ConfigError(
                f"robust.{name} is {getattr(robust, name):g}; it must be from 0 to below 1"
            )
    for name, value in {"rdrop": robust.rdrop, "neftune": robust.neftune, **numbers}.items():
        if not 0 <= value < float("inf"):
            raise ConfigError(f"robust.{name} is {value:g}; it must be from 0 on")
    return numbers


def several_passes(chosen: Robust) -> bool:
    """Tells whether words are perturbed at the embedding, or a batch is read twice."""
    return disturbs(chosen) or bool(chosen.rdrop)


def disturbs(chosen: Robust) -> bool:
    """Tells whether words are perturbed at the embedding."""
    return bool(chosen.adversary or chosen.neftune or chosen.token_noise)


def check_passes(recipe: Recipe) -> None:
    """Refuses settings that sharded weights (FSDP) cannot have: such a step has only one pass."""
    chosen, engine = recipe.robust, recipe.engine
    dealt = (engine.processes or 1) > 1 and engine.parallel == "fsdp"
    if dealt and (chosen.adversary or chosen.rdrop):
        raise ConfigError(
            "robust.adversary and robust.rdrop read a batch several times, which weights that are "
            "dealt out cannot; set engine.parallel=ddp"
        )
    if dealt and (engine.tensor or 1) > 1 and disturbs(chosen):
        raise ConfigError("embeddings that engine.tensor splits cannot have robust.* noise")
    if dealt and recipe.optimizer.keep_sparsity:
        raise ConfigError(
            "optimizer.keep_sparsity looks at whole matrices, and here they are dealt out; set "
            "engine.parallel=ddp"
        )


# -- how long


def with_budget(config: Resolved, paper: PaperDefaults, facts: RunFacts) -> Resolved:
    """Converts tokens, epochs and FLOPs to steps; minutes wait for the time of a step."""
    return replaced(
        config,
        budget=budget_of(config, paper, facts),
        optimizer={"freeze_layers": frozen_of(config.optimizer, facts.layers)},
    )


def budget_of(config: Resolved, paper: PaperDefaults, facts: RunFacts) -> Budget:
    budget, samples = config.budget, config.batch.size
    names = [name for name in BUDGETS if getattr(budget, name) is not None]
    for name in names:
        if not getattr(budget, name) > 0:  # nor what is no number
            raise ConfigError(
                f"budget.{name} is {getattr(budget, name):g}; it must be above 0, or left out"
            )
    if not names and config.examples.task:
        budget = dataclasses.replace(budget, epochs=float(paper.epochs or 1))
    elif not names:
        budget = dataclasses.replace(budget, minutes=DEFAULT_MINUTES)
    elif len(names) > 1 and names != ["steps", "minutes"]:
        raise ConfigError(f"the budget is given in {' and '.join(names)}; choose one")
    if budget.clock and (budget.minutes is None or config.engine.processes > 1):
        raise ConfigError(
            "budget.clock ends a run of a single process by its minutes; give budget.minutes, or "
            "leave the clock out"
        )
    steps = budget.steps
    if budget.tokens is not None:
        steps = max(1, int(budget.tokens / (samples * facts.mean_len)))
    if budget.flops is not None:
        steps = max(1, int(budget.flops / facts.flops))
    if budget.epochs is not None:
        steps = max(1, round(budget.epochs * facts.samples / samples))
    return Budget(steps=steps, minutes=budget.minutes, clock=budget.clock)


def milestones_of(config: Resolved, samples: int, words: int | None) -> dict[int, list[int]]:
    """Returns the steps after which `checkpoint.at_words` of the text were read, with these words.
    A pass over all samples reads all words; a model that is asked for after the last step is not
    made."""
    wanted = config.checkpoint.at_words or []
    if any(count < 1 for count in wanted) or len(set(wanted)) < len(wanted):
        raise ConfigError(
            f"checkpoint.at_words is {wanted}; give different numbers of words, each above 0"
        )
    if wanted and not words:
        raise ConfigError(
            f"checkpoint.at_words counts the words of prepared text, and {config.data} does not "
            "say how many it has; prepare the text again, or leave the key out"
        )
    milestones: dict[int, list[int]] = {}
    for count in wanted:
        assert words
        step = max(1, round(count / words * samples / config.batch.size))
        milestones.setdefault(step, []).append(count)
    return milestones


def frozen_of(optimizer: Optimizer, layers: int) -> int:
    """Returns the number of layers that do not learn at first."""
    frozen, thaw = optimizer.freeze_layers or 0, optimizer.unfreeze_every or 0
    if thaw < 0 or not 0 <= frozen <= layers:
        raise ConfigError(
            f"optimizer.freeze_layers is {frozen} and optimizer.unfreeze_every is {thaw}; this "
            f"model has {layers} layers, so choose freeze_layers from 0 to {layers}, and "
            "unfreeze_every as a number of steps"
        )
    return frozen or layers if thaw else frozen  # as ULMFiT begins: the head alone


def with_steps(
    config: Resolved,
    paper: PaperDefaults,
    facts: RunFacts,
    *,
    seconds: float | None = None,  # of a step, where the budget is in minutes
    compiled: bool = False,  # does it pay? Asked where the recipe leaves it open
) -> FrozenConfig:
    """Resolves the settings that depend on the number of steps."""
    steps = config.budget.steps
    if steps is None:
        assert config.budget.minutes is not None and seconds is not None
        steps = max(1, int(config.budget.minutes * 60 / seconds))
    warmup, rate = warmup_of(config, paper, steps)
    every, samples = validation_of(config, steps, facts)
    best = config.validation.best or facts.best_by
    return known(
        FrozenConfig,
        replaced(
            config,
            budget={"steps": steps},
            optimizer={"lr": rate},
            schedule={"warmup": warmup},
            validation={"every": every, "samples": samples, "best": best},
            engine={"compile": config.engine.compile or ("yes" if compiled else "no")},
        ),
    )


def warmup_of(config: Resolved, paper: PaperDefaults, steps: int) -> tuple[float, float]:
    """Returns warm-up and rate: a shorter warm-up keeps the height of the curve. The recipe's own
    warm-up is shortened only if it is longer than the run."""
    rate, warmup = config.optimizer.lr, config.schedule.warmup
    short = max(1.0, float(int(WARMUP * steps)))
    if warmup is not None:
        if warmup < 1 or warmup <= steps:
            return warmup, rate
    else:
        warmup = float(paper.warmup)
        if 0 < warmup < LEAST_WARMUP and not config.examples.task:
            warmup = LEAST_WARMUP
        if warmup <= short:
            return warmup, rate
    if config.schedule.name in BY_WIDTH:
        rate *= (short / warmup) ** 0.5
    return short, rate


def validation_of(config: Resolved, steps: int, facts: RunFacts) -> tuple[int, int]:
    """Returns the steps between two validations, and the samples of each."""
    every, samples = config.validation.every, config.validation.samples
    if facts.of_examples:  # every epoch, and all of it: examples are few
        every = every or max(1, facts.samples // config.batch.size)
        samples = samples or ALL
    every = every or max(1, steps // VALIDATIONS)
    if not samples:  # going forward is a third of a step
        times = max(1, steps // every)
        samples = max(1, int(3 * CHECKING * steps / times)) * config.batch.size
        samples = max(samples, LEAST_JUDGED)
    return every, samples
