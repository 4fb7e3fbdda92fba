"""What becomes of the words that are to be guessed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.lab.claims.engine.claim import Cell, Chart, Claim, Experiment, Said
from regard.lab.claims.engine.experiment import Room
from regard.lab.claims.engine.finetuning import BERT, TUNING, ByArm, Start, Tuned
from regard.lab.claims.engine.labelled_texts import shades
from regard.lab.claims.engine.rules import Less, Provided, Within

SPLITS = {"80/10/10": (0.8, 0.1), "100/0/0": (1.0, 0.0), "80/20/0": (0.8, 0.2),
          "0/0/100": (0.0, 0.0)}  # fmt: skip


@contextmanager
def split(hide: float, keep: float) -> Iterator[None]:
    """What a masked objective does to the words it chooses; the rest become any word."""
    from regard.objectives import masked

    before = masked.HIDE, masked.KEEP
    masked.HIDE, masked.KEEP = hide, keep
    try:
        yield
    finally:
        masked.HIDE, masked.KEEP = before


@dataclass(frozen=True)
class Split(Start):
    """A start that has read with another split."""

    fates: tuple[float, float] = (0.8, 0.1)

    def train(self, seed: int, room: Room, steps: int, out: Path) -> None:
        with split(*self.fates):
            super().train(seed, room, steps, out)

    @property
    def settings(self) -> tuple[Any, ...]:
        return *super().settings, self.fates


@dataclass(frozen=True)
class Both(Experiment):
    """A fine-tuning, the same without learning in the layers, and what that costs."""

    fine: Tuned
    frozen: Tuned

    def figures(self, cell: Cell, room: Room) -> dict[str, float]:
        found = self.fine.figures(cell, room)
        fixed = self.frozen.figures(cell, room)["error"]
        return found | {"features": fixed, "cost": fixed - found["error"]}


def experiment(name: str) -> Both:
    called = f"masked-{name.replace('/', '-')}"
    start = Split(called, BERT.text, BERT.common, BERT.steps, SPLITS[name])
    common = TUNING | {"examples": {"task": "tag"}}
    fine = Tuned(start, shades, common, {name: {}}, labels=24, steps=120)
    head_alone = {name: {"optimizer": {"frozen": 4, "rate": 1e-2}}}
    return Both(fine, replace(fine, arms=head_alone))


CLAIM = Claim(
    name="masking-80-10-10",
    statement=Said(
        "Of the chosen words 80 % are hidden, 10 % replaced and 10 % kept; fine-tuning hardly "
        "feels the split, but features of a frozen model suffer where all are hidden.",
        "被选词中 80% 遮盖、10% 替换、10% 保留；微调几乎不受此比例影响，但若全部遮盖，"
        "冻结模型的特征会变差。",
    ),
    source="Devlin et al. 2018, appendix C.2, table 8",
    setting=Said(
        "BERTs of four layers read made texts with different splits (hidden/kept/replaced), then "
        "tag words by their shade from 24 labelled sentences: all layers learn, or the head alone, "
        "at ten times the rate. The cost is the difference of the two errors.",
        "四层 BERT 以不同比例（遮盖/保留/替换）读人造文本，再用 24 个标注句给词标注类别："
        "全部层学习，或仅分类头（学习率为十倍）。代价为两者错误率之差。",
    ),
    arms=tuple(SPLITS),
    experiment=ByArm({name: experiment(name) for name in SPLITS}),
    rule=Provided(
        Within("error", "80/10/10", most=0.5),
        Less("cost", "80/10/10", "100/0/0"),
    ),
    charts=(
        Chart("error", Said("error, fine-tuned", "错误率（微调）")),
        Chart("features", Said("error, features", "错误率（特征）")),
        Chart("cost", Said("cost of freezing", "冻结的代价")),
    ),
    minutes=6,
)  # fmt: skip
