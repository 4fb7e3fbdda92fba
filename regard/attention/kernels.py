"""The weighted sum itself, as free functions.

Letters: B batch, H heads, Q query rows, K key rows, D width of a head.

PyTorch's fused kernel serves wherever it is fast. On a CPU it has two slow paths, dropout on the
weights and a bias that is learned; there `Explicit` does the same sum with plain matrix products,
one stored matrix of weights and one byte of randomness a weight.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

GRAIN = 256  # a dropout rate is rounded to a multiple of 1/256: one random byte decides one number


def attend(
    q: Tensor,  # [B, H, Q, D]
    k: Tensor,  # [B, H, K, D]
    v: Tensor,  # [B, H, K, D]
    *,
    scale: float,
    mask: Tensor | None = None,  # added to the scores: 0 where visible, -inf where not
    bias: Tensor | None = None,  # added to the scores: learned
    rate: float = 0.0,  # dropout of the weights
    causal: bool = False,  # the last row sees the last key
) -> Tensor:
    """softmax(q kᵀ · scale + bias + mask) v. A row that sees nothing yields zeros, as do its
    gradients.
    """
    slow = rate > 0.0 or (bias is not None and bias.requires_grad and torch.is_grad_enabled())
    slow = slow and not fused(q)
    if causal and (slow or mask is not None or bias is not None or q.size(2) != k.size(2)):
        corner = causal_mask(q.size(2), k.size(2), q)
        mask, causal = corner if mask is None else mask + corner, False
    if slow:
        result: Tensor = Explicit.apply(q, k, v, mask, bias, scale, rate)
        return result
    if bias is not None:
        mask = bias if mask is None else bias + mask
    if mask is not None and mask.is_floating_point():
        mask = mask.to(q.dtype)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=rate, is_causal=causal, scale=scale
    )


def fused(x: Tensor) -> bool:
    """Does this device (or the compiler) make random numbers and learned biases cheap by itself?"""
    return not x.is_cpu or torch.compiler.is_compiling()


def causal_mask(rows: int, columns: int, like: Tensor) -> Tensor:
    """-inf above the diagonal; the last row sees the last column."""
    return torch.full((rows, columns), -math.inf, dtype=like.dtype, device=like.device).triu(
        columns - rows + 1
    )


class Explicit(torch.autograd.Function):
    """Attention by matrix products, with its own backward: the weights are stored once, changed in
    place.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        scale: float,
        rate: float,
    ) -> Tensor:
        heads = (q.size(0), q.size(1))
        bias_shape = None if bias is None else bias.shape
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = (x.flatten(0, 1) for x in (q, k, v))
            q = q * scale
            scores = torch.bmm(q, k.mT).unflatten(0, heads)
            for term in (bias, mask):
                if term is not None:
                    scores += term.to(scores.dtype)
            weights = torch.softmax(scores, -1)
            if mask is not None and (blind := torch.isneginf(mask).all(-1, keepdim=True)).any():
                weights.masked_fill_(blind, 0.0)  # a softmax over nothing
            weights = weights.flatten(0, 1)
            keep = keep_mask(weights.shape, rate, weights.device) if rate else None
            kept = 1.0 - dropped(rate) / GRAIN
            out = torch.bmm(weights if keep is None else weights * keep, v)
            ctx.save_for_backward(q, k, v, weights, keep)
            ctx.constants = heads, scale, kept, bias_shape
            return (out if kept == 1.0 else out.div_(kept)).unflatten(0, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, keep = ctx.saved_tensors
        heads, scale, kept, bias_shape = ctx.constants
        with torch.autocast(grad.device.type, enabled=False):
            grad = grad.flatten(0, 1).to(v.dtype)
            grad = grad if kept == 1.0 else grad / kept
            used = weights if keep is None else weights * keep
            grad_v = torch.bmm(used.mT, grad)
            grad_weights = torch.bmm(grad, v.mT)
            if keep is not None:
                grad_weights *= keep
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            grad_q = torch.bmm(grad_scores, k).mul_(scale)
            grad_k = torch.bmm(grad_scores.mT, q)
            grad_bias = None
            if bias_shape is not None and ctx.needs_input_grad[4]:
                grad_bias = grad_scores.unflatten(0, heads).sum_to_size(bias_shape)
            return (
                *(g.unflatten(0, heads) for g in (grad_q, grad_k, grad_v)),
                None,
                grad_bias,
                None,
                None,
            )


def dropped(rate: float) -> int:
    """How many of the 256 values of a byte mean 'drop': never all, or nothing could be kept on
    average.
    """
    return min(max(1, round(rate * GRAIN)), GRAIN - 1) if rate > 0.0 else 0


def keep_mask(shape: torch.Size, rate: float, device: torch.device) -> Tensor:
    """Bytes 0 (drop) or 1 (keep). One 64-bit draw decides eight numbers, all eight bytes at once."""
    count, limit = shape.numel(), dropped(rate)
    draws = torch.empty(-(-count // 8), dtype=torch.int64, device=device).random_(-(2**63), None)
    if (
        limit <= 128
    ):  # a byte is at least `limit` when its top bit, or that of (low bits + 128 - limit), is set
        low = (draws & 0x7F7F7F7F7F7F7F7F).add_((128 - limit) * 0x0101010101010101)
        draws = low.bitwise_or_(draws).bitwise_right_shift_(7).bitwise_and_(0x0101010101010101)
        keep = draws.view(torch.uint8)
    else:
        keep = draws.view(torch.uint8).ge(limit).view(torch.uint8)
    return keep[:count].view(shape)


class Dropout(nn.Module):
    """Dropout that is as cheap as its arithmetic, on a CPU too."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if fused(x):
            return F.dropout(x, self.rate)
        keep = keep_mask(x.shape, self.rate, x.device)
        return (x * keep) * (GRAIN / (GRAIN - dropped(self.rate)))

    def extra_repr(self) -> str:
        return f"{self.rate}"
