"""Finds out what a teacher has learned, and so which objective can be distilled on the
given data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import ConfigError
from regard.data.corpus import MARKER, read_marker
from regard.methods.distill.parts import is_text_objective
from regard.methods.runs import model_facts
from regard.models import FAMILIES
from regard.objectives import objective_of_kind
from regard.tasks import TASKS, objective_of
from regard.tasks.labeled import task_facts
from regard.training import recipe as recipes
from regard.training.recipe import Recipe, replaced
from regard.training.run import RECIPE


class InnerObjective(NamedTuple):
    of: str  # the objective to distill
    options: dict[str, Any]
    recipe: Recipe  # for a labeled task: with the teacher's classes and sequence length


def inner_of(recipe: Recipe, teacher: Path) -> InnerObjective:
    """Returns the objective that the teacher has learned and that fits the data."""
    kind = model_facts(teacher).family
    of = str(recipe.objective.get("of") or "")
    if not Path(recipe.data, MARKER).is_file():
        return labeled_of(recipe, teacher, of)
    of = of or objective_of_kind(read_marker(Path(recipe.data)).get("kind", ""), "")
    if of:
        return InnerObjective(of, {}, recipe)
    if (teacher / RECIPE).is_file():
        learned = dict(recipes.read(teacher / RECIPE).get("objective", {}))
        if learned.get("name") == "distill":
            return InnerObjective(str(learned["of"]), dict(learned.get("options", {})), recipe)
        name = learned.pop("name", "")
        if is_text_objective(name):
            return InnerObjective(name, learned, recipe)
    usual = FAMILIES[kind].running_objective
    if not is_text_objective(usual):
        raise ConfigError(
            f"{teacher} is a {kind}, which learns {usual!r} from text, and {usual!r} cannot be "
            "distilled; fine-tune the teacher on a task first, or name another objective: "
            "objective.of=causal"
        )
    return InnerObjective(usual, {}, recipe)


def labeled_of(recipe: Recipe, teacher: Path, of: str) -> InnerObjective:
    facts = task_facts(teacher)
    task = recipe.examples.task or str(facts.get("task", ""))
    learner = objective_of(task)
    if not learner:
        raise ConfigError(
            f"{recipe.data} is no prepared text, and labeled examples need a task; give --task "
            f"{', '.join(filter(objective_of, TASKS))}"
        )
    options = {k: v for k, v in (facts.get("objective") or {}).items() if v is not None}
    marks = {"marks": options["marks"]} if "marks" in options else {}
    recipe = replaced(
        recipe,
        examples={"task": task, "labels": recipe.examples.labels or facts.get("labels") or None},
        batch={"seq_len": recipe.batch.seq_len or facts.get("length")},
        objective=marks | recipe.objective,
    )
    for name in ("name", "family", "marks", "tau"):
        options.pop(name, None)
    return InnerObjective(of or learner, options, recipe)
