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
    "classify": ("tasks.classify", "Classify"),
    "choose": ("tasks.choose", "Choose"),
    "tag": ("tasks.tag", "Tag"),
    "answer": ("tasks.answer", "Answer"),
    "distil": ("methods.distill.objective", "Distil"),
    "reward": ("methods.preference.reward_model", "Reward"),
    "prefer": ("methods.preference.dpo", "Prefer"),
    "reinforce": ("methods.preference.grpo", "Reinforce"),
}
LABELLED = ("classify", "choose", "tag", "answer")  # learn from examples, not from a corpus


def objective(name: str) -> type[Objective]:
    """The class of an objective."""
    if name not in OBJECTIVES:
        raise UnknownName("objective", name, OBJECTIVES)
    file, kind = OBJECTIVES[name]
    found: type[Objective] = getattr(import_module(f"regard.{file}"), kind)
    return found
