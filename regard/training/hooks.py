"""What an objective of a task or of a method adds to a run, besides what it learns.

An objective that adds something inherits from `Hooks` and says it; training asks at these places
and knows nothing else of tasks and methods.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.objectives.base import Objective


class Hooks:
    def adapt_model(self, model: Any) -> Any:
        """The model with what it lacks for this: rows for new tokens, a part of its own. It may
        have no memory for its weights yet; random ones come from torch's generator.
        """
        return model

    def auxiliary_models(self) -> list[str]:
        """The directories of models that a step asks beside the one that learns. A step depends on
        them and needs memory for them, and no checkpoint holds them.
        """
        return []

    def settled(self) -> dict[str, Any]:
        """Options that the data decided; what validates then goes by them, too."""
        return {}

    def on_train_end(self, model: Any, valid: Objective | None) -> None:
        """Called once before the model is saved, in evaluation, with what validates."""

    def hf_config(self) -> dict[str, Any]:
        """What belongs into config.json of a model that has learned this."""
        return {}

    def save_extras(self, model: Any, out: Path) -> None:
        """Writes beside a saved model what else is needed to use it."""


def hooks_of(objective: Objective) -> Hooks:
    """The objective itself where it adds something, else hooks that do nothing."""
    return objective if isinstance(objective, Hooks) else Hooks()
