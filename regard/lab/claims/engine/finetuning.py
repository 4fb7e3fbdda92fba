"""The third kind of experiment: a pre-trained model learns a task from labeled examples.

The pre-trained start is trained once for each seed and stored beside the texts, for all claims that
use it. An experiment says which keys of a fine-tuning recipe its arms set. Scores are those of the
last model on unseen examples; nothing is chosen by them.
"""

from __future__ import annotations

import hashlib
import inspect
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.core.atomic_dir import hidden_beside, put
from regard.lab.claims.engine.cache import ENGINE, mark, once
from regard.lab.claims.engine.claim import ClaimCell, ClaimExperiment
from regard.lab.claims.engine.experiment import QUIET, Workspace, finished
from regard.lab.claims.engine.guessing import majority_error
from regard.lab.claims.engine.labeled_texts import Files, mood_text
from regard.training import recipe as recipes
from regard.training.recipe import Table

NEVER = 2**31 - 1  # steps between validations: it validates only at the end
STARTS = "starts"
LABELS = "labels"  # an axis: the number of training examples


@dataclass(frozen=True)
class PretrainedStart:
    """A model that was pre-trained on a text by a recipe; `fresh` is an untrained one of the same
    shape."""

    name: str
    text: Callable[[Path], Path]  # (directory) -> prepared data, made there if it is missing
    common: Table
    steps: int = 400

    def trained(self, seed: int, room: Workspace) -> Path:
        out = self.place(room, f"{seed}-{room.effort:g}")
        steps = room.steps(self.steps)
        make = partial(whole, out, lambda path: self.train(seed, room, steps, path))
        return once(out, "config.json", make)

    def fresh(self, seed: int, room: Workspace) -> Path:
        out = self.place(room, f"fresh-{seed}")

        def make() -> None:
            from regard.formats.directory import load
            from regard.methods.probe.states import untrained

            with TemporaryDirectory(prefix="start-", dir=room.place) as work:
                self.train(seed, room, 1, Path(work, "once"))  # for its shape and its vocabulary
                read = load(Path(work, "once"))
                whole(out, lambda path: untrained(read, seed).save(path))

        return once(out, "config.json", make)

    def train(self, seed: int, room: Workspace, steps: int, out: Path) -> None:
        from regard.training.run import train

        own = {"data": str(self.text(room.place)), "seed": seed, "budget": {"steps": steps}}
        finished(train(recipes.make(QUIET, ALIKE, self.common, own), out, display="silent"))

    def place(self, room: Workspace, which: str) -> Path:
        """Returns the directory of the start. Its name includes a digest of the settings, so that
        other settings have another directory."""
        digest = hashlib.blake2b(repr(self.settings).encode(), digest_size=4).hexdigest()
        return room.place / STARTS / f"{self.name}-{digest}-{which}"

    @property
    def settings(self) -> tuple[Any, ...]:
        made_by = mark(*ENGINE, inspect.getfile(self.text), inspect.getfile(type(self)))
        return self.name, self.common, self.steps, made_by


def whole(out: Path, make: Callable[[Path], Any]) -> None:
    """Writes a directory at a temporary place and moves it to `out`, so that it is complete or does
    not exist."""
    with hidden_beside(out) as model:
        make(model)
        shutil.rmtree(model / "checkpoints", ignore_errors=True)
        put(model, out)


@dataclass(frozen=True)
class FinetunedExperiment(ClaimExperiment):
    """Fine-tuning by a recipe. `arms` holds the settings of each arm; a value such as "{graph}"
    stands for the file that `examples` wrote under this name. The arms in `scratch` start
    untrained.

    The figures are those of the test (`examples.valid`), `error` (1 - accuracy), the error of the
    commonest label, `seconds` of the steps and `parameters`. `look` adds others from the run's
    directory and the files.
    """

    start: PretrainedStart
    examples: Callable[[Path, int, int], Files]  # (place, seed, how many) -> train, test, …
    common: Table
    arms: Mapping[str, Table]
    labels: int = 500  # training examples, unless they are the axis
    along: str = ""  # "labels", or a key of the recipe
    steps: int = 150
    scratch: Collection[str] = ()
    look: Callable[[Path, Files, ClaimCell, Workspace], dict[str, float]] | None = None
    alike: Table = field(default_factory=lambda: QUIET | ALIKE)

    def figures(self, cell: ClaimCell, room: Workspace) -> dict[str, float]:
        from regard.methods.finetune.run import finetune

        begin = self.start.fresh if cell.arm in self.scratch else self.start.trained
        model = begin(cell.seed, room)
        with TemporaryDirectory(prefix="claim-", dir=room.place) as work:
            labels = int(cell.at) if self.along == LABELS else self.labels
            files = self.examples(Path(work), cell.seed, labels)
            out = Path(work, "run")
            recipe = self.recipe(cell, room, model, files)
            facts = finished(finetune(recipe, out, display="silent"))
            figures = {name: float(value) for name, value in facts["valid"].items()}
            if "accuracy" in figures:
                figures["error"] = 1.0 - figures["accuracy"]
            figures["seconds"] = float(facts["progress"]["seconds"])
            figures["parameters"] = float(facts["model"]["parameters"])
            figures |= majority_error(files["test"])
            return figures if self.look is None else figures | self.look(out, files, cell, room)

    def recipe(self, cell: ClaimCell, room: Workspace, model: Path, files: Files) -> recipes.Recipe:
        axis: Table = {}
        if self.along and self.along != LABELS:
            axis = recipes.overrides([f"{self.along}={cell.at:g}"])
        own = {
            "model": str(model),
            "data": str(files["train"]),
            "seed": cell.seed,
            "examples": {"valid": str(files["test"])},
            "budget": {"steps": room.steps(self.steps)},
        }
        return recipes.make(self.alike, self.common, own, filled(self.arms[cell.arm], files), axis)


@dataclass(frozen=True)
class PerArmExperiment(ClaimExperiment):
    """An experiment in which each arm is an experiment of its own, such as one with another
    start."""

    arms: Mapping[str, ClaimExperiment]

    def figures(self, cell: ClaimCell, room: Workspace) -> dict[str, float]:
        return self.arms[cell.arm].figures(cell, room)


# Settings that save time, and that make a run depend on its seed alone.
ALIKE: Table = {
    "engine": {"compile": "no", "precision": "fp32"},
    "validation": {"every": NEVER},
}


def filled(table: Table, files: Files) -> Table:
    """Returns the table with file names in place of "{train}", "{graph}", …"""

    def value(entry: Any) -> Any:
        if isinstance(entry, dict):
            return filled(entry, files)
        return entry.format(**files) if isinstance(entry, str) else entry

    return {key: value(entry) for key, entry in table.items()}


# -- tiny models that several claims start with: pre-trained on artificial texts, without labels

SHAPE: Table = {"layers": 4, "width": 64, "heads": 4, "ffn_size": 256}
READING: Table = {
    "batch": {"size": 32, "seq_len": 26},
    "shape": SHAPE,
    "optimizer": {"name": "adamw", "lr": 3e-3},
    "schedule": {"name": "linear", "warmup": 0.1},
    "validation": {"samples": 200},
}
MASKED: Table = {"name": "masked", "documents": "separate", "share": 0.3}
GPT = PretrainedStart("moods-gpt", mood_text, READING | {"model": "gpt"}, steps=300)
BERT = PretrainedStart(
    "moods-bert", mood_text, READING | {"model": "bert", "objective": MASKED}, steps=400
)

# How a task of moods is fine-tuned.
TUNING: Table = {
    "examples": {"task": "classify"},
    "batch": {"size": 16, "seq_len": 10},
    "optimizer": {"name": "adamw", "lr": 1e-3},
    "schedule": {"name": "linear", "warmup": 0.1},
}
