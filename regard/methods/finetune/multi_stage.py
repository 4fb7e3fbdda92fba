"""What may come before a fine-tuning, or divide it: runs inside of a run, each resumable."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, FormatError, InputError
from regard.core.files import write_json
from regard.data.examples import Example
from regard.data.problems import Problems
from regard.methods.options import Stages, amount
from regard.tasks import TASKS
from regard.tasks import task as find
from regard.tasks.corpus import files_of, read_all
from regard.training import recipe as recipes
from regard.training.recipe import Recipe, replaced
from regard.training.run import FACTS, RECIPE

PLAN = "finetune.json"

__all__ = ["Stages", "amount"]  # beside what is here

Facts = dict[str, Any]
Learn = Callable[[Recipe, Path, bool], Facts]  # (what, where, go on?)


def check_stages(recipe: Recipe, stages: Stages) -> None:
    """Refuses what cannot be done so."""
    task, given = recipe.examples.task, recipe.examples
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "--folds, --adapt and --unlabeled are several runs, one after the other; start them "
            "in one process"
        )
    if stages.folds and given.valid:
        raise ConfigError("--folds validates with each part of the data once; leave --valid out")
    if stages.confidence and not find(task or "").pseudo:
        able = " and ".join(name for name in TASKS if find(name).pseudo)
        raise ConfigError(
            f"labels can be given to examples of {able}, not of {task}; with --adapt --unlabeled "
            "is read as text"
        )
    if stages.confidence and given.more:
        raise ConfigError("examples.more is set already; leave it out, or --unlabeled")


def read_unlabelled(recipe: Recipe, stages: Stages) -> list[Example]:
    """The examples of --unlabeled, whose fields are named as in the data; it need not have those
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
