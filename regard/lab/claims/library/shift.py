"""A rotation shifts sinusoidal positions."""

from __future__ import annotations

import math
from typing import Any

from regard.lab.claims.engine.experiment import ComputedExperiment

WIDTH, POSITIONS = 64, 4096


def rotation(distance: int) -> Any:
    """Returns the map that shifts every position by `distance`, computed without looking at any
    position."""
    import torch

    half = torch.arange(WIDTH // 2, dtype=torch.float64)
    angle = distance * torch.exp(half * -(math.log(10000.0) / (WIDTH / 2)))
    cosine, sine = torch.diag(angle.cos()), torch.diag(angle.sin())
    return torch.cat([torch.cat([cosine, sine], 1), torch.cat([-sine, cosine], 1)])


def figures(arm: str, distance: float, seed: int) -> dict[str, float]:
    """Returns the largest distance between the rotated positions and the real ones."""
    import torch

    from regard.attention.position import sinusoids

    draw = torch.Generator().manual_seed(seed)
    far = int(distance)
    at = torch.arange(POSITIONS + far)
    random = torch.randn(len(at), WIDTH, generator=draw, dtype=torch.float64)
    table = sinusoids(at, WIDTH).double() if arm == "sinusoids" else random
    here, there = table[:POSITIONS], table[far:]
    return {"error": float((here @ rotation(far).T - there).abs().max())}


EXPERIMENT = ComputedExperiment(figures)
