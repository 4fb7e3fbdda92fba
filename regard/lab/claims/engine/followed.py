"""Experiments in which one training serves several cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regard.core.files import read_json, write_json
from regard.lab.claims.engine.claim import Cell, Experiment
from regard.lab.claims.engine.experiment import Room
from regard.lab.claims.engine.source import mark

Figures = dict[str, float]
Found = Mapping[tuple[str, float], Figures]  # (arm, place) -> figures


@dataclass(frozen=True)
class Followed(Experiment):
    """What is learned once for all places of the axis, or `together` for all arms as well.

    The function is called as (arm, seed, room), with the arm "" where all are one. What it found
    waits beside the texts until its last cell has been asked for.
    """

    name: str  # of the claim
    function: Callable[[str, int, Room], Found]
    together: bool = False

    def figures(self, cell: Cell, room: Room) -> Figures:
        arm = "" if self.together else cell.arm
        whose = f"{self.name} {arm} {cell.seed} {room.effort:g} {mark(self.function.__module__)}"
        file = room.place / "followed" / f"{whose.replace(' ', '-').replace('/', '-')}.json"
        held: dict[str, Any] | None = read_json(file)
        if held is None:
            found = self.function(arm, cell.seed, room)
            held = {key(*place): figures for place, figures in found.items()}
            write_json(file, held)
        asked = key(cell.arm, cell.at)
        if asked == list(held)[-1]:
            file.unlink()
        figures: Figures = held[asked]
        return figures


def key(arm: str, at: float) -> str:
    return f"{arm} | {at:g}"
