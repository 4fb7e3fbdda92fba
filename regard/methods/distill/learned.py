"""What a teacher has learned, and so what of it can be distilled on some data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, FormatError
from regard.data.corpus import MARKER, read_marker
from regard.formats.directory import read_config
from regard.formats.registry import format_of
from regard.methods.distill.parts import TEXT
from regard.models import FAMILIES
from regard.tasks import TASKS, objective_of
from regard.tasks.labelled import TASK
from regard.training import recipe as recipes
from regard.training.recipe import Recipe
from regard.training.run import RECIPE


def inner_of(recipe: Recipe, teacher: Path) -> tuple[str, dict[str, Any]]:
    """The objective to distil and its options: that which the teacher learned, on such data. Of a
    labelled task the recipe gets the teacher's own classes and length.
    """
    kind = format_of(read_config(teacher)["model_type"]).family
    asked = str(recipe.objective.get("of", ""))
    if not Path(recipe.data, MARKER).is_file():
        return labelled_of(recipe, teacher, asked)
    if read_marker(Path(recipe.data)).get("kind") == "pairs":
        return asked or "pairs", {}
    if asked:
        return asked, {}
    if (teacher / RECIPE).is_file():
        held = dict(recipes.read(teacher / RECIPE).get("objective", {}))
        if held.get("name") == "distil":
            return str(held["of"]), dict(held.get("options", {}))
        if held.pop("name", "") in TEXT:
            return str(recipes.read(teacher / RECIPE)["objective"]["name"]), held
    usual = FAMILIES[kind].running_objective
    if usual not in TEXT:
        raise ConfigError(
            f"{teacher} is a {kind}, which learns {usual!r} from text, and that cannot be "
            "distilled; distil it after it has learned a task, or name another: objective.of=causal"
        )
    return usual, {}


def labelled_of(recipe: Recipe, teacher: Path, asked: str) -> tuple[str, dict[str, Any]]:
    held: dict[str, Any] = {}
    if (teacher / TASK).is_file():
        try:
            held = json.loads((teacher / TASK).read_text(encoding="utf-8"))
        except ValueError as error:
            raise FormatError(f"{teacher / TASK} is not valid JSON: {error}") from None
    given = recipe.examples
    given.task = given.task or str(held.get("task", ""))
    learner = objective_of(given.task)
    if not learner:
        raise ConfigError(
            f"{recipe.data} is no prepared text, and for labelled examples a task is needed: "
            f"--task {', '.join(filter(objective_of, TASKS))}"
        )
    if not given.labels:
        given.labels = list(held.get("labels") or [])
    recipe.batch.length = recipe.batch.length or int(held.get("length", 0))
    options = {k: v for k, v in (held.get("objective") or {}).items() if v is not None}
    if "marks" in options:
        recipe.objective.setdefault("marks", options["marks"])
    for name in ("name", "family", "marks", "tau"):
        options.pop(name, None)
    return asked or learner, options
