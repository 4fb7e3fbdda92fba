"""A claim as data: what is said and where, what varies, what is measured, and the rule by which it
is judged, all of it written down before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.core.bilingual import Bilingual as Bilingual  # for the claims: all from one place
from regard.lab.claims.engine.rules import Rule


class ClaimCell(NamedTuple):
    """One measurement: an arm of the experiment, a place on its axis, a seed."""

    arm: str
    at: float  # where on the axis; 0 where there is none
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.at:g}-{self.seed}".replace(" ", "-").replace("/", "-")


class ClaimExperiment:
    """What is done in a cell. `figures` gives numbers by name; it is a pure function of the cell
    and the budget, but for what is measured in seconds.
    """

    def figures(self, cell: ClaimCell, room: Any) -> dict[str, float]:
        raise NotImplementedError


@dataclass(frozen=True)
class Axis:
    """What the arms are followed along: sizes, lengths, numbers of examples."""

    name: Bilingual
    places: tuple[float, ...]
    logarithmic: bool = False


@dataclass(frozen=True)
class Chart:
    """What the figure shows: one figure of every arm, along the axis or side by side."""

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
    seeds: int = 3
    minutes: float = 2.0  # what it takes, about, on two cores
    timed: bool = False  # measures time, so nothing may run beside it
    printed: dict[str, str] = field(default_factory=dict)  # the source's own figures, by arm
    notes: tuple[Bilingual, ...] = ()

    def cells(self, seeds: int | None = None) -> list[ClaimCell]:
        """All measurements, seed by seed, so that a run that is stopped has something of all."""
        places = (0.0,) if self.axis is None else self.axis.places
        return [
            ClaimCell(arm, at, seed)
            for seed in range(1, (seeds or self.seeds) + 1)
            for at in places
            for arm in self.arms
        ]
