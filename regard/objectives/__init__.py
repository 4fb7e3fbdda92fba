"""The objectives by name; an objective's file is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from regard.core.errors import UnknownName

if TYPE_CHECKING:
    from regard.objectives.base import Objective

OBJECTIVES = {  # name -> (module, class)
    "causal": ("objectives.causal", "CausalObjective"),
    "recurrent": ("objectives.recurrent", "Recurrent"),
    "prefix": ("objectives.prefix", "Prefix"),
    "masked": ("objectives.masked", "Masked"),
    "sentences": ("objectives.sentences", "Sentences"),
    "permuted": ("objectives.permuted", "Permuted"),
    "span": ("objectives.span", "SpanCorruption"),
    "pairs": ("objectives.pairs", "Pairs"),
    "mixture": ("objectives.mixture", "Mixture"),
}


def objective(name: str, others: Mapping[str, tuple[str, str]] | None = None) -> type[Objective]:
    """Returns the class of an objective; `others` are those of tasks and methods, named alike."""
    known = OBJECTIVES | dict(others or {})
    if name not in known:
        raise UnknownName("objective", name, known)
    file, kind = known[name]
    objective_class: type[Objective] = getattr(import_module(f"regard.{file}"), kind)
    return objective_class


def objective_of_kind(kind: str, usual: str) -> str:
    """Returns the objective for prepared data of a kind: running text is learned as `usual`, and
    any other kind has the name of its objective."""
    return kind if kind in OBJECTIVES else usual


def learns_to_write(name: str) -> bool:
    """Returns whether a model of this objective answers a text with another; heads do not."""
    return name in OBJECTIVES and objective(name).writes_answers
