"""Activations. On a CPU torch takes some four times as long for GELU in its tanh form as is needed,
and makes two passes over a gated layer where one is enough."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.attention.native import passes


class Activation(torch.autograd.Function):
    """f(x), or f(x) · factor, in one pass forward and one backward. It keeps its inputs alone."""

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
    return not torch.compiler.is_compiling() and passes.serves(x)  # a graph cannot ask the second


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
