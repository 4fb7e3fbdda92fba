"""The models of a comparison, and its budget."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from regard.core.errors import ConfigError, UnknownName
from regard.models import FAMILIES, family_of
from regard.objectives import OBJECTIVES
from regard.objectives import objective as find

NGRAM = "ngram"
PATTERN = re.compile(r"(?P<model>[\w.-]+)(?::(?P<objective>[\w-]+))?(?:@(?P<size>[\w-]+))?")


@dataclass(frozen=True)
class LineupEntry:
    """A model with an objective and a size."""

    model: str
    objective: str
    size: str = ""  # "": the size of the whole comparison

    @property
    def name(self) -> str:
        usual = family_of(self.model).running_objective
        objective = "" if self.objective == usual else f"-{self.objective}"
        return f"{self.model}{objective}{'-' + self.size if self.size else ''}"

    @classmethod
    def of(cls, text: str) -> LineupEntry:
        """Parses `gpt`, `bert:masked` or `gpt:causal@tiny`."""
        match = PATTERN.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"{text!r} names no model; write MODEL, MODEL:OBJECTIVE or MODEL:OBJECTIVE@SIZE, "
                "as in gpt:causal@tiny"
            )
        model, objective, size = match["model"], match["objective"], match["size"] or ""
        family = family_of(model)
        objective = objective or family.running_objective
        if objective not in OBJECTIVES:
            raise UnknownName("objective", objective, OBJECTIVES)
        known = (family.running_objective, *family.other_objectives)
        if objective not in known:
            raise ConfigError(
                f"{text}: {family.name} cannot be compared by {objective!r}: it cannot learn it "
                f"from plain text, or there is no metric for it; use {' or '.join(known)}"
            )
        return cls(model, objective, size)


def validates_exactly(objective: str) -> bool:
    """Returns whether a run of this objective validates by the exact bits of a text."""
    return objective in OBJECTIVES and find(objective).exact_bits


def lineup(words: Iterable[str]) -> list[LineupEntry]:
    """Returns the named entries, each once; if none is named, one of each family that is
    compared."""
    chosen = [word for word in words if word.strip()]
    chosen = chosen or [name for name, family in FAMILIES.items() if family.compared]
    entries = [LineupEntry.of(word) for word in chosen if word.strip() != NGRAM]
    names = [entry.name for entry in entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice} is named twice; name each model once")
    if not entries:
        raise ConfigError("nothing is left to compare; name at least one model")
    return entries


# -- budgets

SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
COUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
TIMED = re.compile(r"(?P<number>[\d.]+)\s*(?P<unit>s|m|min|h)")
COUNTED = re.compile(
    r"(?P<number>[\d.]+(?:[eE][+]?\d+)?)\s*(?P<times>[kMGTPE]?)\s*(?P<unit>tok|tokens?|flops?)"
)


@dataclass(frozen=True)
class ModelBudget:
    """The budget of each single model."""

    kind: str  # minutes, tokens, flops
    amount: float

    @classmethod
    def of(cls, text: str) -> ModelBudget:
        """Parses `10m`, `90s`, `2h`, `2Mtok`, `500000 tokens`, `3e14 flops` or `0.3Pflop`."""
        timed, counted = TIMED.fullmatch(text.strip()), COUNTED.fullmatch(text.strip())
        try:
            if timed:
                budget = cls("minutes", float(timed["number"]) * SECONDS[timed["unit"]] / 60)
            elif counted:
                kind = "flops" if counted["unit"].startswith("flop") else "tokens"
                budget = cls(kind, float(counted["number"]) * COUNTS[counted["times"]])
            else:
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"{text!r} is no budget; write a time (90s, 10m, 2h), tokens (2Mtok, 500ktok) or "
                "operations (3e14flop, 0.3Pflop)"
            ) from None
        if not 0 < budget.amount < math.inf or (budget.kind == "tokens" and budget.amount < 1):
            raise ConfigError(f"the budget is {text}; it must be above 0 and finite")
        return budget

    def __str__(self) -> str:
        if self.kind == "minutes":
            return f"{self.amount:g} min" if self.amount >= 1 else f"{self.amount * 60:g} s"
        return f"{self.amount:,.0f} tokens" if self.kind == "tokens" else f"{self.amount:.3g} FLOP"
