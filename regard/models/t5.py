"""T5 (Raffel et al. 2019): a pre-norm encoder and decoder without biases or absolute positions.

A learned bias for each bucket of distances is added to the scores; all layers of a stack share it.
Version 1.1 gates its feed-forward network and does not tie its output to the embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import Block, CrossBlock, FeedForward, Gated, PreNorm
from regard.attention.dropout import Dropout
from regard.attention.norms import RMSNorm
from regard.attention.pattern import Pattern
from regard.attention.position import View
from regard.core.errors import ConfigError
from regard.models.base import Config, EncoderDecoder
from regard.models.family import CORE_PLAN, WORDS_PLAN, Family, PaperDefaults, Shape
from regard.models.output import Output
from regard.models.state import NOTHING, KnowledgeView


@dataclass(frozen=True)
class T5Config(Config):
    vocab_size: int = 32128
    width: int = 512
    layers: int = 6
    decoder_layers: int | None = None  # `layers` unless given
    heads: int = 8
    head_size: int = 64
    ffn_size: int = 2048
    activation: str = "relu"
    gated: bool = False  # True in v1.1
    tied: bool = True  # False in v1.1: the output has its own matrix
    scaled: bool = True  # divide hidden states by √width before the output; False in v1.1
    buckets: int = 32
    farthest: int = 128
    dropout: float = 0.1
    norm_eps: float = 1e-6
    pad_id: int = 0
    start_id: int = 0  # the first token of the decoder
    eos_id: int = 1

    def check(self) -> None:
        super().check()
        if self.buckets < 4 or self.farthest <= self.buckets // 2:
            raise ConfigError(
                f"buckets is {self.buckets} and farthest is {self.farthest}; "
                "buckets must be at least 4, and farthest above buckets / 2"
            )


def buckets(distance: Tensor, both_sides: bool, count: int, farthest: int) -> Tensor:
    """Returns the bucket of a distance key - query: exact if near, logarithmic if far."""
    offset: Tensor | int = 0
    if both_sides:
        count //= 2
        offset = (distance > 0) * count
    near = distance.abs() if both_sides else (-distance).clamp_min(0)
    exact = count // 2
    far = torch.log(near.clamp_min(1).float() / exact) / math.log(farthest / exact)
    far = (exact + (far * (count - exact)).long()).clamp_max(count - 1)
    return offset + torch.where(near < exact, near, far)


class T5Stack(nn.Module):
    """The encoder or the decoder: blocks, a final norm, and one table of distance biases."""

    def __init__(self, c: T5Config, layers: int, decoder: bool) -> None:
        super().__init__()
        self.config, self.decoder = c, decoder
        self.distances = nn.Embedding(c.buckets, c.heads)
        self.blocks = nn.ModuleList(self.block(c, decoder) for _ in range(layers))
        self.norm, self.dropout = RMSNorm(c.width, c.norm_eps), Dropout(c.dropout)

    @staticmethod
    def block(c: T5Config, decoder: bool) -> nn.Module:
        def residual(layer: nn.Module) -> PreNorm:
            return PreNorm(layer, RMSNorm(c.width, c.norm_eps), c.dropout)

        def attention() -> PreNorm:
            size, rate = c.head_size, c.dropout
            return residual(
                Attention(c.width, c.heads, size=size, bias=False, scale=1.0, dropout=rate)
            )

        kind = Gated if c.gated else FeedForward
        last = residual(kind(c.width, c.ffn_size, c.activation, dropout=c.dropout, bias=False))
        return CrossBlock(attention(), attention(), last) if decoder else Block(attention(), last)

    def view(
        self,
        pattern: Pattern,
        past: int,
        rows: int,
        dtype: torch.dtype,
        known: KnowledgeView = NOTHING,
    ) -> View:
        c, key = self.config, torch.arange(past + rows, device=self.distances.weight.device)
        distance = known.distances((key[None] - key[past:, None])[None])
        index = buckets(distance, not self.decoder, c.buckets, c.farthest)
        bias = self.distances(index).permute(0, 3, 1, 2).to(dtype)
        return known.view(pattern, dtype, bias=bias)

    def finish(self, x: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.norm(x))
        return y


class T5(EncoderDecoder):
    def __init__(self, config: T5Config) -> None:
        super().__init__()
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.width)
        self.dropout = Dropout(c.dropout)
        self.encoder = T5Stack(c, c.layers, decoder=False)
        self.decoder = T5Stack(c, c.decoder_layers or c.layers, decoder=True)
        self.decoder_blocks = self.decoder.blocks
        table = self.tokens.weight if c.tied else nn.Parameter(torch.empty(c.vocab_size, c.width))
        self.output = Output(table, scale=c.width**-0.5 if c.scaled else 1.0)

    def initialize(self) -> Self:
        """Initializes each matrix so that it keeps the variance of its input; the queries contain
        the missing 1/√d of the scores."""
        c = self.config
        nn.init.normal_(self.tokens.weight, std=1.0)
        if not c.tied:
            nn.init.normal_(self.output.weight, std=c.width**-0.5)
        for part in self.modules():
            if isinstance(part, nn.RMSNorm):
                nn.init.ones_(part.weight)
            elif isinstance(part, T5Stack):
                nn.init.normal_(part.distances.weight, std=c.width**-0.5)
            elif isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=part.in_features**-0.5)
        for part in self.modules():  # after the projections as wholes
            if isinstance(part, Attention):
                inner = c.heads * c.head_size
                nn.init.normal_(part.project.weight[:inner], std=(c.width * c.head_size) ** -0.5)
        return self

    @property
    def encoder_blocks(self) -> nn.ModuleList:  # type: ignore[override]
        return self.encoder.blocks

    def embed(self, input_ids: Tensor, at: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.tokens(input_ids))
        return y

    def source_view(
        self, pattern: Pattern, rows: int, dtype: torch.dtype, known: KnowledgeView
    ) -> View:
        return self.encoder.view(pattern, 0, rows, dtype, known)

    def target_view(self, pattern: Pattern, past: int, rows: int, dtype: torch.dtype) -> View:
        return self.decoder.view(pattern, past, rows, dtype)

    def finish_source(self, x: Tensor) -> Tensor:
        return self.encoder.finish(x)

    def finish_target(self, x: Tensor) -> Tensor:
        return self.decoder.finish(x)


def t5(layers: int, width: int, ffn_size: int, heads: int, size: int = 64) -> T5Config:
    return T5Config(layers=layers, width=width, ffn_size=ffn_size, heads=heads, head_size=size)


def t5_v1_1(layers: int, width: int, ffn_size: int, heads: int) -> T5Config:
    return t5(layers, width, ffn_size, heads).replace(
        gated=True, tied=False, scaled=False, activation="gelu_tanh"
    )


SIZES = {
    "t5-small": t5(6, 512, 2048, 8),
    "t5-base": t5(12, 768, 3072, 12),
    "t5-large": t5(24, 1024, 4096, 16),
    "t5-3b": t5(24, 1024, 16384, 32, 128),
    "t5-11b": t5(24, 1024, 65536, 128, 128),
    "t5-v1_1-small": t5_v1_1(8, 512, 1024, 6),
    "t5-v1_1-base": t5_v1_1(12, 768, 2048, 12),
    "t5-v1_1-large": t5_v1_1(24, 1024, 2816, 16),
    "t5-v1_1-xl": t5_v1_1(24, 2048, 5120, 32),
    "t5-v1_1-xxl": t5_v1_1(24, 4096, 10240, 64),
}


def laptop(shape: Shape, seq_len: int) -> dict[str, Any]:
    """Returns fields of a laptop size: the two stacks share the layers of a single stack."""
    layers = {"layers": max(1, shape.layers // 2)}
    return shape.fields() | layers | {"head_size": shape.head_size}


FAMILY = Family(
    name="t5",
    model=T5,
    config=T5Config,
    paper="Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text "
    "Transformer",
    year=2019,
    sizes=SIZES,
    objective="span",
    other_objectives=("prefix",),
    training={
        "": PaperDefaults(
            lr=0.01, optimizer="adafactor", eps=1e-30, grad_clip=0.0,
            schedule="inverse-square-root", warmup=10_000, steps=2**19, batch_size=128, seq_len=512,
        ),
    },
    finetuning={
        "": PaperDefaults(
            lr=1e-3, optimizer="adafactor", eps=1e-30, grad_clip=0.0, schedule="constant",
            batch_size=128, seq_len=512, epochs=10,
        ),
    },
    tensor_plan={
        **CORE_PLAN, **WORDS_PLAN, "encoder.distances": "colwise", "decoder.distances": "colwise"
    },
    laptop=laptop,
    writes_tasks=True,
    task_prefixes=True,
)  # fmt: skip
