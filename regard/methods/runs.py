"""Training runs of every kind: the data that a recipe learns from, and what the methods add around
a run: runs inside a run, the file that resumes it, and facts about model directories."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import ConfigError, FormatError, RegardError
from regard.core.files import read_json, write_json
from regard.core.tables import from_table
from regard.formats.registry import configure, extensions_of, format_of, heads_of, read_config
from regard.models import FAMILIES
from regard.tasks import objective_of
from regard.tasks import task as find_task
from regard.tasks.data import LabeledData
from regard.training import recipe as recipes
from regard.training.build import check_tokenizer, family
from regard.training.data import TextData
from regard.training.optimizer import freeze
from regard.training.parallel import ProcessGroup
from regard.training.plan import foresee, optimizer_for, run_facts, schedule_for
from regard.training.recipe import Recipe, Resolved, replaced
from regard.training.resolve import with_budget, with_steps
from regard.training.run import FACTS, RECIPE, pick_device, train

Facts = dict[str, Any]
Learn = Callable[[Recipe, Path, bool], Facts]  # (recipe, directory, resume?)

OBJECTIVES = {  # name: (module, class), besides the objectives of text and of tasks
    "distill": ("methods.distill.objective", "Distill"),
    "prefer": ("methods.preference.dpo", "Prefer"),
    "reinforce": ("methods.preference.grpo", "Reinforce"),
}
# The files that methods write into a run's directory before it begins: other runs and their data.
BEFOREHAND = frozenset({
    "data", "task.json", "finetune.json", "text", "text.jsonl", "adapted", "first", "pseudo.json",
    "pseudo.jsonl",
})  # fmt: skip
DISTILLED = Path("first", "distill.json")  # a run with this file is a distillation
SECONDS = 0.6  # the assumed time of a step in a rehearsal, where the budget is in minutes


def check_pretrained(model: str, why: str) -> None:
    """Refuses what is no model directory; names of the hub are fetched by its own program."""
    if Path(model, "config.json").is_file():
        return
    name = model.removeprefix("hub:")
    advice = f"give a run of 'regard train', or fetch a model: hf download {name} --local-dir DIR"
    raise ConfigError(f"{model} is no model directory, and {why}; {advice}, then give DIR")


class AnyText(TextData):
    beforehand = BEFOREHAND
    verb = "train"

    def resume_command(self, out: Path) -> str:
        return command(self.verb, out)


class AnyExamples(LabeledData):
    beforehand = BEFOREHAND
    verb = "finetune"

    def decided(self, config: Resolved, objective: Any) -> Resolved:
        config = super().decided(config, objective)
        if not config.augment.methods:
            return config
        from regard.methods.augment.learning import vary

        return replaced(config, augment=vary(objective, config))

    def resume_command(self, out: Path) -> str:
        return command(self.verb, out)


def command(verb: str, out: Path) -> str:
    """Returns the command that resumes a run. For a stage of a distillation, that is the command
    that resumes the whole distillation."""
    for directory in (out, out.parent.parent):
        if (directory / DISTILLED).is_file():
            return f"distill --resume {directory}"
    return f"{verb} --resume {out}"


def data_for(recipe: Recipe) -> TextData:
    """Returns the data that a recipe learns from: prepared text, or labeled examples of a task."""
    task = recipe.examples.task
    writes = bool(task) and FAMILIES[family(recipe)].writes_tasks
    aligned = task is not None and not find_task(task).finetuned
    if aligned or (objective_of(task or "") and not writes):
        examples = AnyExamples(OBJECTIVES)
        examples.verb = "align" if aligned else "finetune"
        return examples
    text = AnyText(OBJECTIVES)
    text.verb = "finetune" if task else "train"
    return text


def run(
    recipe: Recipe, out: Path, *, resume: bool = False, display: str = "auto"
) -> dict[str, Any]:
    """Trains by a recipe of any kind and returns the content of run.json."""
    file = Path(out) / RECIPE
    known = recipes.read_recipe(file) if resume and file.is_file() else recipe
    return train(recipe, out, data=data_for(known), resume=resume, display=display)


def runner(display: str) -> Learn:
    """Returns `run` as a `Learn` function, for a run that is a part of a longer run."""
    return lambda recipe, out, go_on: run(recipe, out, resume=go_on, display=display)


def rehearse(recipe: Recipe) -> None:
    """Raises the errors that the run of a recipe would raise before its first step, so that they
    come before any expensive work. The model directory must exist; only its shape is read."""
    data, device = data_for(recipe), pick_device(recipe.engine.device)
    built, ghost, batches, _, paper = foresee(
        recipe, ProcessGroup(), device, lambda note: None, data=data
    )
    batches.close()
    check_tokenizer(recipe, built.objective.corpus)
    facts = run_facts(built.config, ghost, built.objective, data)
    config = with_budget(built.config, paper, facts)
    freeze(config, ghost)
    optimizer_for(config, ghost)
    schedule_for(with_steps(config, paper, facts, seconds=SECONDS), ghost)


# -- runs inside a run


class StageInterrupted(Exception):
    """A run inside another run was interrupted, so the stages after it cannot start."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts


def part(recipe: Recipe, out: Path, learn: Learn) -> Facts:
    """Starts or resumes a run inside another run; if it has ended already, only reads its
    run.json."""
    facts = ended(out)
    if facts is None:
        facts = learn(recipe, out, (out / RECIPE).is_file())
    if facts["outcome"] == "interrupted":
        raise StageInterrupted(facts)
    return facts


def ended(out: Path) -> Facts | None:
    """Returns the content of run.json if the run ended by itself, else None."""
    kinds = {"outcome": str | None, "out": str | None, "progress": dict[str, Any] | None}
    facts = read_json(out / FACTS, kinds=kinds, nan=True) or {}
    return facts if facts.get("outcome", "interrupted") != "interrupted" else None


def check_one_process(why: str) -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(why)


# -- the file with the options of a run of several parts, to resume it with


class BegunRun(NamedTuple):
    options: Any
    recipe: Recipe
    table: dict[str, Any]  # the whole content of the file


def write_plan(file: Path, options: Any, recipe: Recipe | None = None, **facts: Any) -> None:
    table = {"recipe": recipe.table()} if recipe is not None else {}
    write_json(file, table | {"options": asdict(options)} | facts)


def read_plan(file: Path, kind: type[Any], missing: str) -> BegunRun:
    """Reads what `write_plan` wrote. If the file does not exist, `missing` ends the error
    message."""
    table = read_json(file, error=FormatError, advice="restore it, or begin anew")
    if table is None:
        raise ConfigError(f"{file} does not exist; {missing}")
    try:
        options = from_table(kind, table["options"])
        return BegunRun(options, recipes.make(table.get("recipe", {})), table)
    except (RegardError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise FormatError(f"{file} cannot be read: {error}") from None


# -- model directories, without their weights


class ModelDescription(NamedTuple):
    family: str
    config: Any
    heads: dict[str, int]
    extensions: dict[str, Any]


def model_facts(directory: Path) -> ModelDescription:
    """Reads the family, the config, the heads and the extensions of a model from its
    config.json."""
    source = read_config(directory)
    form = format_of(source["model_type"])
    config = configure(form, source)
    return ModelDescription(form.family, config, heads_of(form, source), extensions_of(source))


def digest_of(files: Iterable[Path]) -> str:
    """Returns one digest of the content of all these files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def weights_digest(directories: Iterable[str | Path]) -> str:
    return digest_of(file for d in directories for file in sorted(Path(d).glob("*.safetensors")))
