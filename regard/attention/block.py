"""Sub-layers with their residual and norm, and the blocks made of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.dropout import Dropout

gelu_tanh = partial(F.gelu, approximate="tanh")  # as GPT, T5 v1.1 and BERT's authors have it
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": gelu_tanh, "silu": F.silu, "tanh": torch.tanh
}  # fmt: skip


class FeedForward(nn.Module):
    """Two linear layers around an activation, at every position alike."""

    def __init__(
        self, width: int, ffn_size: int, activation: str, *, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.wide = nn.Linear(width, ffn_size, bias)
        self.narrow = nn.Linear(ffn_size, width, bias)
        self.activation, self.dropout = ACTIVATIONS[activation], Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.narrow(self.dropout(self.activation(self.wide(x))))
        return y


class Gated(FeedForward):
    """The first layer's activation gates a second one of its kind (T5 v1.1)."""

    def __init__(
        self, width: int, ffn_size: int, *rest: Any, bias: bool = True, **more: Any
    ) -> None:
        super().__init__(width, ffn_size, *rest, bias=bias, **more)
        self.gate = nn.Linear(width, ffn_size, bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.narrow(self.dropout(self.activation(self.gate(x)) * self.wide(x)))
        return y


class PostNorm(nn.Module):
    """norm(x + dropout(layer(x))): as published in 2017."""

    def __init__(self, layer: nn.Module, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = layer, norm, Dropout(dropout)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y: Tensor = self.norm(x + self.dropout(self.layer(x, *context)))
        return y


class PreNorm(PostNorm):
    """x + dropout(layer(norm(x))): the residual path stays untouched."""

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y: Tensor = x + self.dropout(self.layer(self.norm(x), *context))
        return y


NORM_PLACES: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm}


class Block(nn.Module):
    """Attention, then the position-wise network; each with its residual and norm.

    `run` is how a call becomes a computation. It is called with the block and its inputs, and it
    calls `compute`: at once (`directly`), or again on the way back to save memory.
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
    """A decoder's block: the rows read themselves, then the source, then the network."""

    def __init__(self, attention: PostNorm, cross: PostNorm, feed_forward: PostNorm) -> None:
        super().__init__(attention, feed_forward)
        self.cross = cross

    def compute(self, x: Tensor, own: tuple[Any, ...], source: tuple[Any, ...]) -> Tensor:
        y: Tensor = self.feed_forward(self.cross(self.attention(x, *own), *source))
        return y
