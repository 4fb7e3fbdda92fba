"""A claim as data: its statement and source, what varies, what is measured, and the rule by which
it is judged. All of it is written before anything runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.core.text import Bilingual as Bilingual  # exported again for the claims
from regard.lab.claims.engine.rules import Rule

LEAST_SEEDS = 5  # of a claim about trained models


class ClaimCell(NamedTuple):
    """One measurement: an arm of the experiment, a place on its axis, a seed."""

    arm: str
    at: float  # the place on the axis; 0 if there is no axis
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.at:g}-{self.seed}".replace(" ", "-").replace("/", "-")


class ClaimExperiment:
    """The base of all experiments. `figures` returns numbers by name; except for measured seconds,
    they depend only on the cell and the budget."""

    def figures(self, cell: ClaimCell, room: Any) -> dict[str, float]:
        raise NotImplementedError


@dataclass(frozen=True)
class Axis:
    """The variable along which the arms are measured: sizes, lengths, numbers of examples."""

    name: Bilingual
    places: tuple[float, ...]
    logarithmic: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart of one figure of every arm, along the axis or side by side."""

    figure: str
    title: Bilingual
    logarithmic: bool = False


@dataclass(frozen=True)
class Claim:
    name: str
    statement: Bilingual
    source: str  # the paper, its section or table
    setting: Bilingual  # what is done here, in a sentence or two
    arms: tuple[str, ...]
    experiment: ClaimExperiment
    rule: Rule
    charts: tuple[Chart, ...]
    axis: Axis | None = None
    seeds: int = LEAST_SEEDS  # part of the rule: no seed is added or left out
    minutes: float = 2.0  # about how long it takes on two cores
    timed: bool = False  # it measures time, so nothing else may run meanwhile
    printed: dict[str, str] = field(default_factory=dict)  # the source's own figures, by arm
    notes: tuple[Bilingual, ...] = ()
    revised: tuple[str, ...] = ()  # the commits that changed its rule after data were seen

    @property
    def plan(self) -> str:
        """Returns a digest of what is fixed before the run: the rule, its margins, the seeds."""
        fixed = repr((self.rule, self.seeds)).encode()
        return hashlib.blake2b(fixed, digest_size=8).hexdigest()

    def cells(self, seeds: int | None = None) -> list[ClaimCell]:
        """Returns all measurements, seed by seed, so that an interrupted run has measured something
        of every arm."""
        places = (0.0,) if self.axis is None else self.axis.places
        return [
            ClaimCell(arm, at, seed)
            for seed in range(1, (seeds or self.seeds) + 1)
            for at in places
            for arm in self.arms
        ]
