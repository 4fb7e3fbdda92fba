"""Positions that are moved by a rotation."""

from __future__ import annotations

import math
from typing import Any

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Computed
from regard.lab.claims.engine.rules import All, Within

WIDTH, POSITIONS = 64, 4096


def rotation(distance: int) -> Any:
    """The map that takes every position to the one `distance` further, made without looking at
    any."""
    import torch

    half = torch.arange(WIDTH // 2, dtype=torch.float64)
    angle = distance * torch.exp(half * -(math.log(10000.0) / (WIDTH / 2)))
    cosine, sine = torch.diag(angle.cos()), torch.diag(angle.sin())
    return torch.cat([torch.cat([cosine, sine], 1), torch.cat([-sine, cosine], 1)])


def figures(arm: str, distance: float, seed: int) -> dict[str, float]:
    """How far the rotated positions are from the real ones, everywhere."""
    import torch

    from regard.attention.position import sinusoids

    draw = torch.Generator().manual_seed(seed)
    far = int(distance)
    at = torch.arange(POSITIONS + far)
    random = torch.randn(len(at), WIDTH, generator=draw, dtype=torch.float64)
    table = sinusoids(at, WIDTH).double() if arm == "sinusoids" else random
    here, there = table[:POSITIONS], table[far:]
    return {"error": float((here @ rotation(far).T - there).abs().max())}


CLAIM = Claim(
    name="shift",
    statement=Said(
        "The sinusoids of position t + Δ are a rotation of those of t, the same one for every t.",
        "位置 t + Δ 的正弦编码是位置 t 的编码的一个旋转，对所有 t 都相同。",
    ),
    source="Vaswani et al. 2017, 3.5",
    setting=Said(
        "The rotation is written down from Δ alone and applied to 4,096 positions; random ones "
        "stand beside them as a counter-example.",
        "只由 Δ 写出旋转矩阵，用到 4,096 个位置上；随机位置编码作为反例。",
    ),
    arms=("sinusoids", "random"),
    axis=Axis(Said("distance", "距离"), (1, 7, 100)),
    experiment=Computed(figures),
    rule=All((
        Within("error", "sinusoids", most=1e-4),
        Within("error", "random", least=0.1),
    )),
    charts=(Chart("error", Said("largest error", "最大误差"), logarithmic=True),),
    minutes=0.1,
)  # fmt: skip
