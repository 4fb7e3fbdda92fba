"""Kinds of experiments: models that are trained, numbers that are computed, and trainings that
serve several cells.

All training uses the one training loop with a recipe. An experiment only says which keys of the
recipe its arms and its axis set, and which figures of a run it uses.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.core.files import read_json, write_json
from regard.lab.claims.engine.cache import ENGINE, mark
from regard.lab.claims.engine.claim import ClaimCell, ClaimExperiment
from regard.lab.claims.engine.guessing import unigram
from regard.training import recipe as recipes
from regard.training.recipe import Recipe, Table

Figures = dict[str, float]
Found = Mapping[tuple[str, float], Figures]  # (arm, place) -> figures

# Settings of all claims, which save time.
QUIET: Table = {
    "recipe": "paper",  # a claim is about what its paper trained with
    "engine": {"compile": "no"},
    "checkpoint": {"minutes": 1e9, "keep": 1},
}


@dataclass(frozen=True)
class Workspace:
    """The directory of an experiment, and how much it may train."""

    place: Path  # for texts and runs; kept between cells
    effort: float = 1.0  # multiplies the number of steps

    def steps(self, usual: int) -> int:
        return max(1, round(usual * self.effort))


@dataclass(frozen=True)
class ComputedExperiment(ClaimExperiment):
    """A function of (arm, place, seed): without training, or with one that is too special for a
    recipe."""

    function: Callable[[str, float, int], Figures]

    def figures(self, cell: ClaimCell, room: Any) -> Figures:
        return self.function(cell.arm, cell.at, cell.seed)


@dataclass(frozen=True)
class TrainedExperiment(ClaimExperiment):
    """Training runs by a recipe. `arms` holds the settings of each arm, and `along` is the key that
    the axis sets.

    The figures are those of the final validation, under their own names, and `seconds`, `tokens`,
    `parameters` and `loss` (the mean of the last tenth of the steps), and what a unigram gives.
    `look` adds others from the run's directory.
    """

    text: Callable[[Path], Path]  # (directory) -> prepared data, made there if it is missing
    common: Table
    arms: Mapping[str, Table]
    along: str = ""  # a key such as "shape.heads"
    steps: int = 300
    look: Callable[[Path, ClaimCell], Figures] | None = None
    alike: Table = field(default_factory=lambda: dict(QUIET))

    def figures(self, cell: ClaimCell, room: Workspace) -> Figures:
        with self.trained(cell, room) as (run, facts):
            measured = {name: float(value) for name, value in facts["valid"].items()}
            measured |= {
                "seconds": facts["progress"]["seconds"],
                "tokens": float(facts["progress"]["tokens"]),
                "parameters": float(facts["model"]["parameters"]),
                "loss": last_loss(run),
                **unigram(self.text(room.place)),
            }
            return measured if self.look is None else measured | self.look(run, cell)

    @contextmanager
    def trained(self, cell: ClaimCell, room: Workspace) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yields the directory of a run, which is deleted afterwards, and the content of its
        run.json."""
        from regard.training.run import train

        with TemporaryDirectory(prefix="claim-", dir=room.place) as work:
            out = Path(work, "run")
            yield out, finished(train(self.recipe(cell, room), out, display="silent"))

    def recipe(self, cell: ClaimCell, room: Workspace) -> Recipe:
        axis = recipes.overrides([f"{self.along}={cell.at:g}"]) if self.along else {}
        steps = {"budget": {"steps": room.steps(self.steps)}}
        data = {"data": str(self.text(room.place)), "seed": cell.seed}
        return recipes.make(self.alike, self.common, steps, self.arms[cell.arm], axis, data)


@dataclass(frozen=True)
class FollowedExperiment(ClaimExperiment):
    """One training for all places of the axis or, with `together`, also for all arms.

    The function is called as (arm, seed, room), where the arm is "" if all arms share one training.
    Its results are stored beside the texts until the last cell is read.
    """

    function: Callable[[str, int, Workspace], Found]
    together: bool = False

    def figures(self, cell: ClaimCell, room: Workspace) -> Figures:
        arm, source = "" if self.together else cell.arm, inspect.getfile(self.function)
        whose = f"{Path(source).stem} {self.function.__name__} {arm} {cell.seed} {room.effort:g}"
        name = f"{whose} {mark(*ENGINE, source)}".replace(" ", "-").replace("/", "-")
        file = room.place / "followed" / f"{name}.json"
        waiting: dict[str, Figures] | None = read_json(file, nan=True)
        if waiting is None:
            measured = self.function(arm, cell.seed, room)
            waiting = {f"{arm} | {at:g}": figures for (arm, at), figures in measured.items()}
            write_json(file, waiting)
        wanted = f"{cell.arm} | {cell.at:g}"
        if wanted == list(waiting)[-1]:
            file.unlink()
        return waiting[wanted]


def finished(facts: dict[str, Any]) -> dict[str, Any]:
    """Raises KeyboardInterrupt for an interrupted run: it ends in good order, but its weights are
    no result."""
    if facts["outcome"] == "interrupted":
        raise KeyboardInterrupt
    return facts


def last_loss(run: Path) -> float:
    from regard.training.progress import read_metrics

    losses = [r["loss"] for r in read_metrics(run / "metrics.jsonl") if "loss" in r]
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def opened(run: Path) -> tuple[Any, Any]:
    """Returns the validation text of a run, and its model."""
    from regard.data.corpus import Corpus
    from regard.formats.directory import load

    return Corpus.open(recipes.read(run / "recipe.toml")["data"], "valid"), load(run)


def seconds(work: Callable[[], Any], least: float = 0.2, rounds: int = 3) -> float:
    """Returns the shortest time of several passes, because disturbances only add time."""
    work()
    best, spent, count = float("inf"), 0.0, 0
    while spent < least or count < rounds:
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
        best, spent, count = min(best, took), spent + took, count + 1
    return best
