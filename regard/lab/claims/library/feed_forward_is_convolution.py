"""The position-wise feed-forward network is a convolution."""

from __future__ import annotations

from typing import Any

from regard.core.seeding import seed_torch
from regard.lab.claims.engine.experiment import ComputedExperiment


def figures(arm: str, at: float, seed: int) -> dict[str, float]:
    """Compares the network with two convolutions over the text, of one position or of three."""
    import torch
    from torch.nn import functional as F

    from regard.attention.block import FeedForward

    draw = torch.Generator().manual_seed(seed)
    seed_torch(seed, "weights")
    network = FeedForward(32, 64, "relu").double()
    x = torch.randn(4, 10, 32, generator=draw, dtype=torch.float64)
    wide, narrow = network.wide, network.narrow
    reach = 1 if arm == "of one position" else 3

    def kernel(weight: Any) -> Any:
        around = torch.randn(*weight.shape, reach, generator=draw, dtype=torch.float64)
        around[..., reach // 2] = weight
        return around

    with torch.no_grad():
        y = F.conv1d(x.mT, kernel(wide.weight), wide.bias, padding=reach // 2).relu()
        y = F.conv1d(y, kernel(narrow.weight), narrow.bias, padding=reach // 2).mT
        return {"difference": float((y - network(x)).abs().max())}


EXPERIMENT = ComputedExperiment(figures)
