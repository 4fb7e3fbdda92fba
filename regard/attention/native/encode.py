"""The layers of an encoder at rest, over texts that lie one after the other without padding.

The products are oneDNN's, which is in torch, from weights that are laid out once for it; what is
between them is native code (encode.cpp). In int8, rows are rounded to bytes as in int8.py.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.native import library
from regard.attention.native.int8 import LONGEST, kernel

ACTIVATIONS = {"": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3}
FUSED = {"": ("none", ""), "relu": ("relu", ""), "gelu": ("gelu", "none"),
         "gelu_tanh": ("gelu", "tanh")}  # fmt: skip
QUICK = 256  # rows for which the weights are laid out


class Pass(ctypes.Structure):
    """The arguments of `rows_pass`; see encode.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "full", "half", "step", "zero", "total", "scale", "bias", "residual", "weight",
            "offset", "to_full", "to_half", "to_bytes", "to_step", "to_zero")),
        ("rows", ctypes.c_int64), ("width", ctypes.c_int64), ("activation", ctypes.c_int64),
        ("eps", ctypes.c_double),
    )  # fmt: skip


class Rows(NamedTuple):
    """The same rows in the forms that the next layers read."""

    full: Tensor | None = None  # fp32
    half: Tensor | None = None  # bfloat16
    small: Tensor | None = None  # bytes, with …
    step: Tensor | None = None  # … the distance of two values of a row, …
    zero: Tensor | None = None  # … and the byte that stands for 0

    @classmethod
    def empty(cls, count: int, width: int, form: str, also_full: bool = False) -> Rows:
        """Returns room for rows in a form: "full", "half" or "small"."""
        full = torch.empty(count, width) if form == "full" or also_full else None
        half = torch.empty(count, width, dtype=torch.bfloat16) if form == "half" else None
        if form != "small":
            return cls(full, half)
        small = torch.empty(count, width, dtype=torch.uint8)
        return cls(full, None, small, torch.empty(count), torch.empty(count, dtype=torch.int32))

    def part(self, start: int, end: int) -> Rows:
        return Rows(*(None if t is None else t[start:end] for t in self))


class Sums(NamedTuple):
    """The result of a product: numbers, or sums of bytes with what turns them into numbers."""

    full: Tensor | None = None
    half: Tensor | None = None
    step: Tensor | None = None
    zero: Tensor | None = None
    total: Tensor | None = None
    scale: Tensor | None = None
    bias: Tensor | None = None


class Norm(NamedTuple):
    weight: Tensor
    bias: Tensor
    eps: float


def rows_pass(
    sums: Sums,
    form: str | Rows,  # of the result: "full", "half" or "small"; or the room for it
    *,
    activation: str = "",
    residual: Tensor | None = None,
    norm: Norm | None = None,
    also_full: bool = False,
) -> Rows:
    """Activates rows, adds a residual, normalizes, and writes the result in one or two forms."""
    source: Any = sums.full if sums.half is None else sums.half
    count, width = source.shape
    to = form if isinstance(form, Rows) else Rows.empty(count, width, form, also_full)
    weight, bias, eps = (None, None, 0.0) if norm is None else norm
    tensors = (*sums, residual, weight, bias, *to)
    addresses = (None if t is None else t.data_ptr() for t in tensors)
    arguments = Pass(*addresses, count, width, ACTIVATIONS[activation], eps)
    native: Any = library()
    native.rows_pass(ctypes.byref(arguments), torch.get_num_threads())
    return to


class Texts(NamedTuple):
    """Where each text begins and ends, and the positions of its far keys (Longformer's global
    tokens), counted from its first row."""

    edges: Tensor  # [texts + 1]
    far: Tensor | None = None
    far_edges: Tensor | None = None


def attention_form() -> str:
    """Returns the form of queries, keys and values that are sums of bytes: bfloat16 where the
    processor multiplies it. Products of bytes would save little more of a whole forward pass, and
    err several times as much."""
    return "full" if kernel("product_bf16") is None else "half"


def attend_texts(
    qkv: Tensor, texts: Texts, heads: int, size: int, scale: float, window: int = -1
) -> Tensor:
    """Returns [N, heads · size]: every text by itself. A row sees `window` rows to each side (-1:
    all) and the far keys. Rows after the last text become zeros. In bfloat16, sums are fp32, and
    the weights are rounded where the processor multiplies bfloat16."""
    y = torch.zeros(qkv.size(0), heads * size, dtype=qkv.dtype)
    native: Any = library()
    call = native.attend_texts_bf16 if qkv.dtype == torch.bfloat16 else native.attend_texts_fp32

    def address(t: Tensor | None) -> ctypes.c_void_p | None:
        return None if t is None else ctypes.c_void_p(t.data_ptr())

    counts = map(ctypes.c_int64, (texts.edges.numel() - 1, heads, size))
    call(
        address(y), address(qkv), address(texts.edges), *counts, ctypes.c_float(scale),
        ctypes.c_int64(window), address(texts.far), address(texts.far_edges),
        torch.get_num_threads(),
    )  # fmt: skip
    return y


class FullLayer:
    """A linear layer in fp32."""

    form = "full"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.bias = None if bias is None else bias.detach().float()
        self.weight = self.laid_out(weight.detach().float())

    @staticmethod
    def laid_out(weight: Tensor) -> Tensor:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, QUICK)
        return packed

    def product(self, x: Any, activation: str) -> Tensor:
        name, algorithm = FUSED[activation]
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, name, [], algorithm
        )
        return y

    def __call__(self, x: Rows) -> Sums:
        return Sums(full=self.product(x.full, ""))

    def activated(self, x: Rows, activation: str) -> Rows:
        return Rows(full=self.product(x.full, activation))


class HalfLayer(FullLayer):
    """A linear layer in bfloat16."""

    form = "half"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.bias = None if bias is None else bias.detach().bfloat16()
        self.weight = self.laid_out(weight.detach().bfloat16())

    def __call__(self, x: Rows) -> Sums:
        return Sums(half=self.product(x.half, ""))

    def activated(self, x: Rows, activation: str) -> Rows:
        return Rows(half=self.product(x.half, activation))


class SmallLayer:
    """A linear layer with int8 weights whose input is rounded to bytes."""

    form = "small"

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        outputs = weight.size(0)
        self.total = weight.sum(-1, dtype=torch.int32)
        self.scale = scale.detach().float().contiguous()
        self.bias = None if bias is None else bias.detach().float().contiguous()
        shape = [QUICK, weight.size(1)]
        self.weight = torch.ops.onednn.qlinear_prepack(weight.contiguous(), shape)
        self.ones, self.zeros = torch.ones(outputs), torch.zeros(outputs, dtype=torch.int32)

    @staticmethod
    def fits(inputs: int) -> bool:
        return inputs < LONGEST and hasattr(torch.ops.onednn, "qlinear_pointwise")

    def __call__(self, x: Rows) -> Sums:
        sums = torch.ops.onednn.qlinear_pointwise(
            x.small, 1.0, 0, self.weight, self.ones, self.zeros, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        return Sums(sums, None, x.step, x.zero, self.total, self.scale, self.bias)

    def activated(self, x: Rows, activation: str) -> Rows:
        return rows_pass(self(x), "small", activation=activation)


Layer = FullLayer | SmallLayer


def usable() -> bool:
    """Returns whether oneDNN can lay out weights here, and the native code can be used."""
    laid_out = hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return laid_out and torch.backends.mkldnn.is_available() and library() is not None
