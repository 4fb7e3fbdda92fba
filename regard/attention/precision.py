"""Which type of number the arithmetic will be done in."""

from __future__ import annotations

import torch
from torch import Tensor


def wide_dtype(*types: torch.dtype) -> torch.dtype:
    """One that holds them all, of at least 32 bits: for sums, logarithms, probabilities."""
    widest = torch.float32
    for dtype in types:
        widest = torch.promote_types(widest, dtype)
    return widest


def wide(x: Tensor) -> Tensor:
    """In at least 32 bits."""
    return x.to(wide_dtype(x.dtype))


def working_dtype(x: Tensor) -> torch.dtype:
    """The type in which matrix products of x will be done: autocast's where it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
