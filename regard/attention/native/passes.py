"""Passes over attention weights and dropout, in native code where possible, else in plain torch."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.native import library

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
Pair = tuple[Tensor, Tensor]


def serves(x: Tensor) -> bool:
    """Returns whether native code can be used for this tensor. Tensor subclasses of other libraries
    may have no data in memory."""
    is_plain = type(x) in (Tensor, nn.Parameter) and x.is_cpu and x.dtype in NAMES
    return is_plain and library() is not None


def weigh(
    scores: Tensor,  # [B, H, Q, K], contiguous; overwritten
    bias: Tensor | None,  # broadcasts to the scores
    mask: Tensor | None,  # likewise: 0 or -inf
    keep: Tensor | None,  # bytes: 1 keep, 0 drop
) -> Pair:
    """Returns softmax(scores + bias + mask), with zeros for a row that sees no key, and the same
    weights after dropout."""
    if serves(scores):
        surviving = scores if keep is None else torch.empty_like(scores)
        added = [None if t is None else strided(t, scores) for t in (bias, mask)]
        terms = [part for t in added for part in (t, None if t is None else strides(t))]
        sizes = map(ctypes.c_int64, scores.shape)
        call("weigh", scores, None if keep is None else surviving, *terms, keep, *sizes)
        return scores, surviving
    for term in (bias, mask):
        if term is not None:
            scores += term.to(scores.dtype)
    weights = torch.softmax(scores, -1)
    if mask is not None and (blind := torch.isneginf(mask).all(-1, keepdim=True)).any():
        weights.masked_fill_(blind, 0.0)  # a softmax over no keys is NaN
    return weights, weights if keep is None else weights * keep.view_as(weights)


def weigh_back(grad: Tensor, weights: Tensor, keep: Tensor | None) -> Pair:
    """Returns the gradient of the scores from `grad`, that of the kept weights (overwritten), and
    the weights after dropout."""
    if serves(grad):
        surviving = weights if keep is None else torch.empty_like(weights)
        sizes = map(ctypes.c_int64, (grad.shape[:-1].numel(), grad.size(-1)))
        call("weigh_back", grad, None if keep is None else surviving, weights, keep, *sizes)
        return grad, surviving
    surviving = weights if keep is None else weights * keep
    grad = grad if keep is None else grad.mul_(keep)
    return torch._softmax_backward_data(grad, weights, -1, weights.dtype), surviving


class FusedDropout(torch.autograd.Function):
    """Computes x · keep · factor in one pass, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.factor = factor
        return scaled(x, keep, factor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (keep,) = ctx.saved_tensors
        return FusedDropout.apply(grad, keep, ctx.factor), None, None  # type: ignore[no-untyped-call]


def scaled(x: Tensor, keep: Tensor, factor: float) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    call("drop", y, x, keep, ctypes.c_float(factor), ctypes.c_int64(x.numel()))
    return y


def drop(x: Tensor, keep: Tensor, factor: float) -> Tensor:
    """Returns x · keep · factor."""
    if not serves(x):
        return (x * keep) * factor
    y: Tensor = FusedDropout.apply(x, keep, factor)  # type: ignore[no-untyped-call]
    return y


def surprisal(
    scores: Tensor,  # [N, V], each row contiguous; with `learn` overwritten by the gradient
    targets: Tensor,  # [N]
    shares: Tensor | None,  # [N]: the weight of each target
    own: float,
    other: float,
    without: int | None,
    z: float,
    learn: bool,
) -> Tensor:
    """Returns the loss of each row in fp32. The four numbers are those of a SoftTarget, whose loss
    is own · s_target + other · Σ s_k + z · (log Z)²."""
    costs = torch.empty(scores.size(0), dtype=torch.float32)
    targets = targets.contiguous()
    shares = None if shares is None else shares.float().contiguous()
    factors = map(ctypes.c_double, (own, other, z))
    word = ctypes.c_int64(-1 if without is None else without)
    sizes = map(ctypes.c_int64, scores.shape)
    pitch = ctypes.c_int64(scores.stride(0))
    call("surprisal", scores, pitch, targets, shares, costs, *factors, word, *sizes, int(learn))
    return costs


def products(a: Tensor, b: Tensor) -> Tensor:
    """Returns a [batch, m, k] · b [batch, k, n] in fp32."""
    c = torch.empty(a.size(0), a.size(1), b.size(2), dtype=torch.float32)
    steps = [(ctypes.c_int64 * 3)(*t.stride()) for t in (a, b)]
    sizes = map(ctypes.c_int64, (*a.shape, b.size(2)))
    call("products", c, a, b, *steps, *sizes)
    return c


def transposed(x: Tensor) -> Tensor:
    """Returns a copy of the transpose of x [m, n] in fp32, whose rows are contiguous."""
    y = x.new_empty(x.size(1), x.size(0))
    call("transpose", y, x, ctypes.c_int64(x.stride(0)), *map(ctypes.c_int64, x.shape))
    return y


class Rotation(torch.autograd.Function):
    """Rotates x [B, H, rows, D] by pairs of the elements i and i + D / 2. The result lies in memory
    by rows, then heads, as a projection writes it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return rotated(x, cosines, sines)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        cosines, sines = ctx.saved_tensors
        back = Rotation.apply(grad, cosines, -sines)  # type: ignore[no-untyped-call]
        return back, None, None


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()
    y = torch.empty_like(x.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
    cosines, sines = cosines.contiguous(), sines.contiguous()
    angle_stride = ctypes.c_int64(cosines.stride(0) if cosines.size(0) > 1 else 0)
    sizes = map(ctypes.c_int64, (*x.shape[:3], x.size(3) // 2))
    call("rotate", y, x, cosines, sines, strides(y), strides(x), angle_stride, *sizes)
    return y


def draw_keep(shape: torch.Size, limit: int) -> Tensor:
    """Returns bytes 0 (drop) or 1 (keep) on the CPU, decided by one draw of torch's generator."""
    seed = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
    room = torch.empty(-(-shape.numel() // 8) * 8, dtype=torch.uint8)
    count, threads = ctypes.c_int64(room.numel()), torch.get_num_threads()
    native: Any = library()
    native.draw_keep(ctypes.c_void_p(room.data_ptr()), ctypes.c_int64(seed), limit, count, threads)
    return room[: shape.numel()].view(shape)


def strided(term: Tensor, scores: Tensor) -> Tensor:
    """Returns the term as a view in the shape of the scores whose last dimension is contiguous."""
    term = term.to(scores.dtype).expand_as(scores)
    return term if term.stride(-1) == 1 else term.contiguous()


def strides(term: Tensor) -> Any:
    return (ctypes.c_int64 * 3)(*term.stride()[:3])


def call(name: str, first: Tensor, *others: Any) -> None:
    """Calls the native variant for the dtype of `first`; tensors are passed as their addresses."""
    function = getattr(library(), f"{name}_{NAMES[first.dtype]}")
    pointers = (
        ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in (first, *others)
    )
    function(*pointers, torch.get_num_threads())
