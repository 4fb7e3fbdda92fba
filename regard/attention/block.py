"""Sub-layers with their residual connection and norm, and the blocks that consist of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from regard.attention.activations import ACTIVATIONS, gated
from regard.attention.dropout import Dropout
from regard.attention.linear import Linear


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, applied to every position separately."""

    def __init__(
        self, width: int, ffn_size: int, activation: str, *, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.wide = Linear(width, ffn_size, bias)
        self.narrow = Linear(ffn_size, width, bias)
        self.activation, self.dropout = ACTIVATIONS[activation], Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.narrow(self.dropout(self.activation(self.wide(x))))
        return y


class Gated(FeedForward):
    """A FeedForward whose activated `gate` layer multiplies a second linear layer (T5 v1.1)."""

    def __init__(
        self, width: int, ffn_size: int, *rest: Any, bias: bool = True, **more: Any
    ) -> None:
        super().__init__(width, ffn_size, *rest, bias=bias, **more)
        self.gate = Linear(width, ffn_size, bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.narrow(self.dropout(gated(self.activation, self.gate(x), self.wide(x))))
        return y


class PostNorm(nn.Module):
    """norm(x + dropout(layer(x))), as published in 2017."""

    def __init__(self, layer: nn.Module, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = layer, norm, Dropout(dropout)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y: Tensor = self.norm(x + self.dropout(self.layer(x, *context)))
        return y


class PreNorm(PostNorm):
    """x + dropout(layer(norm(x))): nothing is normalized on the residual path."""

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y: Tensor = x + self.dropout(self.layer(self.norm(x), *context))
        return y


NORM_PLACES: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}


class Block(nn.Module):
    """Attention, then the feed-forward network, each with its residual connection and norm.

    `run` decides how a call is computed. It is called with the block and its inputs, and it calls
    `compute`: once (`directly`), or a second time in the backward pass to save memory
    (checkpointing).
    """

    def __init__(self, attention: PostNorm, feed_forward: PostNorm) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.run: Callable[..., Tensor] = directly

    def forward(self, *inputs: Any) -> Tensor:
        return self.run(self, *inputs)

    def compute(self, x: Tensor, *context: Any) -> Tensor:
        y: Tensor = self.feed_forward(self.attention(x, *context))
        return y


def directly(block: Block, *inputs: Any) -> Tensor:
    return block.compute(*inputs)


class CrossBlock(Block):
    """A decoder block: self-attention, attention over the source, then the feed-forward network."""

    def __init__(self, attention: PostNorm, cross: PostNorm, feed_forward: PostNorm) -> None:
        super().__init__(attention, feed_forward)
        self.cross = cross

    def compute(self, x: Tensor, own: tuple[Any, ...], source: tuple[Any, ...]) -> Tensor:
        y: Tensor = self.feed_forward(self.cross(self.attention(x, *own), *source))
        return y
