"""What a teacher has learned, and so what of it can be distilled on some data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import ConfigError, FormatError
from regard.data.corpus import MARKER, read_marker
from regard.formats.directory import read_config
from regard.formats.registry import format_of
from regard.methods.distill.parts import TEXT
from regard.models import FAMILIES
from regard.tasks import TASKS, objective_of
from regard.tasks.labelled import TASK
from regard.training import recipe as recipes
from regard.training.recipe import Recipe, replaced
from regard.training.run import RECIPE


class Inner(NamedTuple):
    of: str  # the objective to distil
    options: dict[str, Any]
    recipe: Recipe  # of a labelled task: with the teacher's own classes and length


def inner_of(recipe: Recipe, teacher: Path) -> Inner:
    """What a teacher learned, on such data."""
    kind = format_of(read_config(teacher)["model_type"]).family
    asked = str(recipe.objective.get("of", ""))
    if not Path(recipe.data, MARKER).is_file():
        return labelled_of(recipe, teacher, asked)
    if read_marker(Path(recipe.data)).get("kind") == "pairs":
        return Inner(asked or "pairs", {}, recipe)
    if asked:
        return Inner(asked, {}, recipe)
    if (teacher / RECIPE).is_file():
        held = dict(recipes.read(teacher / RECIPE).get("objective", {}))
        if held.get("name") == "distil":
            return Inner(str(held["of"]), dict(held.get("options", {})), recipe)
        name = held.pop("name", "")
        if name in TEXT:
            return Inner(name, held, recipe)
    usual = FAMILIES[kind].running_objective
    if usual not in TEXT:
        raise ConfigError(
            f"{teacher} is a {kind}, which learns {usual!r} from text, and that cannot be "
            "distilled; distil it after it has learned a task, or name another: objective.of=causal"
        )
    return Inner(usual, {}, recipe)


def labelled_of(recipe: Recipe, teacher: Path, asked: str) -> Inner:
    held: dict[str, Any] = {}
    if (teacher / TASK).is_file():
        try:
            held = json.loads((teacher / TASK).read_text(encoding="utf-8"))
        except ValueError as error:
            raise FormatError(f"{teacher / TASK} is not valid JSON: {error}") from None
    task = recipe.examples.task or str(held.get("task", ""))
    learner = objective_of(task)
    if not learner:
        raise ConfigError(
            f"{recipe.data} is no prepared text, and for labelled examples a task is needed: "
            f"--task {', '.join(filter(objective_of, TASKS))}"
        )
    options = {k: v for k, v in (held.get("objective") or {}).items() if v is not None}
    marks = {"marks": options["marks"]} if "marks" in options else {}
    recipe = replaced(
        recipe,
        examples={"task": task, "labels": recipe.examples.labels or held.get("labels") or None},
        batch={"length": recipe.batch.length or held.get("length")},
        objective=marks | recipe.objective,
    )
    for name in ("name", "family", "marks", "tau"):
        options.pop(name, None)
    return Inner(asked or learner, options, recipe)
