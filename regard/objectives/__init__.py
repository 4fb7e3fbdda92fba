"""All ways of learning by name; a file is imported when its objective is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from regard.core.errors import UnknownName

if TYPE_CHECKING:
    from regard.objectives.base import Objective

OBJECTIVES = {  # name: (module, class)
    "causal": ("objectives.causal", "Causal"),
    "recurrent": ("objectives.recurrent", "Recurrent"),
    "prefix": ("objectives.prefix", "Prefix"),
    "masked": ("objectives.masked", "Masked"),
    "sentences": ("objectives.sentences", "Sentences"),
    "permuted": ("objectives.permuted", "Permuted"),
    "span": ("objectives.span", "Span"),
    "pairs": ("objectives.pairs", "Pairs"),
    "mixture": ("objectives.mixture", "Mixture"),
    "distil": ("methods.distill.objective", "Distil"),
    "reward": ("methods.preference.reward_model", "Reward"),
    "prefer": ("methods.preference.dpo", "Prefer"),
    "reinforce": ("methods.preference.grpo", "Reinforce"),
}


def objective(name: str) -> type[Objective]:
    """The class of an objective; what learns a task with a head stands in the task's file."""
    if name not in OBJECTIVES:
        learners: dict[str, type[Objective]] = import_module("regard.tasks").objectives()
        if name not in learners:
            raise UnknownName("objective", name, [*OBJECTIVES, *learners])
        return learners[name]
    file, kind = OBJECTIVES[name]
    found: type[Objective] = getattr(import_module(f"regard.{file}"), kind)
    return found


def for_task(task: str) -> str:
    """The objective that learns a task with a head; "" where none does."""
    found: str = import_module("regard.tasks").objective_of(task)
    return found
