"""The attention sum itself, as plain functions.

Letters: B batch, H heads, Q query rows, K key rows, D width of a head. Keys and values may have
fewer heads, G: each serves H / G neighboring query heads and is not copied for them. PyTorch's
fused kernel is used wherever it is fast. On a CPU it is slow with dropout on the weights, with a
learned bias, and in bf16 training; there `ExplicitAttention` computes the same sum with plain
matrix products, as long as its matrix of weights is small.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.attention.dropout import GRAIN, Draw, dropped, fused, keep_mask
from regard.attention.linear import products
from regard.attention.native import passes

SHORT = 1024  # with up to this many keys, bf16 training is faster by plain matrix products


def exporting() -> bool:
    """Returns whether a graph is being recorded that must hold for texts of any length: it can have
    no loop over blocks of rows, and no condition on their number."""
    return torch.compiler.is_exporting()


class AttentionArgs(NamedTuple):
    """The arguments of a kernel besides queries, keys and values."""

    bias: Tensor | None = None  # added to the scores; may be learned
    scale: float = 1.0  # multiplies the products of queries and keys
    rate: float = 0.0  # the dropout rate of the weights
    draw: Draw = keep_mask  # draws the dropout of weights [B, heads, rows, keys]


def attend(
    q: Tensor,  # [B, H, Q, D]
    k: Tensor,  # [B, G, K, D]
    v: Tensor,  # [B, G, K, D]
    how: AttentionArgs,
    mask: Tensor | None = None,  # added to the scores: 0 where visible, -inf where not
    causal: bool = False,  # aligned at the end: the last row sees the last key
) -> Tensor:
    """Returns softmax(q kᵀ · scale + bias + mask) v; a row without keys gives zeros and no
    gradient."""
    bias, scale, rate, draw = how
    learns = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
    slow = rate > 0.0 or (bias is not None and bias.requires_grad and torch.is_grad_enabled())
    slow = slow or (learns and q.dtype == torch.bfloat16 and k.size(2) <= SHORT)
    slow = slow and not fused(q)
    if causal and (slow or mask is not None or bias is not None or q.size(2) != k.size(2)):
        corner = q.new_full((q.size(2), k.size(2)), -math.inf).triu(k.size(2) - q.size(2) + 1)
        mask, causal = corner if mask is None else mask + corner, False
    if slow:
        y: Tensor = ExplicitAttention.apply(q, k, v, mask, bias, scale, rate, draw)  # type: ignore[no-untyped-call]
        return y
    if bias is not None:
        mask = bias if mask is None else bias + mask
    if mask is not None and mask.is_floating_point():
        mask = mask.to(q.dtype)
    grouped = bool(q.size(1) != k.size(1))
    return F.scaled_dot_product_attention(
        q, k, v, mask, rate, causal, scale=scale, enable_gqa=grouped
    )


class ExplicitAttention(torch.autograd.Function):
    """Attention by matrix products with its own backward; the weights are stored once. The query
    heads that share a key head are stacked, as if they were more rows of one head."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        q, k, v, mask, bias, scale, rate, draw = inputs
        shape, heads, rows = q.shape, k.shape[:2], q.size(1) * q.size(2) // k.size(1)
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = (x.flatten(0, 1) for x in (q, k, v))
            q = (q * scale).reshape(k.size(0), rows, q.size(-1))
            scores = products(q, k.mT)
            by_head = torch.Size((*heads, rows, k.size(1)))
            keep = draw(by_head, rate, scores.device).view(scores.shape) if rate else None
            scores = scores.view(*shape[:3], k.size(1))
            pair = passes.weigh(scores, bias, mask, keep)
            weights, used = (w.view(k.size(0), rows, k.size(1)) for w in pair)
            out, keep_rate = products(used, v), 1.0 - dropped(rate) / GRAIN
            ctx.save_for_backward(q, k, v, weights, keep)
            ctx.constants = shape, heads, scale, keep_rate, None if bias is None else bias.shape
            y: Tensor = (out if keep_rate == 1.0 else out.div_(keep_rate)).view(
                *shape[:3], v.size(-1)
            )
            return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, keep = ctx.saved_tensors
        shape, heads, scale, keep_rate, bias_shape = ctx.constants
        with torch.autocast(grad.device.type, enabled=False):
            grad = grad.to(v.dtype).reshape(*weights.shape[:2], v.size(-1))
            grad = grad if keep_rate == 1.0 else grad / keep_rate
            grad_scores, used = passes.weigh_back(products(grad, v.mT), weights, keep)
            grad_v = products(used.mT, grad)
            grad_q = products(grad_scores, k).mul_(scale)
            grad_k = products(grad_scores.mT, q)
            grad_bias = None
            if bias_shape is not None and ctx.needs_input_grad[4]:
                grad_bias = grad_scores.view(*shape[:3], k.size(1)).sum_to_size(bias_shape)
            pair = (g.unflatten(0, heads) for g in (grad_k, grad_v))
            return grad_q.view(shape), *pair, None, grad_bias, None, None, None


# -- the dtype in which arithmetic is done


def wide_dtype(*types: torch.dtype) -> torch.dtype:
    """Returns a dtype of at least 32 bits for all `types`: for sums, logarithms, probabilities."""
    widest = torch.float32
    for dtype in types:
        widest = torch.promote_types(widest, dtype)
    return widest


def wide(x: Tensor) -> Tensor:
    """Converts x to a dtype of at least 32 bits."""
    return x.to(wide_dtype(x.dtype))


def working_dtype(x: Tensor) -> torch.dtype:
    """Returns the dtype of matrix products with x: that of autocast where it is active."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
