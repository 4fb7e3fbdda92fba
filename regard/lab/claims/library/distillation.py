"""Distillation: a model with half of the layers learns from the whole model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import QUIET, Workspace, finished, seconds
from regard.lab.claims.engine.finetuning import (
    ALIKE,
    GPT,
    TUNING,
    FinetunedExperiment,
    PerArmExperiment,
    PretrainedStart,
)
from regard.lab.claims.engine.labeled_texts import Files, moods
from regard.training import recipe as recipes


@dataclass(frozen=True)
class Student(PretrainedStart):
    """Every other layer of a pre-trained start, distilled from it on the same text."""

    teacher: PretrainedStart = GPT

    def train(self, seed: int, room: Workspace, steps: int, out: Path) -> None:
        from regard.methods.distill.run import Asked, distill

        own = {"data": str(self.text(room.place)), "seed": seed, "budget": {"steps": steps}}
        teaching = Asked(str(self.teacher.trained(seed, room)), "layers=2")
        recipe = recipes.make(QUIET, ALIKE, self.common, own)
        finished(distill(recipe, out, teaching, display="silent"))

    @property
    def settings(self) -> tuple[Any, ...]:
        return *super().settings, self.teacher.settings


def read(run: Path, files: Files, cell: ClaimCell, room: Workspace) -> dict[str, float]:
    """Measures the seconds in which 64 sentences are read."""
    import torch

    from regard.formats.directory import load

    model = load(run).model.eval()
    tokens = torch.arange(64 * 8).view(64, 8) % model.config.vocab_size
    with torch.inference_mode():
        return {"reading": seconds(lambda: model(tokens), least=0.5, rounds=10)}


STUDENT = Student(
    "moods-gpt-half", GPT.text, {k: GPT.common[k] for k in ("batch", "validation")}, steps=150
)  # fmt: skip
TEACHER = FinetunedExperiment(
    GPT, moods, TUNING, {"teacher": {}, "student": {}}, 256, steps=150, look=read
)


EXPERIMENT = PerArmExperiment({"teacher": TEACHER, "student": replace(TEACHER, start=STUDENT)})
