"""The Transformer (Vaswani et al. 2017): encoder and decoder, sinusoidal positions, one shared
embedding.

Marian's translation models are the same with biases in their attention and another activation. The
paper prints its sines and cosines interleaved; "halves" are the same numbers in another order, and
Marian stores them in this order: `positions` chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import NORM_PLACES, Block, CrossBlock, FeedForward, PostNorm
from regard.attention.dropout import Dropout
from regard.attention.position import sinusoids
from regard.core.errors import ConfigError
from regard.models.base import Config, EncoderDecoder
from regard.models.family import Family, PaperDefaults, Shape
from regard.models.output import Output


@dataclass(frozen=True)
class TransformerConfig(Config):
    vocab_size: int = 37000
    width: int = 512
    layers: int = 6
    decoder_layers: int | None = None  # `layers` unless given
    heads: int = 8
    decoder_heads: int | None = None  # `heads` unless given
    ffn_size: int = 2048
    decoder_ffn_size: int | None = None  # `ffn_size` unless given
    norm: str = "post"
    activation: str = "relu"
    bias: bool = False  # True if the attention's projections have biases
    positions: str = "halves"
    scaled: bool = True  # multiply embeddings by √width
    dropout: float = 0.1
    dropout_attention: float = 0.0
    dropout_hidden: float = 0.0
    norm_eps: float = 1e-5
    pad_id: int = 0
    start_id: int = 0
    eos_id: int = 1
    # False: as an input, padding is never learned, not even as the start token (as in Marian)
    learns_padding: bool = True

    def check(self) -> None:
        super().check()
        if self.width % (self.decoder_heads or 1):
            raise ConfigError(
                f"width {self.width} is not divisible by decoder_heads {self.decoder_heads}; "
                "choose a divisor of the width"
            )
        if self.width % 2:
            raise ConfigError(f"width is {self.width}; it must be even for sinusoidal positions")


class Transformer(EncoderDecoder):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        c = self.config = config
        fixed = not c.learns_padding and c.pad_id in range(c.vocab_size)
        self.tokens = nn.Embedding(c.vocab_size, c.width, c.pad_id if fixed else None)
        self.dropout = Dropout(c.dropout)
        self.scale = c.width**0.5 if c.scaled else 1.0
        self.positions = partial(sinusoids, width=c.width, layout=c.positions)
        self.encoder_blocks = nn.ModuleList(self.block(c, decoder=False) for _ in range(c.layers))
        self.decoder_blocks = nn.ModuleList(
            self.block(c, decoder=True) for _ in range(c.decoder_layers or c.layers)
        )
        pre = c.norm == "pre"
        self.encoder_norm = nn.LayerNorm(c.width, c.norm_eps) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(c.width, c.norm_eps) if pre else nn.Identity()
        self.output = Output(self.tokens.weight, bias="fixed")  # zeros, except in Marian's files

    @staticmethod
    def block(c: TransformerConfig, decoder: bool) -> nn.Module:
        heads = (c.decoder_heads if decoder else None) or c.heads
        ffn_size = (c.decoder_ffn_size if decoder else None) or c.ffn_size

        def residual(layer: nn.Module) -> PostNorm:
            return NORM_PLACES[c.norm](layer, nn.LayerNorm(c.width, c.norm_eps), c.dropout)

        def attention() -> PostNorm:
            return residual(Attention(c.width, heads, bias=c.bias, dropout=c.dropout_attention))

        last = residual(FeedForward(c.width, ffn_size, c.activation, dropout=c.dropout_hidden))
        return CrossBlock(attention(), attention(), last) if decoder else Block(attention(), last)

    def initialize(self) -> Self:
        """Initializes matrices with Glorot (Xavier), and embeddings with deviation 1/√width, so
        that the scaled embeddings have variance 1."""
        for part in self.modules():
            if isinstance(part, Attention):
                for matrix in part.project.weight.chunk(3):
                    nn.init.xavier_uniform_(matrix)
                nn.init.xavier_uniform_(part.out.weight)
            elif isinstance(part, FeedForward):
                nn.init.xavier_uniform_(part.wide.weight)
                nn.init.xavier_uniform_(part.narrow.weight)
            elif isinstance(part, nn.LayerNorm):
                nn.init.ones_(part.weight)
            if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
                nn.init.zeros_(part.bias)
        nn.init.normal_(self.tokens.weight, std=self.config.width**-0.5)
        return self

    def embed(self, input_ids: Tensor, at: Tensor) -> Tensor:
        x = self.tokens(input_ids) * self.scale
        y: Tensor = self.dropout(x + self.positions(at).to(x.dtype))
        return y

    def finish_source(self, x: Tensor) -> Tensor:
        y: Tensor = self.encoder_norm(x)
        return y

    def finish_target(self, x: Tensor) -> Tensor:
        y: Tensor = self.decoder_norm(x)
        return y


SIZES = {
    "transformer-base": TransformerConfig(),
    "transformer-big": TransformerConfig(width=1024, ffn_size=4096, heads=16, dropout=0.3),
}


def laptop(shape: Shape, seq_len: int) -> dict[str, Any]:
    """Returns fields of a laptop size: the two stacks share the layers of a single stack."""
    return shape.fields() | {"layers": max(1, shape.layers // 2)}


_training = PaperDefaults(
    lr=1.0, optimizer="adam", betas=(0.9, 0.98), eps=1e-9, grad_clip=0.0, schedule="noam",
    warmup=4000, steps=100_000, batch_tokens=25_000,
)  # fmt: skip

FAMILY = Family(
    name="transformer",
    model=Transformer,
    config=TransformerConfig,
    paper="Vaswani et al., Attention Is All You Need",
    year=2017,
    sizes=SIZES,
    objective="prefix",  # for plain text; the paper learns from pairs
    other_objectives=("span",),
    training={"": _training, "transformer-big": _training.replace(steps=300_000)},
    finetuning={"": PaperDefaults(lr=1e-4, warmup=0.1, batch_size=64, seq_len=256, epochs=10)},
    laptop=laptop,
    writes_tasks=True,
    smooths_labels=True,
)
