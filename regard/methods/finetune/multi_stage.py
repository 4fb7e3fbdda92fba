"""The stages that may come before a fine-tuning, or divide it: runs inside a run, each
resumable."""

from __future__ import annotations

from pathlib import Path

from regard.core.errors import ConfigError, InputError
from regard.data.examples import Example
from regard.data.problems import Problems
from regard.methods.options import FinetuneOptions, amount
from regard.methods.runs import check_one_process, digest_of, read_plan
from regard.tasks import TASKS
from regard.tasks import task as find
from regard.tasks.corpus import files_of, read_all
from regard.training.recipe import Recipe, replaced

PLAN = "finetune.json"

__all__ = ["FinetuneOptions", "amount"]  # exported again, besides what this module defines


def check_stages(recipe: Recipe, stages: FinetuneOptions) -> None:
    """Raises ConfigError for stages that the task or the number of processes does not allow."""
    examples = recipe.examples
    check_one_process(
        "--folds, --adapt and --unlabeled are several runs, one after the other; start them as one "
        "process, without torchrun"
    )
    if stages.folds and examples.valid:
        raise ConfigError("--folds takes its validation data from --data; leave --valid out")
    if stages.confidence and not find(examples.task or "").pseudo:
        able = " and ".join(name for name in TASKS if find(name).pseudo)
        raise ConfigError(
            f"pseudo-labels can be made for examples of {able}, not of {examples.task}; with "
            "--adapt, --unlabeled is read as text"
        )
    if stages.confidence and examples.extra_data:
        raise ConfigError("examples.extra_data and --unlabeled are both given; give only one")


def read_unlabeled(recipe: Recipe, stages: FinetuneOptions) -> list[Example]:
    """Reads the examples of --unlabeled. Their fields have the same names as the fields of the
    data; the fields of the answers may be missing."""
    answers, names = find(recipe.examples.task or "").answers, recipe.examples.fields
    fields = {role: name for role, name in names.items() if role not in answers}
    bare = replaced(recipe, examples={"fields": fields})
    return read_all(stages.unlabeled or "", bare, Problems())


def resumed(out: Path) -> tuple[Recipe, FinetuneOptions]:
    """Returns the recipe and the stages of an interrupted run. Raises InputError if its data have
    changed."""
    stages, recipe, table = read_plan(
        out / PLAN, FinetuneOptions, "no fine-tuning with stages was begun"
    )
    if table.get("digest") != data_digest(recipe, stages):
        raise InputError(
            f"{recipe.data} (or the validation data, or the unlabeled examples) has changed since "
            f"{out} began; a run resumes only with the same data: restore it, or begin a new run"
        )
    return recipe, stages


def data_digest(recipe: Recipe, stages: FinetuneOptions) -> str:
    examples, task = recipe.examples, recipe.examples.task or ""
    names = (recipe.data, examples.valid, examples.extra_data, stages.unlabeled)
    files = (Path(file) for name in names if name for file in files_of(name, task))
    return digest_of(file for file in files if file.is_file())
