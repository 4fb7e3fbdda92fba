"""The same weighted sum in 1964."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Computed
from regard.lab.claims.engine.rules import All, Less, Within


def figures(arm: str, points: float, seed: int) -> dict[str, float]:
    """A noisy sine: what both make of it, how they differ, and how far they are from the truth."""
    import torch

    from regard.lab.draw.kernel_regression import gaussian, regress

    draw = torch.Generator().manual_seed(seed)
    k = torch.rand(int(points), 1, generator=draw, dtype=torch.float64) * 6
    v = k.sin() + 0.1 * torch.randn(k.shape, generator=draw, dtype=torch.float64)
    q = torch.linspace(0.5, 5.5, 101, dtype=torch.float64)[:, None]
    mean = v.mean().expand_as(q)
    found = {"mean": mean, "kernel": regress(q, k, v, 0.3), "attention": gaussian(q, k, v, 0.3)}
    gap = (found["kernel"] - found["attention"]).abs().max()
    error = (found[arm] - q.sin()).square().mean()
    return {"difference": float(gap), "error": float(error)}


CLAIM = Claim(
    name="attention-is-kernel-regression",
    statement=Said(
        "Attention whose scores are a Gaussian kernel's logarithm is Nadaraya–Watson regression.",
        "若以高斯核的对数作分数，注意力就是 Nadaraya–Watson 核回归。",
    ),
    source="Nadaraya 1964, Watson 1964; Vaswani et al. 2017, 3.2.1",
    setting=Said(
        "Points of a noisy sine are keys and values. The same curve is asked of the regression and "
        "of the attention core (scores by dot products with one more component).",
        "带噪声的正弦点作为键和值；同一条曲线分别由核回归和注意力核心（多一个分量的点积）给出。",
    ),
    arms=("attention", "kernel", "mean"),
    axis=Axis(Said("points", "点数"), (20, 80, 320), logarithmic=True),
    experiment=Computed(figures),
    rule=All((
        Within("difference", "attention", most=1e-9),
        Less("error", "attention", "mean", at=320, margin=0.8),
    )),
    charts=(Chart("error", Said("squared error", "平方误差"), logarithmic=True),),
    minutes=0.1,
)  # fmt: skip
