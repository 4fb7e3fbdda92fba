"""The third kind of experiment: a model that has read learns a task from labelled examples.

The start is trained once a seed and kept beside the texts, for all claims that begin with it. An
experiment says which keys of a fine-tuning's recipe its arms set; scores are those of the last
model on examples that it has not seen, and nothing is chosen by them.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.lab.claims.engine.cache import once
from regard.lab.claims.engine.claim import Cell, Experiment
from regard.lab.claims.engine.experiment import QUIET, Room
from regard.lab.claims.engine.labelled_texts import Files
from regard.lab.claims.engine.rules import (
    NOT,
    REPRODUCED,
    TIMES,
    UNDECIDED,
    Found,
    Rule,
    Ruling,
    Values,
    where,
)
from regard.lab.claims.engine.source import mark
from regard.training import recipe as recipes
from regard.training.recipe import Table

NEVER = 2**31 - 1  # steps between validations: only at the end
STARTS = "starts"
LABELS = "labels"  # an axis: how many examples are learned from


@dataclass(frozen=True)
class Start:
    """A model that has read a text, by a recipe; `fresh` is one of its shape that has not."""

    name: str
    text: Callable[[Path], Path]  # gives prepared data, made in a place if it is not there
    common: Table
    steps: int = 400

    def trained(self, seed: int, room: Room) -> Path:
        out = self.place(room, f"{seed}-{room.effort:g}")
        steps = max(1, round(self.steps * room.effort))
        make = partial(kept, out, lambda made: self.train(seed, room, steps, made))
        return once(out, "config.json", make)

    def fresh(self, seed: int, room: Room) -> Path:
        out = self.place(room, f"fresh-{seed}")

        def make() -> None:
            from regard.formats.directory import load
            from regard.methods.probe.states import untrained

            with TemporaryDirectory(prefix="start-", dir=room.place) as work:
                self.train(seed, room, 1, Path(work, "once"))  # for its shape and its words
                read = load(Path(work, "once"))
                kept(out, lambda made: untrained(read, seed).save(made))

        return once(out, "config.json", make)

    def train(self, seed: int, room: Room, steps: int, out: Path) -> None:
        from regard.training.run import train

        own = {"data": str(self.text(room.place)), "seed": seed, "budget": {"steps": steps}}
        whole(train(recipes.make(QUIET, ALIKE, self.common, own), out, display="silent"))

    def place(self, room: Room, which: str) -> Path:
        """Its settings are part of the name: one that was trained otherwise is another."""
        told = hashlib.blake2b(repr(self.settings).encode(), digest_size=4).hexdigest()
        return room.place / STARTS / f"{self.name}-{told}-{which}"

    @property
    def settings(self) -> tuple[Any, ...]:
        made_by = mark(self.text.__module__), mark(type(self).__module__)
        return self.name, self.common, self.steps, *made_by


def kept(out: Path, make: Callable[[Path], Any]) -> None:
    """Makes a directory beside its place and moves it there: whole, or not there at all."""
    with TemporaryDirectory(prefix="start-", dir=out.parent) as work:
        made = Path(work, "model")
        make(made)
        shutil.rmtree(made / "checkpoints", ignore_errors=True)
        made.replace(out)


@dataclass(frozen=True)
class Tuned(Experiment):
    """Fine-tuning by a recipe. `arms` say what each arm sets; a value such as "{graph}" is the file
    that `examples` made under this name. `scratch` names arms that begin without having read.

    Figures are those of the test (`examples.valid`), `error` (1 - accuracy), `seconds` of the steps
    and `parameters`; `look` adds others, from the run's directory and the files.
    """

    start: Start
    examples: Callable[[Path, int, int], Files]  # (place, seed, how many) -> train, test, …
    common: Table
    arms: Mapping[str, Table]
    labels: int = 500  # to learn from, unless the axis says so
    along: str = ""  # "labels", or a key of the recipe
    steps: int = 150
    scratch: Collection[str] = ()
    look: Callable[[Path, Files, Cell, Room], dict[str, float]] | None = None
    alike: Table = field(default_factory=lambda: QUIET | ALIKE)

    def figures(self, cell: Cell, room: Room) -> dict[str, float]:
        from regard.methods.finetune.run import finetune

        begin = self.start.fresh if cell.arm in self.scratch else self.start.trained
        model = begin(cell.seed, room)
        with TemporaryDirectory(prefix="claim-", dir=room.place) as work:
            labels = int(cell.at) if self.along == LABELS else self.labels
            files = self.examples(Path(work), cell.seed, labels)
            out = Path(work, "run")
            recipe = self.recipe(cell, room, model, files)
            found = measured(whole(finetune(recipe, out, display="silent")))
            return found if self.look is None else found | self.look(out, files, cell, room)

    def recipe(self, cell: Cell, room: Room, model: Path, files: Files) -> recipes.Recipe:
        axis: Table = {}
        if self.along and self.along != LABELS:
            axis = recipes.overrides([f"{self.along}={cell.at:g}"])
        own = {
            "model": str(model),
            "data": str(files["train"]),
            "seed": cell.seed,
            "examples": {"valid": str(files["test"])},
            "budget": {"steps": max(1, round(self.steps * room.effort))},
        }
        return recipes.make(self.alike, self.common, own, filled(self.arms[cell.arm], files), axis)


@dataclass(frozen=True)
class ByArm(Experiment):
    """Each arm is an experiment of its own, such as one with another start."""

    arms: Mapping[str, Experiment]

    def figures(self, cell: Cell, room: Room) -> dict[str, float]:
        return self.arms[cell.arm].figures(cell, room)


# What claims do not want to wait for, and what a seed alone decides.
ALIKE: Table = {
    "engine": {"compile": "no", "precision": "fp32"},
    "validation": {"every": NEVER},
}


def filled(table: Table, files: Files) -> Table:
    """With the names of files where it says "{train}", "{graph}", …"""

    def value(held: Any) -> Any:
        if isinstance(held, dict):
            return filled(held, files)
        return held.format(**files) if isinstance(held, str) else held

    return {key: value(held) for key, held in table.items()}


def whole(facts: dict[str, Any]) -> dict[str, Any]:
    """A run that was asked to stop ends in good order, with weights that are no result."""
    if facts["outcome"] == "interrupted":
        raise KeyboardInterrupt
    return facts


def measured(facts: dict[str, Any]) -> dict[str, float]:
    """What a run says of itself."""
    found = {name: float(value) for name, value in facts["valid"].items()}
    if "accuracy" in found:
        found["error"] = 1.0 - found["accuracy"]
    return found | {
        "seconds": float(facts["progress"]["seconds"]),
        "parameters": float(facts["model"]["parameters"]),
    }


# -- rules of differences


@dataclass(frozen=True)
class Shrinks(Rule):
    """What one arm is above another is more at one place than at another."""

    figure: str
    arm: str  # the better one: its figure is the lower
    other: str
    first: float
    last: float

    @property
    def words(self) -> str:
        return (
            f"{self.figure} of {self.other!r} less that of {self.arm!r} is larger at "
            f"{self.first:g} than at {self.last:g}, by more than the noise"
        )

    def judge(self, values: Values) -> Ruling:
        gaps, noise = [], 0.0
        for at in (self.first, self.last):
            one, two = (Found.of(values, arm, at, self.figure) for arm in (self.arm, self.other))
            gaps.append(two.mean - one.mean)
            noise = math.hypot(noise, TIMES * one.error, TIMES * two.error)
        told = f"{self.figure}, difference at {self.first:g}: {gaps[0]:.4g}, at {self.last:g}: "
        told += f"{gaps[1]:.4g}, noise {noise:.2g}"
        fell = gaps[0] - gaps[1]
        return Ruling(REPRODUCED if fell > noise else NOT if fell < -noise else UNDECIDED, told)


@dataclass(frozen=True)
class Alike(Rule):
    """Two arms differ by less than so much; noise that is larger decides nothing."""

    figure: str
    arm: str
    other: str
    within: float
    at: float = 0.0

    @property
    def words(self) -> str:
        arms = f"{self.arm!r} and of {self.other!r}"
        return f"{self.figure} of {arms} differ by at most {self.within:g}{where(self.at)}"

    def judge(self, values: Values) -> Ruling:
        one, two = (Found.of(values, arm, self.at, self.figure) for arm in (self.arm, self.other))
        gap, noise = abs(one.mean - two.mean), TIMES * math.hypot(one.error, two.error)
        told = f"{self.figure}{where(self.at)}: {self.arm} {one}, {self.other} {two}"
        if gap > max(self.within, noise):
            return Ruling(NOT, told)
        return Ruling(REPRODUCED if gap + noise <= self.within else UNDECIDED, told)


@dataclass(frozen=True)
class Provided(Rule):
    """A rule that says nothing where what it builds on was not learned here."""

    condition: Rule
    rule: Rule

    @property
    def words(self) -> str:
        return f"{self.rule.words}; undecided unless {self.condition.words}"

    def judge(self, values: Values) -> Ruling:
        first, then = self.condition.judge(values), self.rule.judge(values)
        verdict = then.verdict if first.verdict == REPRODUCED else UNDECIDED
        return Ruling(verdict, f"{then.because}; {first.because}")
