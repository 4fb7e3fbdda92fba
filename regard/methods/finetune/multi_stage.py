"""What may come before a fine-tuning, or divide it: runs inside of a run, each resumable."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, FormatError, InputError
from regard.core.files import write_json
from regard.data.examples import Example
from regard.data.problems import Problems
from regard.tasks import TASKS
from regard.tasks import task as find
from regard.tasks.corpus import files_of, read_all
from regard.training import recipe as recipes
from regard.training.recipe import Recipe, replaced
from regard.training.run import FACTS, RECIPE

PLAN = "finetune.json"
CONFIDENCE = 0.9  # from which on a label that the model gives is learned from
AMOUNT = re.compile(r"([0-9]*\.?[0-9]+) *(epochs?|steps?)?")

Facts = dict[str, Any]
Learn = Callable[[Recipe, Path, bool], Facts]  # (what, where, go on?)


@dataclass(frozen=True)
class Stages:
    """What is asked for besides the fine-tuning itself."""

    folds: int = 0  # cross-validation: so many runs
    adapt: str = ""  # pre-training on the task's text first: "3" epochs, "500 steps"
    unlabelled: str = ""  # examples without labels
    confidence: float = 0.0  # labels are given to those of which the model is so sure; 0: none

    def __bool__(self) -> bool:
        return bool(self.folds or self.adapt or self.unlabelled)

    @property
    def before(self) -> bool:
        return bool(self.adapt or self.confidence)

    def in_words(self, out: Path) -> list[str]:
        """What happens besides the run itself, in its order."""
        told, place = [], out
        if self.folds:
            place = out / "fold-1"
            told.append(f"{self.folds} such runs: {place} to {out / f'fold-{self.folds}'}")
        if self.adapt:
            told.append(f"before it {place / 'adapted'} reads the task's text: {self.adapt}")
        if self.confidence:
            told.append(f"before it {place / 'first'} labels {self.unlabelled}")
        return told


def asked(folds: int, adapt: str, unlabelled: str, confidence: float | None) -> Stages:
    """The stages of a command line, once they make sense together.

    Without --adapt the unlabelled examples are given labels; with it they are text, and are given
    labels only if --confidence says so.
    """
    if folds and folds < 2:
        raise ConfigError(f"--folds is {folds}; a cross-validation has at least 2 parts")
    if confidence is not None and not unlabelled:
        raise ConfigError("--confidence is for labels of --unlabelled examples, which are missing")
    if confidence is None:
        confidence = CONFIDENCE if unlabelled and not adapt else 0.0
    elif not 0 < confidence <= 1:
        raise ConfigError(f"--confidence is {confidence:g}; it must be above 0 and at most 1")
    if adapt:
        amount(adapt)
    return Stages(folds, adapt, unlabelled, confidence)


def amount(text: str) -> dict[str, float]:
    """ "3" or "3 epochs", "500 steps", as a recipe's budget has it."""
    found = AMOUNT.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"--adapt is {text!r}; give epochs, as in 3, or steps, as in '500 steps'")
    number = float(found[1])
    if (found[2] or "").startswith("step"):
        return {"steps": max(1, int(number))}
    return {"epochs": number}


def check_stages(recipe: Recipe, stages: Stages) -> None:
    """Refuses what cannot be done so."""
    task, given = recipe.examples.task, recipe.examples
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "--folds, --adapt and --unlabelled are several runs, one after the other; start them "
            "in one process"
        )
    if stages.folds and given.valid:
        raise ConfigError("--folds validates with each part of the data once; leave --valid out")
    if stages.confidence and not find(task or "").pseudo:
        able = " and ".join(name for name in TASKS if find(name).pseudo)
        raise ConfigError(
            f"labels can be given to examples of {able}, not of {task}; with --adapt --unlabelled "
            "is read as text"
        )
    if stages.confidence and given.more:
        raise ConfigError("examples.more is set already; leave it out, or --unlabelled")


def read_unlabelled(recipe: Recipe, stages: Stages) -> list[Example]:
    """The examples of --unlabelled, whose fields are named as in the data; it need not have those
    with answers.
    """
    answers, given = find(recipe.examples.task or "").answers, recipe.examples.fields
    fields = {role: name for role, name in given.items() if role not in answers}
    bare = replaced(recipe, examples={"fields": fields})
    return read_all(stages.unlabelled, bare, Problems())


# -- runs inside of a run


class Stopped(Exception):
    """A run inside was interrupted; what follows it has to wait."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts


def part(recipe: Recipe, place: Path, learn: Learn) -> Facts:
    """A run inside of another: begun, gone on with, or only read if it is over."""
    found = over(place)
    if found is None:
        found = learn(recipe, place, (place / RECIPE).is_file())
    if found["outcome"] == "interrupted":
        raise Stopped(found)
    return found


def over(place: Path) -> Facts | None:
    """What run.json says of a run that has ended by itself."""
    file = place / FACTS
    found: Facts = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found if found.get("outcome", "interrupted") != "interrupted" else None


# -- what was asked for, beside what was made of it


def write_plan(recipe: Recipe, out: Path, stages: Stages) -> None:
    out.mkdir(parents=True, exist_ok=True)
    held = {"recipe": recipe.table(), "stages": asdict(stages), "digest": digest(recipe, stages)}
    write_json(out / PLAN, held)


def read_plan(out: Path) -> tuple[Recipe, Stages]:
    """Goes on only with the data that it began with."""
    file = out / PLAN
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        recipe, stages = recipes.make(held["recipe"]), Stages(**held["stages"])
        before = held["digest"]
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{file} cannot be read: {error}") from None
    if before != digest(recipe, stages):
        raise InputError(
            f"{recipe.data} (or what validates, or the unlabelled examples) has changed since "
            f"{out} began; it can only go on with the same data: restore it, or begin a new run"
        )
    return recipe, stages


def digest(recipe: Recipe, stages: Stages) -> str:
    found = hashlib.blake2b(digest_size=16)
    given = (recipe.data, recipe.examples.valid, recipe.examples.more, stages.unlabelled)
    task = recipe.examples.task or ""
    for name in (file for each in given if each for file in files_of(each, task)):
        if Path(name).is_file():
            with Path(name).open("rb") as file:
                found.update(hashlib.file_digest(file, "blake2b").digest())
    return found.hexdigest()
