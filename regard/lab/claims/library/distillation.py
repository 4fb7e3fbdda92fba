"""A model of half the layers that learns from the whole one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.lab.claims.engine.claim import Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import QUIET, Room, finished, seconds
from regard.lab.claims.engine.finetuning import ALIKE, GPT, TUNING, ByArm, Start, Tuned
from regard.lab.claims.engine.labelled_texts import Files, moods
from regard.lab.claims.engine.rules import All, Ratio
from regard.training import recipe as recipes


@dataclass(frozen=True)
class Student(Start):
    """Every other layer of a start, taught by it on the same text."""

    teacher: Start = GPT

    def train(self, seed: int, room: Room, steps: int, out: Path) -> None:
        from regard.methods.distill.run import Asked, distil

        own = {"data": str(self.text(room.place)), "seed": seed, "budget": {"steps": steps}}
        asked = Asked(str(self.teacher.trained(seed, room)), "layers=2")
        recipe = recipes.make(QUIET, ALIKE, self.common, own)
        finished(distil(recipe, out, asked, display="silent"))

    @property
    def settings(self) -> tuple[Any, ...]:
        return *super().settings, self.teacher.settings


def read(run: Path, files: Files, cell: Cell, room: Room) -> dict[str, float]:
    """Seconds in which 64 sentences are read."""
    import torch

    from regard.formats.directory import load

    model = load(run).model.eval()
    tokens = torch.arange(64 * 8).view(64, 8) % model.config.vocabulary
    with torch.inference_mode():
        return {"reading": seconds(lambda: model(tokens), least=0.5, rounds=10)}


STUDENT = Student(
    "moods-gpt-half", GPT.text, {k: GPT.common[k] for k in ("batch", "validation")}, steps=150
)  # fmt: skip
TEACHER = Tuned(GPT, moods, TUNING, {"teacher": {}, "student": {}}, 256, steps=150, look=read)

CLAIM = Claim(
    name="distillation",
    statement=Said(
        "A student with half of the layers is 40 % smaller and 60 % faster than its teacher and "
        "keeps 97 % of its score.",
        "层数减半的学生模型比老师小 40%、快 60%，并保持 97% 的得分。",
    ),
    source="Sanh et al. 2019 (DistilBERT), tables 1 and 3",
    setting=Said(
        "A pre-trained GPT of four layers teaches one of two on the text that it has read; both "
        "are then fine-tuned on 256 labelled sentences. Seconds are those of reading 64 sentences.",
        "预训练的四层 GPT 在它读过的文本上教一个两层的；两者再用 256 个标注句微调。"
        "秒数为读 64 句所需。",
    ),
    arms=("teacher", "student"),
    experiment=ByArm({"teacher": TEACHER, "student": replace(TEACHER, start=STUDENT)}),
    rule=All((
        Ratio("parameters", "student", "teacher", most=0.6),
        Ratio("reading", "student", "teacher", most=1 / 1.6),
        Ratio("accuracy", "student", "teacher", least=0.97),
    )),
    charts=(
        Chart("parameters", Said("parameters", "参数量")),
        Chart("reading", Said("seconds of reading", "阅读秒数")),
        Chart("accuracy", Said("accuracy", "正确率")),
    ),
    printed={"teacher": "GLUE 79.5", "student": "GLUE 77.0, 66 M parameters"},
    minutes=3,
    timed=True,
)  # fmt: skip
