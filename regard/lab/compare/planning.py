"""Chooses what the options of a comparison leave open, for this machine, before its first run."""

from __future__ import annotations

import os
from typing import Any

from regard.core.errors import ConfigError
from regard.core.options import option_of
from regard.lab.compare.comparison import TURNING, ComparisonPlan
from regard.lab.compare.lineup import LineupEntry, ModelBudget
from regard.models import family_of
from regard.models.family import SHAPES, Shape
from regard.training import recipe as recipes
from regard.training.sizing import SHARE, Amount, best_size, sample_length

LEAST = 8  # tokens of a sample, samples of a step
STEP = 1024  # tokens of a step
QUICK = ("tiny", "small")  # sizes whose steps are too short for several threads
# Recipe keys that a comparison sets itself, with the option to use instead.
SETTLED = {
    "model": "use --models",
    "data": "give the text itself",
    "size": "use --size",
    "seed": "use --seeds",
    "budget": "use --budget",
    "batch.seq_len": "use --seq-len",
    "batch.size": "use --batch-size",
    "objective.name": "use --models MODEL:OBJECTIVE",
    **{f"objective.{key}": "all read running text, from left to right" for key in TURNING},
}


def planned(
    sources: tuple[str, ...], entries: tuple[LineupEntry, ...], budget: ModelBudget, **options: Any
) -> ComparisonPlan:
    """Returns the plan, with a model size that suits the budget."""
    if options["seeds"] < 1:
        raise ConfigError(f"--seeds is {options['seeds']}; it must be at least 1")
    for name in ("seq_len", "batch_size", "vocab_size"):
        if options[name] is not None and options[name] < LEAST:
            option = option_of(ComparisonPlan, name)
            raise ConfigError(f"{option} is {options[name]}; it must be at least {LEAST}")
    if options["size"] not in ("", *SHAPES):
        raise ConfigError(f"--size is {options['size']!r}; it must be one of {', '.join(SHAPES)}")
    able = [SHAPES[options["size"]]] if options["size"] else SHAPES.values()
    sizing = best_size(amount_in(budget), options["vocab_size"], able)
    options["size"] = size_of(sizing.shape)
    if options["seq_len"] is None:  # one length for all: that of the model that wants the shortest
        cards = [family_of(entry.model) for entry in entries]
        options["seq_len"] = min(sample_length(card, sizing.tokens) for card in cards)
    if options["batch_size"] is None:
        options["batch_size"] = max(LEAST, STEP // options["seq_len"])
    for entry in entries:
        if entry.size and entry.size not in SHAPES:
            raise ConfigError(
                f"{entry.name}: the size is {entry.size!r}; it must be one of {', '.join(SHAPES)}"
            )
    check_settings(options.get("settings", ()))
    options["jobs"] = jobs_for(
        options.get("jobs"), options["size"], len(entries) * options["seeds"]
    )
    return ComparisonPlan(sources, entries, budget, **options)


def jobs_for(jobs: int | None, size: str, runs: int) -> int:
    """Returns how many models learn at a time. A step of a small model is too short for several
    threads to share, so each core gets a model of its own."""
    cores = os.cpu_count() or 1
    if jobs is None:
        return max(1, min(cores if size in QUICK else 1, runs))
    if not 1 <= jobs <= cores:
        raise ConfigError(
            f"--jobs is {jobs}; it must be from 1 to the number of cores, which is {cores} here"
        )
    return jobs


def check_settings(settings: tuple[str, ...]) -> None:
    """Raises an error for keys that no recipe has, and for keys that would make the report
    wrong."""
    changes = recipes.overrides(settings)
    for table, values in changes.items():
        keys = [f"{table}.{key}" for key in values] if isinstance(values, dict) else [table]
        for key in keys:
            advice = SETTLED.get(key) or SETTLED.get(table)
            if advice is not None:
                raise ConfigError(
                    f"{key} is the same for all models of a comparison and cannot be set; {advice}"
                )
    recipes.make(changes)


def amount_in(budget: ModelBudget) -> Amount:
    """Returns what one model reads in the budget."""
    if budget.kind == "minutes":
        return Amount(budget.amount * 60 * machine_speed(), False)
    return Amount(budget.amount, budget.kind == "tokens")


def machine_speed() -> float:
    """Returns the operations a second that a small model reaches on this machine."""
    import torch

    from regard.training.hardware import gemm_peak

    return gemm_peak(torch.float32) * SHARE


def size_of(shape: Shape) -> str:
    return next(name for name, each in SHAPES.items() if each == shape)
