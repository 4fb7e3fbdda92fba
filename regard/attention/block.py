"""Sub-layers with their residual connection and norm, and the blocks that consist of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.attention.dropout import Dropout
from regard.attention.linear import Linear
from regard.attention.native import passes


class Activation(torch.autograd.Function):
    """f(x), or f(x) · factor, in one pass forward and one backward. It keeps its inputs alone. On a
    CPU torch takes some four times as long for GELU in its tanh form as is needed, and makes two
    passes over a gated layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor | None, kind: int) -> Tensor:
        x = x.contiguous()
        factor = None if factor is None else factor.contiguous()
        y = torch.empty_like(x)
        passes.call("activate", y, x, factor, kind, ctypes.c_int64(x.numel()))
        ctx.save_for_backward(x, factor)
        ctx.kind = kind
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, factor = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_factor = None if factor is None else torch.empty_like(factor)
        count = ctypes.c_int64(x.numel())
        grads = grad_x, grad_factor, grad.contiguous()
        passes.call("activate_back", *grads, x, factor, ctx.kind, count)
        return grad_x, grad_factor, None


def serves(x: Tensor) -> bool:
    """In bfloat16. In fp32 torch's activations keep the bits of the references."""
    return x.dtype == torch.bfloat16 and not torch.compiler.is_compiling() and passes.serves(x)


def activated(x: Tensor, factor: Tensor | None, kind: int) -> Tensor:
    y: Tensor = Activation.apply(x, factor, kind)  # type: ignore[no-untyped-call]
    return y


def gelu_tanh(x: Tensor) -> Tensor:  # GPT, T5 v1.1 and BERT's authors use this form
    return activated(x, None, 0) if serves(x) else F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": gelu_tanh, "silu": F.silu, "tanh": torch.tanh
}  # fmt: skip
KINDS: dict[Callable[[Tensor], Tensor], int] = {gelu_tanh: 0, F.silu: 1}


def gated(activation: Callable[[Tensor], Tensor], gate: Tensor, x: Tensor) -> Tensor:
    """Returns activation(gate) · x."""
    kind = KINDS.get(activation)
    if kind is None or gate.dtype != x.dtype or not (serves(gate) and passes.serves(x)):
        return activation(gate) * x
    return activated(gate, x, kind)


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
