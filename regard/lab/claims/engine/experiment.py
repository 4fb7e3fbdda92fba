"""The two kinds of experiments: models that are trained, and numbers that are computed.

Training goes through the one loop, by a recipe: an experiment only says which keys of the recipe
its arms and its axis set, and which figures of a run it looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.lab.claims.engine.claim import Cell, Experiment
from regard.training import recipe as recipes
from regard.training.recipe import Recipe, Table


@dataclass(frozen=True)
class Room:
    """Where an experiment works, and how much it may do."""

    place: Path  # for texts and runs; kept between cells
    effort: float = 1.0  # times the usual number of steps


@dataclass(frozen=True)
class Computed(Experiment):
    """A function of (arm, place, seed): no training, or one too special for a recipe."""

    function: Callable[[str, float, int], dict[str, float]]

    def figures(self, cell: Cell, room: Any) -> dict[str, float]:
        return self.function(cell.arm, cell.at, cell.seed)


@dataclass(frozen=True)
class Trained(Experiment):
    """Runs by a recipe. `arms` say what each arm sets, `along` which key the axis sets.

    Figures are those of the final validation, under their own names, and `seconds`, `tokens`,
    `parameters` and `loss` (the mean of the last tenth of the steps); `look` adds others, from the
    run's directory.
    """

    text: Callable[[Path], Path]  # gives prepared data, made in a place if it is not there
    common: Table
    arms: Mapping[str, Table]
    along: str = ""  # a key such as "shape.heads"
    steps: int = 300
    look: Callable[[Path, Cell], dict[str, float]] | None = None
    whole: Sequence[str] = ("shape.heads", "shape.layers", "batch.length")  # keys of whole numbers
    alike: Table = field(default_factory=lambda: dict(QUIET))

    def figures(self, cell: Cell, room: Room) -> dict[str, float]:
        with TemporaryDirectory(prefix="claim-", dir=room.place) as work:
            out = Path(work, "run")
            facts = learned(self.recipe(cell, room), out)
            found = {name: float(value) for name, value in facts["valid"].items()}
            found |= {
                "seconds": facts["progress"]["seconds"],
                "tokens": float(facts["progress"]["tokens"]),
                "parameters": float(facts["model"]["parameters"]),
                "loss": last_loss(out),
            }
            return found if self.look is None else found | self.look(out, cell)

    def recipe(self, cell: Cell, room: Room) -> Recipe:
        axis: Table = {}
        if self.along:
            value = int(cell.at) if self.along in self.whole else cell.at
            axis = recipes.overrides([f"{self.along}={value}"])
        steps = {"budget": {"steps": max(1, round(self.steps * room.effort))}}
        data = {"data": str(self.text(room.place)), "seed": cell.seed}
        return recipes.make(self.alike, self.common, steps, self.arms[cell.arm], axis, data)


# What claims do not want to wait for.
QUIET: Table = {
    "engine": {"compile": "no"},
    "checkpoint": {"minutes": 1e9, "keep": 1},
}


def learned(recipe: Recipe, out: Path) -> dict[str, Any]:
    """A run from beginning to end. One that was stopped has saved itself, but its cell is not
    done.
    """
    from regard.training.run import train

    facts = train(recipe, out, display="silent")
    if facts["outcome"] == "interrupted":
        raise KeyboardInterrupt
    return facts


def last_loss(run: Path) -> float:
    from regard.training.progress import read_metrics

    losses = [r["loss"] for r in read_metrics(run / "metrics.jsonl") if "loss" in r]
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)
