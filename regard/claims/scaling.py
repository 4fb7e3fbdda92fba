"""Why scores are divided by the root of the width."""

from __future__ import annotations

import torch

from regard.claims.claim import Axis, Chart, Claim, Said
from regard.claims.experiment import Computed
from regard.claims.rules import All, Rising, Slope, Within


def figures(arm: str, width: float, seed: int) -> dict[str, float]:
    """Random queries and keys: how far scores spread, and what of a gradient comes through."""
    draw = torch.Generator().manual_seed(seed)
    size = int(width)
    q, k = (torch.randn(256, size, generator=draw, dtype=torch.float64) for _ in range(2))
    scores = q @ k.T * (size**-0.5 if arm == "scaled" else 1.0)
    scores.requires_grad_()
    weights = scores.softmax(-1)
    coming = torch.randn(weights.shape, generator=draw, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * coming).sum(), scores)
    return {
        "variance": float(scores.detach().var()),
        "gradient": float(gradient.norm(dim=-1).mean()),
    }


CLAIM = Claim(
    name="scaling",
    statement=Said(
        "Without 1/√d the variance of the dot products grows with d, and the gradient of the "
        "softmax vanishes.",
        "若不除以 √d，点积的方差随 d 增长，softmax 的梯度趋于消失。",
    ),
    source="Vaswani et al. 2017, 3.2.1",
    setting=Said(
        "256 random queries and keys with components of variance 1; the variance of their scores, "
        "and the mean length of the gradient that reaches a row of them.",
        "256 个随机的查询与键，各分量方差为 1；量其分数的方差，以及传到每行分数的梯度的平均长度。",
    ),
    arms=("scaled", "unscaled"),
    axis=Axis(Said("width of a head", "头的宽度"), (4, 16, 64, 256, 1024), logarithmic=True),
    experiment=Computed(figures),
    rule=All((
        Slope("variance", "unscaled", 0.9, 1.1),
        Within("variance", "scaled", 0.8, 1.2),
        Rising("gradient", "unscaled", falls=True),
        Slope("gradient", "scaled", -0.1, 0.1),
    )),
    charts=(
        Chart("variance", Said("variance of the scores", "分数的方差"), logarithmic=True),
        Chart("gradient", Said("length of the gradient", "梯度的长度"), logarithmic=True),
    ),
    minutes=0.1,
)  # fmt: skip
