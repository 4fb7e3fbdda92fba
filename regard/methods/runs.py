"""One run of any kind: the data that a recipe learns from, and what methods put around a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.models import FAMILIES
from regard.tasks import objective_of
from regard.tasks.data import LabelledData
from regard.training import recipe as recipes
from regard.training.build import family
from regard.training.data import TextData
from regard.training.recipe import Recipe, Resolved, replaced
from regard.training.run import RECIPE, train

OBJECTIVES = {  # name: (module, class), beside those of text and of tasks
    "distil": ("methods.distill.objective", "Distil"),
    "reward": ("methods.preference.reward_model", "Reward"),
    "prefer": ("methods.preference.dpo", "Prefer"),
    "reinforce": ("methods.preference.grpo", "Reinforce"),
}
# What methods make in a run's directory before it begins: other runs and what they learn from.
BEFOREHAND = frozenset({
    "data", "task.json", "finetune.json", "text", "text.jsonl", "adapted", "first", "pseudo.json",
    "pseudo.jsonl",
})  # fmt: skip
DISTILLED = Path("first", "distil.json")  # of a run: it is a distillation


class AnyText(TextData):
    beforehand = BEFOREHAND
    verb = "train"

    def resume_command(self, out: Path) -> str:
        return command(self.verb, out)


class AnyExamples(LabelledData):
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
    """What goes on with a run: of a distillation, or a stage of one, the whole of it."""
    for place in (out, out.parent.parent):
        if (place / DISTILLED).is_file():
            return f"distill --resume {place}"
    return f"{verb} --resume {out}"


def data_for(recipe: Recipe) -> TextData:
    """What a recipe learns from: prepared text, or labelled examples of a task."""
    task = recipe.examples.task
    writes = bool(task) and FAMILIES[family(recipe)].writes_tasks
    if task == "prefer" or (objective_of(task or "") and not writes):
        examples = AnyExamples(OBJECTIVES)
        examples.verb = "align" if task == "prefer" else "finetune"
        return examples
    text = AnyText(OBJECTIVES)
    text.verb = "finetune" if task else "train"
    return text


def run(
    recipe: Recipe, out: Path, *, resume: bool = False, display: str = "auto"
) -> dict[str, Any]:
    """Trains by a recipe of any kind; gives what run.json says."""
    file = Path(out) / RECIPE
    known = recipes.make(recipes.read(file)) if resume and file.is_file() else recipe
    return train(recipe, out, data=data_for(known), resume=resume, display=display)
