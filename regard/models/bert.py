"""BERT (Devlin et al. 2018): a post-norm encoder that sees both sides of every word.

The authors' code uses the tanh form of GELU, the published PyTorch weights use the exact form:
`activation` chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import Block, FeedForward, PostNorm
from regard.attention.dropout import Dropout
from regard.attention.kernels import working_dtype
from regard.attention.pattern import Ordered
from regard.data.input_formats import InputFormat, PassageFormat, parts
from regard.models.base import Config, Encoder, as_booleans, check_length, check_tokens, normal
from regard.models.family import CORE_PLAN, HIDING_LENGTHS, Family, PaperDefaults
from regard.models.output import Heads, Output, SummaryHead, TokenHead, Transform
from regard.models.state import NOTHING, KnowledgeView, everything


@dataclass(frozen=True)
class BertConfig(Config):
    vocab_size: int = 30522
    context: int = 512
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn_size: int = 3072
    segments: int = 2
    activation: str = "gelu"
    dropout: float = 0.1
    dropout_attention: float = 0.1
    dropout_head: float | None = None  # before a classifier; `dropout` unless given
    norm_eps: float = 1e-12
    init_std: float = 0.02
    pad_id: int = 0  # the id of [PAD]

    @property
    def first_position(self) -> int:
        """The first used row of the position table; the rows before it are never used."""
        return 0


class Embeddings(nn.Module):
    """Word, position and segment embeddings, summed and normalized."""

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(c.vocab_size, c.width)
        self.first = c.first_position
        self.positions = nn.Embedding(c.first_position + c.context, c.width)
        self.segments = nn.Embedding(c.segments, c.width)
        self.norm = nn.LayerNorm(c.width, c.norm_eps)
        self.dropout = Dropout(c.dropout)

    def forward(self, input_ids: Tensor, at: Tensor, segments: Tensor | None) -> Tensor:
        segment = self.segments.weight[0] if segments is None else self.segments(segments)
        position = self.positions(at + self.first)
        y: Tensor = self.dropout(self.norm(self.tokens(input_ids) + segment + position))
        return y


class Bert(Encoder):
    """An encoder with the requested heads; by default the heads of pre-training, which predict the
    masked words and the next sentence."""

    accepts = frozenset({"segments", "order", "known"})

    PRETRAINING: Heads = {"masked": 0, "next": 2}
    GUESSING: str | None = None  # the activation of the masked-word head; the layers' unless given

    def __init__(self, config: BertConfig, heads: Heads | None = None) -> None:
        super().__init__()
        c = self.config = config
        self.embeddings = Embeddings(c)
        self.blocks = nn.ModuleList(self.block(c) for _ in range(c.layers))
        heads = self.PRETRAINING if heads is None else heads
        if "masked" in heads:
            transform = Transform(c.width, self.GUESSING or c.activation, c.norm_eps)
            self.output = Output(self.embeddings.tokens.weight, bias="learned", transform=transform)
        self.add_heads(heads)

    def block(self, c: BertConfig) -> nn.Module:
        attention = self.attention(c)
        feed_forward = FeedForward(c.width, c.ffn_size, c.activation)
        return Block(
            PostNorm(attention, nn.LayerNorm(c.width, c.norm_eps), c.dropout),
            PostNorm(feed_forward, nn.LayerNorm(c.width, c.norm_eps), c.dropout),
        )

    @staticmethod
    def attention(c: BertConfig) -> nn.Module:
        return Attention(c.width, c.heads, dropout=c.dropout_attention)

    def head(self, name: str, classes: int) -> nn.Module:
        c = self.config
        dropout = c.dropout if c.dropout_head is None else c.dropout_head
        if name in ("tag", "answer"):
            return TokenHead(c.width, classes, dropout if name == "tag" else 0.0)
        return SummaryHead(
            c.width, classes, "first", after=dropout if name in ("classify", "choose") else 0.0
        )

    def initialize(self) -> Self:
        """Initializes with a normal distribution of deviation 0.02, truncated at two deviations."""
        normal(self, self.config.init_std)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                std = self.config.init_std
                nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        return self

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        order: Tensor | None = None,
        known: KnowledgeView = NOTHING,
    ) -> Tensor:
        """Maps input_ids [B, T] to hidden states [B, T, width]; `attention_mask` [B, T] is False at
        padding.

        With an `order` [B, T], a row sees the rows whose order is not above its own; 0, 1, 2, …
        reads from left to right. `known` may change the positions of rows and hide rows from
        others.
        """
        c = self.config
        check_tokens(input_ids, c.vocab_size)
        attention_mask = as_booleans(attention_mask, input_ids)
        rows = input_ids.size(1)
        check_length(rows, c.context)
        x = self.embeddings(
            input_ids, known.positions(attention_mask, rows, input_ids.device), segments
        )
        dtype = working_dtype(x)
        pattern = (
            everything(attention_mask, rows, dtype)
            if order is None
            else ordered(order, attention_mask, dtype)
        )
        view = known.view(pattern, dtype)
        for block in self.blocks:
            x = block(x, view)
        y: Tensor = x
        return y


def ordered(order: Tensor, attention_mask: Tensor | None, dtype: torch.dtype) -> Ordered:
    """Lets rows see the keys that are not padding and whose order is not above theirs."""
    return Ordered(
        order,
        order if attention_mask is None else torch.where(attention_mask, order, Ordered.HIDDEN),
        dtype,
    )


def bert(width: int, layers: int, vocab_size: int = 30522) -> BertConfig:
    return BertConfig(vocab_size, width=width, layers=layers, heads=width // 64, ffn_size=4 * width)


SIZES = {
    "bert-base-uncased": bert(768, 12),
    "bert-base-cased": bert(768, 12, 28996),
    "bert-large-uncased": bert(1024, 24),
    "bert-large-cased": bert(1024, 24, 28996),
    "bert-base-chinese": bert(768, 12, 21128),
    "bert-base-multilingual-cased": bert(768, 12, 119547),
    "bert-tiny": bert(128, 2),
    "bert-mini": bert(256, 4),
    "bert-small": bert(512, 4),
    "bert-medium": bert(512, 8),
}

_finetuning = PaperDefaults(
    lr=2e-5, eps=1e-6, weight_decay=0.01, warmup=0.1, batch_size=32, seq_len=128, epochs=3
)

FAMILY = Family(
    name="bert",
    model=Bert,
    config=BertConfig,
    paper="Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers",
    year=2018,
    later=tuple(
        (f"bert-{size}", "Turc et al., Well-Read Students Learn Better", 2019)
        for size in ("tiny", "mini", "small", "medium")
    ),
    sizes=SIZES,
    tensor_plan={**CORE_PLAN, "embeddings.tokens": "vocabulary", "output": "vocabulary"},
    objective="sentences",
    text_objective="masked",
    budget_objectives={"masked": {"share": 0.3}, "sentences": {"share": 0.3}},
    budget_lengths=HIDING_LENGTHS,
    training={
        "": PaperDefaults(
            lr=1e-4, eps=1e-6, weight_decay=0.01, warmup=10_000, steps=1_000_000, batch_size=256,
            seq_len=512,
            differs="the paper's Adam has no bias correction and its decay starts at step 0: "
            "optimizer bert-adam, schedule bert",
        ),
    },
    finetuning={
        "": _finetuning,
        "tag": _finetuning.replace(batch_size=16, epochs=5),
        "answer": _finetuning.replace(lr=3e-5, batch_size=12, seq_len=384, epochs=2),
        "choose": _finetuning.replace(batch_size=16),
    },
    input_format=InputFormat(parts("cls a sep"), parts("cls a sep b:1 sep:1")),
    # as in run_squad.py of google-research/bert and in the paper
    passage_format=PassageFormat(("cls", "question", "sep", "passage", "sep"), (0, 0, 0, 1, 1)),
)  # fmt: skip
