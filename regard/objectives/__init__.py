"""All ways of learning by name; a file is imported when its objective is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from regard.errors import UnknownName

if TYPE_CHECKING:
    from regard.objectives.base import Objective

OBJECTIVES = {  # name: (file, class)
    "causal": ("causal", "Causal"),
    "recurrent": ("recurrent", "Recurrent"),
    "prefix": ("prefix", "Prefix"),
    "masked": ("masked", "Masked"),
    "sentences": ("sentences", "Sentences"),
    "permuted": ("permuted", "Permuted"),
    "span": ("span", "Span"),
    "pairs": ("pairs", "Pairs"),
    "mixture": ("mixture", "Mixture"),
    "classify": ("classify", "Classify"),
    "choose": ("choose", "Choose"),
    "tag": ("tag", "Tag"),
    "answer": ("answer", "Answer"),
    "distil": ("distil", "Distil"),
    "reward": ("reward", "Reward"),
    "prefer": ("prefer", "Prefer"),
    "reinforce": ("reinforce", "Reinforce"),
}
LABELLED = ("classify", "choose", "tag", "answer")  # learn from examples, not from a corpus


def objective(name: str) -> type[Objective]:
    """The class of an objective."""
    if name not in OBJECTIVES:
        raise UnknownName("objective", name, OBJECTIVES)
    file, kind = OBJECTIVES[name]
    found: type[Objective] = getattr(import_module(f"regard.objectives.{file}"), kind)
    return found
