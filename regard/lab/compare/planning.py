"""Chooses what the options of a comparison leave open, for this machine, before its first run."""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError
from regard.core.options import option_of
from regard.lab.compare.comparison import TURNING, ComparisonPlan
from regard.lab.compare.lineup import LineupEntry, ModelBudget
from regard.models.family import SHAPES
from regard.training import recipe as recipes

WORTH = 10  # tokens per parameter (without embeddings) from which a larger size is worth its cost
SHARE = 0.3  # the share of the machine's peak FLOP/s that a small model reaches
# Recipe keys that a comparison sets itself, with the option to use instead.
SETTLED = {
    "model": "use --models",
    "data": "give the text itself",
    "size": "use --size",
    "seed": "use --seeds",
    "budget": "use --budget",
    "batch.seq_len": "use --seq-len",
    "batch.size": "use --batch-size",
    "batch.order": "all read the text in its order",
    "objective.name": "use --models MODEL:OBJECTIVE",
    **{f"objective.{key}": "all read the text in its order" for key in TURNING},
}


def planned(
    sources: tuple[str, ...], entries: tuple[LineupEntry, ...], budget: ModelBudget, **options: Any
) -> ComparisonPlan:
    """Returns the plan, with a model size that suits the budget."""
    if options["seeds"] < 1:
        raise ConfigError(f"--seeds is {options['seeds']}; it must be at least 1")
    for name in ("seq_len", "batch_size", "vocab_size"):
        if options[name] < 8:
            option = option_of(ComparisonPlan, name)
            raise ConfigError(f"{option} is {options[name]}; it must be at least 8")
    options["size"] = options["size"] or size_for(budget)
    if options["size"] not in SHAPES:
        raise ConfigError(f"--size is {options['size']!r}; it must be one of {', '.join(SHAPES)}")
    for entry in entries:
        if entry.size and entry.size not in SHAPES:
            raise ConfigError(
                f"{entry.name}: the size is {entry.size!r}; it must be one of {', '.join(SHAPES)}"
            )
    check_settings(options.get("settings", ()))
    return ComparisonPlan(sources, entries, budget, **options)


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


def size_for(budget: ModelBudget) -> str:
    """Returns the largest size that reads at least `WORTH` tokens for each of its parameters."""
    chosen = next(iter(SHAPES))
    for name, shape in SHAPES.items():
        parameters = 12 * shape.layers * shape.width**2
        if tokens_in(budget, parameters) >= WORTH * parameters:
            chosen = name
    return chosen


def tokens_in(budget: ModelBudget, parameters: int) -> float:
    """Returns the number of tokens that the budget allows for this many parameters, at six
    operations per parameter and token."""
    if budget.kind == "tokens":
        return budget.amount
    operations = budget.amount
    if budget.kind == "minutes":
        operations = budget.amount * 60 * machine_speed()
    return operations / (6 * parameters)


def machine_speed() -> float:
    """Returns the operations a second that a small model reaches on this machine."""
    import torch

    from regard.training.hardware import gemm_peak

    return gemm_peak(torch.float32) * SHARE
