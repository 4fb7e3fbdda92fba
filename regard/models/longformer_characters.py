"""Longformer's character model (Beltagy et al. 2020, section 4): causal windows.

It is pre-norm; its windows grow with depth, and in the upper layers two heads have dilated windows,
so that they reach further at the same cost. Distances enter as in Transformer-XL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.attention import Attention
from regard.attention.block import Block, FeedForward, PreNorm
from regard.attention.dropout import Dropout
from regard.attention.kernels import AttentionArgs, working_dtype
from regard.attention.pattern import Pattern
from regard.attention.position import Distances, Relative, View, sinusoids
from regard.attention.window import Window
from regard.core.errors import ConfigError
from regard.models.base import Config, Model, as_booleans, check_tokens, normal
from regard.models.family import CORE_PLAN, RELATIVE_PLAN, WORDS_PLAN, Family, PaperDefaults, Shape
from regard.models.output import Output
from regard.models.state import mark


@dataclass(frozen=True)
class CharacterLongformerConfig(Config):
    vocab_size: int = 204
    width: int = 512
    layers: int = 12
    heads: int = 8
    ffn_size: int = 2048
    windows: tuple[int, ...] = ()  # rows seen before each row, per layer; () grows from 32 to 512
    dilations: tuple[int, ...] = ()  # of the last two heads, one number per layer; () for none
    dropout: float = 0.2
    dropout_attention: float = 0.2
    norm_eps: float = 1e-5
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        for name in ("windows", "dilations"):
            values = getattr(self, name)
            if values and (len(values) != self.layers or min(values) < 1):
                raise ConfigError(
                    f"{name} is {values}; it must hold a number of at least 1 for each of "
                    f"{self.layers} layers"
                )
        if self.dilations and self.heads < 3:
            raise ConfigError(
                f"heads is {self.heads}; it must be at least 3, because two heads are dilated"
            )

    def window(self, layer: int) -> int:
        return (
            self.windows[layer] if self.windows else min(512, 32 * 2 ** (layer * 5 // self.layers))
        )

    def dilation(self, layer: int) -> int:
        return self.dilations[layer] if self.dilations else 1


class Dilated(Pattern):
    """A window over every `step`-th row: rows with the same remainder form a sequence."""

    def __init__(
        self,
        step: int,
        before: int,
        after: int,
        attention_mask: Tensor,  # [B, T]: True at keys that are not padding
        dtype: torch.dtype,
    ) -> None:
        length = attention_mask.size(1)
        self.step, self.length, self.short = step, length, -(-length // step)
        folded = F.pad(attention_mask, (0, self.short * step - length)).unflatten(
            1, (self.short, step)
        )
        self.real = folded.transpose(1, 2).flatten(0, 1)  # [B · step, short]
        self.window = Window(before, after, self.short, dtype, attention_mask.device, self.real)

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = query % self.step == key % self.step
        batch = batch * self.step + key % self.step
        return same & self.window.visible(batch, query // self.step, key // self.step)

    def fold(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, self.short * self.step - self.length))
        y: Tensor = x.unflatten(2, (self.short, self.step)).permute(0, 3, 1, 2, 4).flatten(0, 1)
        return y

    def rows(self, x: Tensor) -> Tensor:
        return self.window.rows(self.fold(x))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        y = self.window.attend(self.fold(q), self.fold(k), self.fold(v), how)
        y = y.unflatten(0, (q.size(0), self.step)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        result: Tensor = y[:, :, : self.length]
        return result


class SplitAttention(nn.Module):
    """Attention in which most heads see their neighbors and two heads have dilated windows; the
    outputs are summed."""

    def __init__(self, c: CharacterLongformerConfig, apart: int) -> None:
        super().__init__()
        self.near = self.attention(c, c.heads - apart)
        self.apart = self.attention(c, apart)

    @staticmethod
    def attention(c: CharacterLongformerConfig, heads: int) -> Attention:
        size = c.width // c.heads
        u, v = (nn.Parameter(torch.zeros(heads, size)) for _ in range(2))
        score = Relative(c.width, u, v)
        return Attention(
            c.width, heads, size=size, bias=False, dropout=c.dropout_attention, score=score
        )

    def forward(self, x: Tensor, near: View, apart: View) -> Tensor:
        y: Tensor = self.near(x, near) + self.apart(x, apart)
        return y


class CharacterLongformer(Model):
    causal = True
    attends = "windows"

    def __init__(self, config: CharacterLongformerConfig) -> None:
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.width)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(self.block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width, c.norm_eps)
        self.output = Output(self.tokens.weight, bias="learned")

    @staticmethod
    def block(c: CharacterLongformerConfig) -> Block:
        def residual(layer: nn.Module) -> PreNorm:
            return PreNorm(layer, nn.LayerNorm(c.width, c.norm_eps), c.dropout)

        attention = SplitAttention(c, apart=min(2, c.heads - 1))
        return Block(residual(attention), residual(FeedForward(c.width, c.ffn_size, "gelu")))

    def initialize(self) -> Self:
        normal(self, self.config.init_std)
        for name, parameter in self.named_parameters():
            if name.endswith((".u", ".v")):
                nn.init.normal_(parameter, std=self.config.init_std)
        return self

    @property
    def decoding(self) -> str:
        return "recompute"

    @property
    def reach(self) -> int:
        """How far back the stacked windows of all layers reach together."""
        c = self.config
        return sum(c.window(i) * c.dilation(i) for i in range(c.layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Maps input_ids [B, T] to hidden states [B, T, width]; `attention_mask` [B, T] is False at
        padding."""
        c = self.config
        check_tokens(input_ids, c.vocab_size)
        attention_mask = as_booleans(attention_mask, input_ids)
        x = self.dropout(self.tokens(input_ids))
        there = (
            mark(input_ids.size(0), input_ids.size(1), input_ids.device)
            if attention_mask is None
            else attention_mask
        )
        kinds = {(c.window(i), step) for i in range(c.layers) for step in (1, c.dilation(i))}
        views = {(w, step): self.view(x, w, step, there) for w, step in kinds}
        for i, block in enumerate(self.blocks):
            x = block(x, views[c.window(i), 1], views[c.window(i), c.dilation(i)])
        y: Tensor = self.norm(x)
        return y

    def view(self, x: Tensor, before: int, step: int, attention_mask: Tensor) -> View:
        """Returns a view of the last `before` rows among every `step`-th row, with distances."""
        dtype = working_dtype(x)
        pattern: Pattern
        if step == 1:
            pattern = window = Window(before, 0, x.size(1), dtype, x.device, attention_mask)
        else:
            pattern = Dilated(step, before, 0, attention_mask, dtype)
            window = pattern.window
        first, keys = window.before + window.block - 1, window.before + window.block
        distance = torch.arange(first, first - keys - 1, -1, device=x.device) * step
        table = self.dropout(sinusoids(distance, self.config.width).to(x.dtype))[None]
        return View(pattern, distances=Distances(table, window.block, keys))


SIZES = {
    "longformer-characters-small": CharacterLongformerConfig(
        dilations=(1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3)
    ),
    "longformer-characters-large": CharacterLongformerConfig(
        layers=30, dilations=(1,) * 15 + (2,) * 8 + (3,) * 7
    ),
}


def laptop(shape: Shape, seq_len: int) -> dict[str, Any]:
    return shape.fields() | {"windows": (max(8, seq_len // 4),) * shape.layers}


FAMILY = Family(
    name="longformer-characters",
    model=CharacterLongformer,
    config=CharacterLongformerConfig,
    paper="Beltagy et al., Longformer, section 4",
    year=2020,
    sizes=SIZES,
    objective="causal",
    training={
        "": PaperDefaults(
            lr=2.5e-4, weight_decay=0.01, grad_clip=0.25, warmup=0.1, min_lr_ratio=0.0625,
            seq_len=2048,
            differs="the rate falls along one line instead of in five phases, each at half the "
            "rate of the one before",
        ),
    },
    finetuning={
        "": PaperDefaults(
            lr=1e-4, weight_decay=0.01, warmup=0.002, batch_size=32, seq_len=256, epochs=3
        ),
    },
    tensor_plan={
        **CORE_PLAN, **WORDS_PLAN, **RELATIVE_PLAN,
        "*.attention.layer.near.project": "heads", "*.attention.layer.near.out": "rowwise",
        "*.attention.layer.apart.project": "heads", "*.attention.layer.apart.out": "rowwise",
        "*.near.score": "heads", "*.apart.score": "heads",
    },
    laptop=laptop,
    compared=False,
)  # fmt: skip
