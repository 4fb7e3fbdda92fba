"""Llama (Touvron et al. 2023a) and related models: a GPT with other components.

It has rotary positions, RMSNorm before each sub-layer, a gated network with SiLU, and no biases.
From Llama 2 on (Touvron et al. 2023b) large sizes use grouped queries; from Llama 3.1 on (Dubey et
al. 2024) slow rotations are stretched for a longer context. The two elements of a rotated pair are
half a head apart, as in Hugging Face's weights; the authors' own files interleave them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import Block, Gated, PreNorm
from regard.attention.dropout import Dropout
from regard.attention.kernels import working_dtype
from regard.attention.norms import RMSNorm
from regard.attention.position import Rotary, RotaryAngles, View
from regard.core.errors import ConfigError
from regard.data.input_formats import InputFormat, PassageFormat, parts
from regard.models.base import Config, Model, normal
from regard.models.family import Family, PaperDefaults, Shape
from regard.models.gpt import GPT, output_rows, seen_before
from regard.models.output import Heads, Output
from regard.models.state import State


@dataclass(frozen=True)
class LlamaConfig(Config):
    vocab_size: int = 32000
    context: int = 2048
    width: int = 4096
    layers: int = 32
    heads: int = 32
    kv_heads: int | None = None  # the number of key/value heads; `heads` unless given
    head_size: int | None = None  # width / heads unless given
    ffn_size: int = 11008
    activation: str = "silu"
    bias: bool = False  # True if the attention's matrices have biases
    tied: bool = False  # True if the output shares the token embedding
    rope_theta: float = 10000.0
    rope_scaling: tuple[float, ...] = ()  # Llama 3.1: factor, low and high frequency, old context
    dropout: float = 0.0
    dropout_attention: float = 0.0
    dropout_head: float = 0.1  # before a classifier
    norm_eps: float = 1e-6
    init_std: float = 0.02

    def check(self) -> None:
        super().check()
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ConfigError(
                f"kv_heads is {self.kv_heads}, and heads is {self.heads}; choose kv_heads that "
                "divides heads, so that each serves equally many heads"
            )
        if self.size % 2:
            raise ConfigError(f"head_size is {self.size}; rotary positions need an even number")
        if self.rope_theta <= 1.0:
            raise ConfigError(f"rope_theta is {self.rope_theta}; it must be above 1")
        if len(self.rope_scaling) not in (0, 4):
            raise ConfigError(
                f"rope_scaling is {self.rope_scaling}; it must be four numbers (factor, low and "
                "high frequency, old context), or none"
            )

    @property
    def size(self) -> int:
        """The width of a head."""
        return self.width // self.heads if self.head_size is None else self.head_size

    def frequencies(self, device: torch.device) -> Tensor:
        """Returns the angle by which each pair of elements rotates per position."""
        exponents = torch.arange(0, self.size, 2, device=device).float() / self.size
        fast = 1.0 / self.rope_theta**exponents
        if not self.rope_scaling:
            return fast
        factor, low, high, old = self.rope_scaling
        turns = old * fast / (2 * math.pi)  # the rotations of a pair within the old context
        share = ((turns - low) / (high - low)).clamp(0.0, 1.0)
        return (1 - share) * fast / factor + share * fast


class Llama(GPT):
    """A language model. With heads other than "masked" it has no output layer, and only the heads
    read its hidden states."""

    config: LlamaConfig

    def __init__(self, config: LlamaConfig, heads: Heads | None = None) -> None:
        Model.__init__(self)  # skips GPT's constructor, which builds a position table
        c = self.config = config
        self.tokens = nn.Embedding(c.vocab_size, c.width)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(self.block(c) for _ in range(c.layers))
        self.norm = RMSNorm(c.width, c.norm_eps)
        heads = {"masked": 0} if heads is None else heads
        if "masked" in heads:
            table = self.tokens.weight
            table = table if c.tied else nn.Parameter(torch.empty_like(table))
            self.output = Output(table)
        self.finish = output_rows if "masked" in heads else hidden_states
        self.add_heads(heads)

    @staticmethod
    def block(c: LlamaConfig) -> Block:  # type: ignore[override]
        attention = Attention(
            c.width, c.heads, size=c.size, kv_heads=c.kv_heads, bias=c.bias,
            dropout=c.dropout_attention, score=Rotary(),
        )  # fmt: skip
        network = Gated(c.width, c.ffn_size, c.activation, bias=False)

        def residual(layer: nn.Module) -> PreNorm:
            return PreNorm(layer, RMSNorm(c.width, c.norm_eps), c.dropout)

        return Block(residual(attention), residual(network))

    def initialize(self) -> Self:
        """Initializes with N(0, 0.02), also the outputs onto the residual path."""
        normal(self, self.config.init_std)
        if hasattr(self, "output") and not self.config.tied:
            nn.init.normal_(self.output.weight, std=self.config.init_std)
        return self

    @property
    def decoding(self) -> str:
        return "kv_cache" if hasattr(self, "output") else ""

    def embed(self, input_ids: Tensor, at: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.tokens(input_ids))
        return y

    def views(
        self, x: Tensor, at: Tensor, attention_mask: Tensor | None, past: int, prefix: Tensor | None
    ) -> list[View]:
        turns = RotaryAngles.of(at, self.config.frequencies(x.device), working_dtype(x))
        return [View(seen_before(x, attention_mask, past, prefix), turns=turns)]


def hidden_states(
    model: GPT,
    hidden: Tensor,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    state: State | None,
) -> Tensor:
    """Returns the hidden states unchanged, for a model without an output, which heads read."""
    return hidden


def llama(layers: int, width: int, heads: int, ffn_size: int, **more: Any) -> LlamaConfig:
    return LlamaConfig(layers=layers, width=width, heads=heads, ffn_size=ffn_size, **more)


LLAMA2: dict[str, Any] = {"context": 4096, "norm_eps": 1e-5}
LLAMA3: dict[str, Any] = {
    "vocab_size": 128256, "context": 8192, "norm_eps": 1e-5, "rope_theta": 5e5, "kv_heads": 8
}  # fmt: skip
SIZES = {
    "llama-7b": llama(32, 4096, 32, 11008),
    "llama-13b": llama(40, 5120, 40, 13824),
    "llama-33b": llama(60, 6656, 52, 17920),
    "llama-65b": llama(80, 8192, 64, 22016),
    "llama2-7b": llama(32, 4096, 32, 11008, **LLAMA2),
    "llama2-13b": llama(40, 5120, 40, 13824, **LLAMA2),
    "llama2-70b": llama(80, 8192, 64, 28672, kv_heads=8, **LLAMA2),
    "llama3-8b": llama(32, 4096, 32, 14336, **LLAMA3),
    "llama3-70b": llama(80, 8192, 64, 28672, **LLAMA3),
    "llama3.2-1b": llama(
        16, 2048, 32, 8192, **LLAMA3 | {"context": 131072}, tied=True,
        rope_scaling=(32.0, 1.0, 4.0, 8192.0),
    ),
    "tinyllama-1.1b": llama(22, 2048, 32, 5632, kv_heads=4, norm_eps=1e-5),
    "smollm2-135m": llama(
        30, 576, 9, 1536, vocab_size=49152, context=8192, kv_heads=3, norm_eps=1e-5, tied=True,
        rope_theta=1e5, init_std=1 / 24,
    ),
    "smollm2-360m": llama(
        32, 960, 15, 2560, vocab_size=49152, context=8192, kv_heads=5, norm_eps=1e-5, tied=True,
        rope_theta=1e5,
    ),
}  # fmt: skip


def laptop(shape: Shape, seq_len: int) -> dict[str, Any]:
    """Returns the fields of a laptop size. A gated network has three matrices: at two thirds of the
    width it has as many parameters as a plain one."""
    return shape.fields() | {"ffn_size": -(-8 * shape.width // 3 // 32) * 32}


_training = PaperDefaults(
    lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, schedule="cosine", warmup=2000, min_lr_ratio=0.1,
    steps=250_000, batch_size=2048, seq_len=2048,
)  # fmt: skip
_longer = _training.replace(eps=1e-5, steps=500_000, batch_size=1024, seq_len=4096)

FAMILY = Family(
    name="llama",
    model=Llama,
    config=LlamaConfig,
    paper="Touvron et al., LLaMA: Open and Efficient Foundation Language Models",
    year=2023,
    later=(
        ("llama2", "Touvron et al., Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023),
        ("llama3", "Dubey et al., The Llama 3 Herd of Models", 2024),
        ("tinyllama", "Zhang et al., TinyLlama: An Open-Source Small Language Model", 2024),
        ("smollm2", "Ben Allal et al., SmolLM2: When Smol Goes Big", 2025),
    ),
    sizes=SIZES,
    objective="causal",
    compared=False,
    other_objectives=("prefix",),
    training={
        "": _training,
        "llama-33b": _training.replace(lr=1.5e-4, steps=350_000),
        "llama-65b": _training.replace(lr=1.5e-4, steps=350_000),
        "llama2": _longer,
        "llama2-70b": _longer.replace(lr=1.5e-4),
    },
    finetuning={
        "": PaperDefaults(
            lr=2e-5, weight_decay=0.1, schedule="cosine", min_lr_ratio=0.1, batch_size=64,
            seq_len=512, epochs=2,
            differs="the papers fine-tune only on instructions; these are Llama 2's settings "
            "with a shorter seq_len",
        ),
    },
    laptop=laptop,
    # As in GPT, the last row represents the text.
    input_format=InputFormat(parts("start a cls"), parts("start a sep b cls"), segments=False),
    passage_format=PassageFormat(
        ("start", "question", "sep", "passage", "cls"), (0,) * 5, length=512
    ),
    task_tokens=("start", "sep", "cls"),
)  # fmt: skip
