"""Longformer (Beltagy, Peters and Cohan 2020): a window for every token, and a few global tokens.

The global rows are a second attention with its own query, key and value projections: it reads every
row, and its result replaces the local one. `lengthen` turns any of our BERT-like encoders into a
Longformer by repeating its positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.attention import Attention
from regard.attention.kernels import working_dtype
from regard.attention.memory import CrossKV
from regard.attention.position import View
from regard.attention.window import Window
from regard.core.errors import ConfigError, InputError
from regard.data.input_formats import InputFormat, PassageFormat, parts
from regard.models.base import as_booleans, check_length, check_tokens
from regard.models.bert import Bert
from regard.models.family import CORE_PLAN, HIDING_LENGTHS, Family, PaperDefaults, Shape
from regard.models.roberta import Roberta, RobertaConfig
from regard.models.state import NOTHING, KnowledgeView, everything


@dataclass(frozen=True)
class LongformerConfig(RobertaConfig):
    context: int = 4096
    window: int | tuple[int, ...] = 512  # both sides together; one number, or one per layer

    def check(self) -> None:
        super().check()
        for window in self.windows:
            if window < 2 or window % 2:
                raise ConfigError(f"window {window} is wrong; it must be even and at least 2")
        if len(self.windows) != self.layers:
            raise ConfigError(
                f"window names {len(self.windows)} layers; layers is {self.layers}; give one "
                "number for each layer, or one for all"
            )

    @property
    def windows(self) -> tuple[int, ...]:
        return (self.window,) * self.layers if isinstance(self.window, int) else tuple(self.window)


@dataclass(frozen=True)
class LongView:
    """A layer's window, and the positions of its global rows: [B, G], -1 where a text has fewer."""

    local: View
    everywhere: View
    rows: Tensor | None

    def gather(self, x: Tensor) -> Tensor:
        assert self.rows is not None
        return x.gather(1, self.rows.clamp_min(0)[..., None].expand(-1, -1, x.size(2)))

    def scatter(self, x: Tensor, rows: Tensor) -> Tensor:
        """Returns x with the global rows at their positions; rows at -1 are dropped."""
        assert self.rows is not None
        index = torch.where(self.rows < 0, x.size(1), self.rows)[..., None].expand_as(rows)
        return F.pad(x, (0, 0, 0, 1)).scatter(1, index, rows.to(x.dtype))[:, :-1]


class LongAttention(nn.Module):
    """Window attention; global rows have their own projections and share the output matrix."""

    def __init__(self, c: LongformerConfig) -> None:
        super().__init__()
        self.local = Attention(c.width, c.heads, dropout=c.dropout_attention)
        self.wide = Attention(c.width, c.heads, dropout=c.dropout_attention)
        self.wide.out = self.local.out

    def forward(self, x: Tensor, view: LongView) -> Tensor:
        y: Tensor = self.local(x, view.local)
        if view.rows is None:
            return y
        source = CrossKV(self.wide.project.pairs(x))
        return view.scatter(y, self.wide(view.gather(x), view.everywhere, source))


class Longformer(Roberta):
    accepts = frozenset({"segments", "global_tokens", "known"})
    attends = "windows"

    @staticmethod
    def attention(c: Any) -> nn.Module:
        return LongAttention(c)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
        global_tokens: Tensor | None = None,
        known: KnowledgeView = NOTHING,
    ) -> Tensor:
        """Maps input_ids [B, T] to hidden states [B, T, width]. `global_tokens` marks the global
        rows [B, T], or holds the positions that `places` computes from these marks [B, G]: a
        compiled graph cannot count them."""
        c = self.config
        check_tokens(input_ids, c.vocab_size)
        attention_mask = as_booleans(attention_mask, input_ids)
        check_length(input_ids.size(1), c.context)
        at = known.positions(attention_mask, input_ids.size(1), input_ids.device)
        x = self.embeddings(input_ids, at, segments)
        views = self.views(x, attention_mask, global_tokens, known)
        for block, window in zip(self.blocks, c.windows, strict=True):
            x = block(x, views[window])
        y: Tensor = x
        return y

    def views(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        wide: Tensor | None,
        known: KnowledgeView = NOTHING,
    ) -> dict[int, LongView]:
        """Builds one view for each window width."""
        dtype, length = working_dtype(x), x.size(1)
        if wide is not None and wide.dtype != torch.bool and wide.size(1) == length > 1:
            raise InputError("global_tokens holds a number per token; give a mask of type bool")
        rows = None if wide is None else places(wide, attention_mask)
        asking = x.new_empty(x.size(0), 0).long() if rows is None else rows
        everywhere = known.view(
            everything(attention_mask, asking.size(1), dtype), dtype, asking=asking
        )

        def view(side: int) -> LongView:
            window = Window(side, side, length, dtype, x.device, attention_mask, rows)
            return LongView(known.view(window, dtype), everywhere, rows)

        return {w: view(w // 2) for w in set(self.config.windows)}


def places(marks: Tensor, attention_mask: Tensor | None = None) -> Tensor | None:
    """Turns marks [B, T] into positions [B, G], -1 where a text has fewer; None without marks."""
    if marks.dtype != torch.bool:
        return marks  # these are positions already
    marks = marks if attention_mask is None else marks & attention_mask
    count = int(marks.sum(1).max()) if marks.size(0) else 0
    if count == 0:
        return None
    first = torch.argsort((~marks).long(), dim=1, stable=True)[:, :count]
    return torch.where(marks.gather(1, first), first, -1)


def lengthen(encoder: Bert, context: int = 4096, window: int | tuple[int, ...] = 512) -> Longformer:
    """Returns a long copy of an encoder: its positions are repeated, and the global projections are
    copies of its attention's projections."""
    c = encoder.config
    old_heads: Any = encoder.heads
    heads = {n: getattr(h.out, "out_features", 0) for n, h in old_heads.items() if n != "next"}
    if hasattr(encoder, "output"):
        heads["masked"] = 0
        if c.activation != "gelu":
            raise ConfigError(f"activation is {c.activation}; a Longformer's output needs gelu")
    changes = {"context": context, "window": window, "dropout_head": None}  # None: `dropout`
    config = LongformerConfig(**vars(c) | changes)
    long = Longformer(config, heads).to(next(encoder.parameters()).dtype)
    weights = {k: v for k, v in encoder.state_dict().items() if not k.startswith("heads.next.")}
    old = weights.pop("embeddings.positions.weight")[c.first_position :]
    unread = config.first_position  # the unused rows before the first position
    before = old.repeat(-(-unread // old.size(0)), 1)[:unread]
    repeated = old.repeat(-(-context // old.size(0)), 1)[:context]
    weights["embeddings.positions.weight"] = torch.cat([before, repeated])
    for name in [n for n in weights if ".attention.layer." in n]:
        value, (block, part) = weights.pop(name), name.split(".attention.layer.")
        weights |= {f"{block}.attention.layer.{kind}.{part}": value for kind in ("local", "wide")}
    long.load_state_dict(weights)
    return long.train(encoder.training)


SIZES = {
    "longformer-base-4096": LongformerConfig(),
    "longformer-large-4096": LongformerConfig(width=1024, layers=24, heads=16, ffn_size=4096),
}


def laptop(shape: Shape, seq_len: int) -> dict[str, Any]:
    return shape.fields() | {"window": max(8, seq_len // 4 // 2 * 2)}


_finetuning = PaperDefaults(
    lr=3e-5, eps=1e-6, weight_decay=0.01, warmup=0.1, batch_size=32, seq_len=4096, epochs=4
)

FAMILY = Family(
    name="longformer",
    model=Longformer,
    config=LongformerConfig,
    paper="Beltagy et al., Longformer: The Long-Document Transformer",
    year=2020,
    sizes=SIZES,
    objective="masked",
    budget_objectives={"masked": {"share": 0.3}},
    budget_lengths=HIDING_LENGTHS,
    training={
        "": PaperDefaults(
            lr=3e-5, eps=1e-6, weight_decay=0.01, grad_clip=5.0, schedule="polynomial", power=3.0,
            warmup=500, steps=65_000, batch_size=64, seq_len=4096,
            differs="the paper starts from RoBERTa's weights; from scratch use BERT's lr",
        ),
    },
    scratch_lr=1e-4,  # BERT's
    finetuning={"": _finetuning, "classify": _finetuning.replace(epochs=15)},
    tensor_plan={
        **CORE_PLAN, "embeddings.tokens": "vocabulary", "output": "vocabulary",
        "*.attention.layer.local.project": "heads", "*.attention.layer.local.out": "rowwise",
        "*.attention.layer.wide.project": "heads",  # its output matrix is the local one
    },
    laptop=laptop,
    input_format=InputFormat(
        parts("cls a sep"), parts("cls a sep sep b sep"), segments=False
    ),
    # RoBERTa's format of pairs, with the lengths of TriviaQA. All question tokens are global.
    passage_format=PassageFormat(
        ("cls", "question", "sep", "sep", "passage", "sep"), (0,) * 6, length=4096, stride=2048,
        question=55,
    ),
)  # fmt: skip
