"""Labeled examples as the data of a run: the objectives of tasks learn from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.core.errors import UnknownName
from regard.core.tables import Table
from regard.models.family import Family
from regard.objectives.base import Objective
from regard.tasks import objective_of
from regard.tasks import objectives as classes
from regard.tasks.corpus import labeled_data
from regard.training.data import BuiltData, TextData, learned
from regard.training.recipe import Recipe, Resolved, replaced
from regard.training.resolve import DataFacts


def learners() -> dict[str, tuple[str, str]]:
    """Returns the objectives that train a head: name -> (module, class)."""
    objectives = classes().items()
    return {name: (c.__module__.removeprefix("regard."), c.__name__) for name, c in objectives}


class LabeledData(TextData):
    of_examples = True

    def __init__(self, objectives: Mapping[str, tuple[str, str]] | None = None) -> None:
        super().__init__(learners() | dict(objectives or {}))

    def resume_command(self, out: Path) -> str:
        return f"finetune --resume {out}"

    def verify(self, recipe: Recipe, note: Callable[[str], None]) -> None:
        """The files of examples are read whole; the recipe holds their digest."""

    def facts(self, recipe: Recipe, card: Family) -> DataFacts:
        task = recipe.examples.task or ""
        own = objective_of(task) or task
        name = learned({"name": own} | recipe.objective)
        if name not in self.objectives:
            raise UnknownName("objective", name, self.objectives, f"(for examples of {task})")
        return DataFacts(own, {"family": card.name})

    def decided(self, config: Resolved, objective: Any) -> Resolved:
        """Puts the labels, the digest and the options that the training data decides into the
        recipe. The validation set is then read by them, too."""
        corpus = objective.corpus
        config = super().decided(config, objective)
        return replaced(config, examples={"labels": corpus.labels, "digest": corpus.digest})

    def validation(self, config: Resolved) -> Objective | None:
        options = config.examples
        validates = options.valid or options.valid_fraction or options.folds
        return self.on_split(config, "valid") if validates else None

    def corpus(self, config: Resolved, split: str) -> Any:
        return labeled_data(config, split)

    def about(self, built: BuiltData) -> Table:
        parts: dict[str, Any] = {"train": built.objective, "valid": built.valid}
        return {
            "path": str(Path(built.config.data)),
            "task": built.config.examples.task,
            "labels": built.config.examples.labels,
            "vocab_size": built.objective.corpus.vocab_size,
            "splits": {k: {"examples": len(o.corpus)} for k, o in parts.items() if o is not None},
        }
