"""Which type of number the arithmetic will be done in."""

from __future__ import annotations

import torch
from torch import Tensor


def working_dtype(x: Tensor) -> torch.dtype:
    """The type in which matrix products of x will be done: autocast's where it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
