"""Why scores are divided by the root of the width."""

from __future__ import annotations

from typing import Any

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Computed
from regard.lab.claims.engine.rules import All, Less, Rising, Slope, Within

ROWS, VALUES, STEPS, RATE = 64, 16, 200, 1e-3


def figures(arm: str, width: float, seed: int) -> dict[str, float]:
    """Random queries and keys: how far scores spread, what of a gradient comes through, and what
    can be learned by it.
    """
    import torch

    draw = torch.Generator().manual_seed(seed)
    size = int(width)
    times = size**-0.5 if arm == "scaled" else 1.0
    q, k = (torch.randn(256, size, generator=draw, dtype=torch.float64) for _ in range(2))
    scores = q @ k.T * times
    scores.requires_grad_()
    weights = scores.softmax(-1)
    coming = torch.randn(weights.shape, generator=draw, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * coming).sum(), scores)
    return {
        "variance": float(scores.detach().var()),
        "gradient": float(gradient.norm(dim=-1).mean()),
        "loss": learned(size, times, draw),
    }


def learned(size: int, times: float, draw: Any) -> float:
    """The squared error of a lookup: each row is to find its own value by its key, through queries
    that a matrix makes of the keys and that begin as random as they are.
    """
    import torch

    keys, values = (torch.randn(ROWS, n, generator=draw) for n in (size, VALUES))
    matrix = (torch.randn(size, size, generator=draw) * size**-0.5).requires_grad_()
    optimizer = torch.optim.Adam([matrix], lr=RATE)

    def error() -> Any:
        found = (keys @ matrix @ keys.T * times).softmax(-1) @ values
        return (found - values).square().mean()

    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(error())
        optimizer.step()
    return error().item()


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
        "and the mean length of the gradient that reaches a row of them. Then 64 rows learn in 200 "
        "steps of Adam to look up their own values by their keys; the error that is left.",
        "256 个随机的查询与键，各分量方差为 1；量其分数的方差，以及传到每行分数的梯度的平均长度。"
        "再让 64 行用 200 步 Adam 学会凭键查到自己的值；量剩下的误差。",
    ),
    arms=("scaled", "unscaled"),
    axis=Axis(Said("width of a head", "头的宽度"), (4, 16, 64, 256, 1024), logarithmic=True),
    experiment=Computed(figures),
    rule=All((
        Slope("variance", "unscaled", 0.9, 1.1),
        Within("variance", "scaled", 0.8, 1.2),
        Rising("gradient", "unscaled", falls=True),
        Slope("gradient", "scaled", -0.1, 0.1),
        Less("loss", "scaled", "unscaled", at=1024, margin=0.5),
    )),
    charts=(
        Chart("variance", Said("variance of the scores", "分数的方差"), logarithmic=True),
        Chart("gradient", Said("length of the gradient", "梯度的长度"), logarithmic=True),
        Chart("loss", Said("error after learning", "学习之后的误差")),
    ),
    minutes=0.5,
)  # fmt: skip
