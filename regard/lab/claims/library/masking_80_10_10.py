"""Masking 80/10/10: how the words to predict are replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.lab.claims.engine.claim import ClaimCell, ClaimExperiment
from regard.lab.claims.engine.experiment import Workspace
from regard.lab.claims.engine.finetuning import (
    BERT,
    TUNING,
    FinetunedExperiment,
    PerArmExperiment,
    PretrainedStart,
)
from regard.lab.claims.engine.labeled_texts import shades

SPLITS = {"80/10/10": (0.8, 0.1), "100/0/0": (1.0, 0.0), "80/20/0": (0.8, 0.2),
          "0/0/100": (0.0, 0.0)}  # fmt: skip


@contextmanager
def split(hide: float, keep: float) -> Iterator[None]:
    """Sets how a masked objective replaces the chosen words: masked, kept, and the rest by random
    words."""
    from regard.objectives import masked

    before = masked.HIDE, masked.KEEP
    masked.HIDE, masked.KEEP = hide, keep
    try:
        yield
    finally:
        masked.HIDE, masked.KEEP = before


@dataclass(frozen=True)
class Split(PretrainedStart):
    """A start that was pre-trained with another split."""

    fates: tuple[float, float] = (0.8, 0.1)

    def train(self, seed: int, room: Workspace, steps: int, out: Path) -> None:
        with split(*self.fates):
            super().train(seed, room, steps, out)

    @property
    def settings(self) -> tuple[Any, ...]:
        return *super().settings, self.fates


@dataclass(frozen=True)
class Both(ClaimExperiment):
    """Fine-tuning with all layers and with frozen layers, and the difference in error."""

    fine: FinetunedExperiment
    frozen: FinetunedExperiment

    def figures(self, cell: ClaimCell, room: Workspace) -> dict[str, float]:
        tuned = self.fine.figures(cell, room)
        fixed = self.frozen.figures(cell, room)["error"]
        return tuned | {"features": fixed, "cost": fixed - tuned["error"]}


def experiment(name: str) -> Both:
    called = f"masked-{name.replace('/', '-')}"
    start = Split(called, BERT.text, BERT.common, BERT.steps, SPLITS[name])
    common = TUNING | {"examples": {"task": "tag"}}
    fine = FinetunedExperiment(start, shades, common, {name: {}}, labels=24, steps=120)
    head_alone = {name: {"optimizer": {"freeze_layers": 4, "lr": 1e-2}}}
    return Both(fine, replace(fine, arms=head_alone))


EXPERIMENT = PerArmExperiment({name: experiment(name) for name in SPLITS})
