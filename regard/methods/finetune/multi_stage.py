"""What may come before a fine-tuning, or divide it: runs inside of a run, each resumable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import ConfigError, InputError
from regard.data.examples import Example
from regard.data.problems import Problems
from regard.methods.runs import check_one_process, digest_of, read_plan
from regard.tasks import TASKS
from regard.tasks import task as find
from regard.tasks.corpus import files_of, read_all
from regard.training.recipe import Recipe, replaced

PLAN = "finetune.json"
CONFIDENCE = 0.9  # from which on a label that the model gives is learned from
AMOUNT = re.compile(r"([0-9]*\.?[0-9]+) *(epochs?|steps?)?")


@dataclass(frozen=True)
class Stages:
    """What is asked for besides the fine-tuning itself."""

    folds: int | None = None  # the parts of a cross-validation, each a run
    adapt: str | None = None  # pre-training on the task's text first: "3" epochs, "500 steps"
    unlabelled: str | None = None  # a file of examples without labels
    confidence: float | None = None  # the model labels those of which it is at least so sure

    def __bool__(self) -> bool:
        return bool(self.folds or self.adapt or self.unlabelled)

    def in_words(self, out: Path) -> list[str]:
        """What happens besides the run itself, in its order."""
        lines, directory = [], out
        if self.folds:
            directory = out / "fold-1"
            lines.append(f"{self.folds} such runs: {directory} to {out / f'fold-{self.folds}'}")
        if self.adapt:
            lines.append(f"before it {directory / 'adapted'} reads the task's text: {self.adapt}")
        if self.confidence:
            lines.append(f"before it {directory / 'first'} labels {self.unlabelled}")
        return lines


def asked(
    folds: int | None, adapt: str | None, unlabelled: str | None, confidence: float | None
) -> Stages:
    """The stages of a command line, once they make sense together.

    Without --adapt the unlabelled examples are given labels; with it they are text, and are given
    labels only if --confidence says so.
    """
    if folds and folds < 2:
        raise ConfigError(f"--folds is {folds}; a cross-validation has at least 2 parts")
    if confidence is not None and not unlabelled:
        raise ConfigError("--confidence is for labels of --unlabelled examples, which are missing")
    if confidence is None:
        confidence = CONFIDENCE if unlabelled and not adapt else None
    elif not 0 < confidence <= 1:
        raise ConfigError(f"--confidence is {confidence:g}; it must be above 0 and at most 1")
    if adapt:
        amount(adapt)
    return Stages(folds or None, adapt or None, unlabelled or None, confidence)


def amount(text: str) -> dict[str, float]:
    """ "3" or "3 epochs", "500 steps", as a recipe's budget has it."""
    match = AMOUNT.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"--adapt is {text!r}; give epochs, as in 3, or steps, as in '500 steps'")
    if (match[2] or "").startswith("step"):
        return {"steps": max(1, int(float(match[1])))}
    return {"epochs": float(match[1])}


def check_stages(recipe: Recipe, stages: Stages) -> None:
    """Refuses stages that the task or the machine does not allow."""
    examples = recipe.examples
    check_one_process(
        "--folds, --adapt and --unlabelled are several runs, one after the other; start them in "
        "one process"
    )
    if stages.folds and examples.valid:
        raise ConfigError("--folds validates with each part of the data once; leave --valid out")
    if stages.confidence and not find(examples.task or "").pseudo:
        able = " and ".join(name for name in TASKS if find(name).pseudo)
        raise ConfigError(
            f"labels can be given to examples of {able}, not of {examples.task}; with --adapt "
            "--unlabelled is read as text"
        )
    if stages.confidence and examples.more:
        raise ConfigError("examples.more is set already; leave it out, or --unlabelled")


def read_unlabelled(recipe: Recipe, stages: Stages) -> list[Example]:
    """The examples of --unlabelled. Their fields have the names of the data's; those of answers
    may be missing.
    """
    answers, names = find(recipe.examples.task or "").answers, recipe.examples.fields
    fields = {role: name for role, name in names.items() if role not in answers}
    bare = replaced(recipe, examples={"fields": fields})
    return read_all(stages.unlabelled or "", bare, Problems())


def resumed(out: Path) -> tuple[Recipe, Stages]:
    """The recipe and the stages of a run that was begun, if its data are still the same."""
    stages, recipe, table = read_plan(out / PLAN, Stages, "no fine-tuning with stages was begun")
    if table.get("digest") != data_digest(recipe, stages):
        raise InputError(
            f"{recipe.data} (or what validates, or the unlabelled examples) has changed since "
            f"{out} began; it can only go on with the same data: restore it, or begin a new run"
        )
    return recipe, stages


def data_digest(recipe: Recipe, stages: Stages) -> str:
    examples, task = recipe.examples, recipe.examples.task or ""
    names = (recipe.data, examples.valid, examples.more, stages.unlabelled)
    files = (Path(file) for name in names if name for file in files_of(name, task))
    return digest_of(file for file in files if file.is_file())
