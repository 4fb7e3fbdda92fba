"""Products with matrices of small numbers: int8 with one scale per output, or bfloat16.

W ≈ scale · bytes, where the scale of an output is its largest absolute weight / 127. The input is
rounded row by row at run time: to 8 bits ("dynamic"), or to 16 bits ("weight"), which costs twice
the arithmetic and is finer than bfloat16. Without native code, floats are used.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import threading
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.kernels import wide
from regard.attention.native import library
from regard.core.errors import InputError

LARGEST = 127  # the largest int8 weight; -128 is not used, so that the range is symmetric
LONGEST = 2**16  # with fewer inputs, a 32-bit sum of byte products never overflows
FEW = 64  # with up to this many rows, torch's bfloat16 products are slower
SMALL = 1e-30  # a row with a smaller range is treated as zeros


@functools.cache
def kernel(name: str) -> Any:
    """Returns the native function, or None if the compiler or the processor does not support it."""
    function = getattr(library(), name, None)
    if function is not None:
        function.argtypes = TYPES[name]
        function.restype = None
    return function


ADDRESS, COUNT = ctypes.c_void_p, ctypes.c_int64
TYPES = {
    "product_int8": [ADDRESS, ADDRESS, COUNT, COUNT, *[ADDRESS] * 4, COUNT, COUNT]
    + [ctypes.c_int] * 2,
    "product_bf16": [ADDRESS, ADDRESS, COUNT, COUNT, *[ADDRESS] * 2, COUNT, COUNT, ctypes.c_int],
    "product_int4": [ADDRESS, ADDRESS, COUNT, COUNT, *[ADDRESS] * 2, COUNT, COUNT, ctypes.c_int],
}


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns [outputs, inputs] as int8 and the scale of each output; errors are <= scale / 2."""
    exact = wide(weight.detach())
    scale = exact.abs().amax(-1) / LARGEST
    scale = torch.where(scale > 0, scale, 1.0).to(weight.dtype)  # rounded before the division
    small = (exact / scale[:, None]).round_().clamp_(-LARGEST, LARGEST).to(torch.int8)
    return small, scale


def as_bits(weight: Tensor) -> Tensor:
    """Returns bfloat16 as int16, which `model.to(dtype)` does not convert."""
    return weight.detach().to(torch.bfloat16).view(torch.int16)


class Arena:
    """Memory in large pages, filled with one tensor after the other. Matrices are read once per
    token, and with pages of the usual size the page lookups take longer than the reading."""

    CHUNK = 2**25  # bytes; a chunk is freed when its last tensor is freed
    PAGE = 2**21

    def __init__(self) -> None:
        self.free = torch.empty(0, dtype=torch.uint8)
        self.lock = threading.Lock()

    def place(self, value: Tensor) -> Tensor:
        """Returns a copy of the tensor in the arena."""
        size = value.numel() * value.element_size()
        with self.lock, torch.inference_mode(False), torch.no_grad():
            if self.free.numel() < size:
                self.free = self.chunk(max(size, self.CHUNK))
            room, self.free = self.free[:size], self.free[-(-size // 64) * 64 :]
            return room.view(value.dtype).view(value.shape).copy_(value)

    def chunk(self, size: int) -> Tensor:
        """Returns at least `size` bytes that begin at a page boundary."""
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, -(-size // self.PAGE) * self.PAGE + self.PAGE, flags=kind)
        with suppress(OSError):  # some systems have no large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        return whole[-whole.data_ptr() % self.PAGE :]


ARENA = Arena() if hasattr(mmap, "MADV_HUGEPAGE") else None


def placed(value: Tensor) -> Tensor:
    """Copies a CPU tensor into large pages if the system has them."""
    usable = ARENA is not None and value.is_cpu and value.numel() > 0
    return ARENA.place(value) if usable and ARENA is not None else value


class NativeMatrix(NamedTuple):
    """A matrix as the native code reads it; `held` keeps the tensors alive that it points to."""

    inputs: int
    outputs: int
    addresses: tuple[int | None, ...]
    held: tuple[Tensor | None, ...]

    @classmethod
    def of(cls, weight: Tensor, *others: Tensor | None) -> NativeMatrix:
        tensors = [weight.contiguous(), *(None if t is None else t.contiguous() for t in others)]
        addresses = tuple(None if t is None else t.data_ptr() for t in tensors)
        return cls(weight.size(1), weight.size(0), addresses, tuple(tensors))


def ready_bytes(weight: Tensor, scale: Tensor, bias: Tensor | None) -> NativeMatrix:
    total = weight.sum(-1, dtype=torch.int32)
    return NativeMatrix.of(
        weight, scale.float(), total, None if bias is None else bias.detach().float()
    )


def ready_bits(weight: Tensor, bias: Tensor | None) -> NativeMatrix:
    return NativeMatrix.of(weight, None if bias is None else bias.detach().float())


def serves(x: Tensor, name: str) -> bool:
    """Returns whether native code can be used for these rows. It computes no gradient."""
    plain = type(x) in (Tensor, nn.Parameter) and x.is_cpu
    free = not (x.requires_grad and torch.is_grad_enabled()) and not torch.compiler.is_compiling()
    return plain and free and x.size(-1) < LONGEST and x.dtype in KINDS and kernel(name) is not None


KINDS = (torch.float32, torch.bfloat16, torch.float16)


def native_int8(x: Tensor, ready: NativeMatrix, planes: int) -> Tensor:
    """Multiplies x [..., inputs] with the matrix; `planes` (1 or 2): the bytes of a rounded
    element."""
    rows, y = prepared(x, ready)
    addresses = ready.addresses
    kernel("product_int8")(
        y.data_ptr(), rows.data_ptr(), rows.size(0), rows.stride(0), *addresses,
        ready.inputs, ready.outputs, planes, torch.get_num_threads(),
    )  # fmt: skip
    return y if y.dtype == x.dtype else y.to(x.dtype)


def native_bf16(x: Tensor, ready: NativeMatrix) -> Tensor:
    rows, y = prepared(x, ready)
    addresses = ready.addresses
    kernel("product_bf16")(
        y.data_ptr(), rows.data_ptr(), rows.size(0), rows.stride(0), *addresses,
        ready.inputs, ready.outputs, torch.get_num_threads(),
    )  # fmt: skip
    return y if y.dtype == x.dtype else y.to(x.dtype)


def prepared(x: Tensor, ready: NativeMatrix) -> tuple[Tensor, Tensor]:
    """Returns the rows of x as float32, each contiguous, and an empty tensor for the result."""
    if x.size(-1) != ready.inputs:  # else one row of twice the length would be read as two rows
        raise InputError(f"x has width {x.size(-1)}, and the matrix expects {ready.inputs}")
    rows = x.reshape(-1, ready.inputs).float()
    rows = rows if rows.stride(1) == 1 or rows.size(1) == 1 else rows.contiguous()
    return rows, torch.empty(*x.shape[:-1], ready.outputs, dtype=torch.float32)


def plain_int8(
    x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None, planes: int
) -> Tensor:
    """Does the same in torch: x is rounded to 8 bits with `planes` 1, and not rounded with 2."""
    rows = rounded(x) if planes == 1 else x
    rows = rows.reshape(-1, x.size(-1)).contiguous()  # sums must not depend on the strides of x
    with torch.autocast(x.device.type, enabled=False):
        y = F.linear(rows, weight.to(x.dtype)) * scale.to(x.dtype)
    y = y.view(*x.shape[:-1], -1) if x.numel() else y.new_empty(*x.shape[:-1], weight.size(0))
    return y if bias is None else y + bias.to(x.dtype)


def plain_bf16(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    half = torch.bfloat16
    with torch.autocast(x.device.type, enabled=False):
        y = F.linear(x.to(half), weight.view(half)).to(x.dtype)
    return y if bias is None else y + bias.to(x.dtype)


def rounded(x: Tensor) -> Tensor:
    """Rounds each row of x to 256 values from its smallest to its largest; 0 is one of them.

    The gradient passes through as if x were not rounded.
    """
    exact = wide(x.detach())
    low, high = exact.amin(-1, keepdim=True).clamp_max(0), exact.amax(-1, keepdim=True).clamp_min(0)
    step = (high - low) / 255
    inverse = torch.where(high - low > SMALL, 255 / (high - low), 0.0)
    zero = (-low * inverse).round()
    numbers = ((exact * inverse).round() + zero).clamp(0, 255) - zero
    y = (numbers * step).to(x.dtype)
    return x + (y - x).detach() if x.requires_grad else y
