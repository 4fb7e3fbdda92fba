"""Chooses the dtype in which arithmetic is done."""

from __future__ import annotations

import torch
from torch import Tensor


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
