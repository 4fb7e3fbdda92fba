"""RoBERTa (Liu et al. 2019): BERT, trained longer on more text without pairs of sentences.

It differs from BERT in a few numbers: there is one segment, the position table begins with rows
that belong to padding, and a classifier has one more layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import nn

from regard.data.input_formats import InputFormat, PassageFormat, parts
from regard.models.base import normal
from regard.models.bert import Bert, BertConfig
from regard.models.family import CORE_PLAN, HIDING_LENGTHS, Family, PaperDefaults
from regard.models.output import Heads, SummaryHead, TokenHead


@dataclass(frozen=True)
class RobertaConfig(BertConfig):
    vocab_size: int = 50265
    segments: int = 1
    norm_eps: float = 1e-5
    pad_id: int = 1

    @property
    def first_position(self) -> int:
        """The first used row of the position table; the rows before it belong to padding."""
        return self.pad_id + 1


class Roberta(Bert):
    PRETRAINING: Heads = {"masked": 0}
    GUESSING = "gelu"  # independent of the layers' activation

    def head(self, name: str, classes: int) -> nn.Module:
        c = self.config
        dropout = c.dropout if c.dropout_head is None else c.dropout_head
        if name in ("tag", "answer"):
            return TokenHead(c.width, classes, dropout if name == "tag" else 0.0)
        if name == "classify":
            return SummaryHead(c.width, classes, "first", before=dropout, after=dropout)
        return SummaryHead(c.width, classes, "first", after=c.dropout if classes else 0.0)

    def initialize(self) -> Self:
        normal(self, self.config.init_std)
        return self


SIZES = {
    "roberta-base": RobertaConfig(),
    "roberta-large": RobertaConfig(width=1024, layers=24, heads=16, ffn_size=4096),
}

_training = PaperDefaults(
    lr=6e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, grad_clip=0.0, warmup=24_000,
    steps=500_000, batch_size=8192, seq_len=512,
)  # fmt: skip
_finetuning = PaperDefaults(
    lr=2e-5, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1, grad_clip=0.0, warmup=0.06,
    batch_size=16, seq_len=512, epochs=10,
)  # fmt: skip

FAMILY = Family(
    name="roberta",
    model=Roberta,
    config=RobertaConfig,
    paper="Liu et al., RoBERTa: A Robustly Optimized BERT Pretraining Approach",
    year=2019,
    sizes=SIZES,
    tensor_plan={**CORE_PLAN, "embeddings.tokens": "vocabulary", "output": "vocabulary"},
    objective="masked",
    budget_objectives={"masked": {"share": 0.3}},
    budget_lengths=HIDING_LENGTHS,
    compared=False,
    training={"": _training, "roberta-large": _training.replace(lr=4e-4, warmup=30_000)},
    finetuning={
        "": _finetuning,
        "answer": _finetuning.replace(lr=1.5e-5, weight_decay=0.01, batch_size=48, epochs=2),
        "choose": _finetuning.replace(lr=1e-5, epochs=4),
    },
    input_format=InputFormat(parts("cls a sep"), parts("cls a sep sep b sep"), segments=False),
    passage_format=PassageFormat(("cls", "question", "sep", "sep", "passage", "sep"), (0,) * 6),
)
