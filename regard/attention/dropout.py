"""Dropout that costs little more than its arithmetic, on a CPU too.

PyTorch draws one random number for every element, on one core. Here one random byte decides, and
one draw of 64 bits gives eight bytes. The rate is rounded to a multiple of 1/256, and the kept
elements are scaled by the rounded rate, so the mean stays exact.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.native import library, passes

GRAIN = 256  # the number of values of a byte


def fused(x: Tensor) -> bool:
    """Returns whether the device or the compiler makes random numbers and learned biases cheap."""
    return not x.is_cpu or torch.compiler.is_compiling()


def dropped(rate: float) -> int:
    """Returns how many of the 256 values of a byte mean "drop"; it is never all of them."""
    return min(max(1, round(rate * GRAIN)), GRAIN - 1) if rate > 0.0 else 0


def keep_mask(shape: torch.Size, rate: float, device: torch.device) -> Tensor:
    """Returns bytes 0 (drop) or 1 (keep). One 64-bit draw decides eight elements."""
    count, limit = shape.numel(), dropped(rate)
    if device.type == "cpu" and library() is not None:
        return passes.draw_keep(shape, limit)
    draws = torch.empty(-(-count // 8), dtype=torch.int64, device=device).random_(-(2**63), None)
    if limit > 128:
        return draws.view(torch.uint8).ge(limit).view(torch.uint8)[:count].view(shape)
    # A byte is at least `limit` if its top bit, or the top bit of (low bits + 128 - limit), is set.
    low = (draws & 0x7F7F7F7F7F7F7F7F).add_((128 - limit) * 0x0101010101010101)
    keep = low.bitwise_or_(draws).bitwise_right_shift_(7).bitwise_and_(0x0101010101010101)
    return keep.view(torch.uint8)[:count].view(shape)


Draw = Callable[[torch.Size, float, torch.device], Tensor]


class Dropout(nn.Module):
    """Dropout that decides by random bytes where PyTorch's own is slow; see the module."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.draw: Draw = keep_mask  # tensor parallelism draws a part of the same mask

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if fused(x):
            return F.dropout(x, self.rate)
        keep = self.draw(x.shape, self.rate, x.device)
        factor = GRAIN / (GRAIN - dropped(self.rate))
        return passes.drop(x, keep, factor)

    def extra_repr(self) -> str:
        return f"{self.rate}"
