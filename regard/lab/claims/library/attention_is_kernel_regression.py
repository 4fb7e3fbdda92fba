"""Attention and the kernel regression of 1964 compute the same weighted sum."""

from __future__ import annotations

from regard.lab.claims.engine.experiment import ComputedExperiment


def figures(arm: str, points: float, seed: int) -> dict[str, float]:
    """Fits a noisy sine with both, and returns how far they differ from each other and from the
    truth."""
    import torch

    from regard.lab.draw.kernel_regression import gaussian, regress

    draw = torch.Generator().manual_seed(seed)
    k = torch.rand(int(points), 1, generator=draw, dtype=torch.float64) * 6
    v = k.sin() + 0.1 * torch.randn(k.shape, generator=draw, dtype=torch.float64)
    q = torch.linspace(0.5, 5.5, 101, dtype=torch.float64)[:, None]
    mean = v.mean().expand_as(q)
    curves = {"mean": mean, "kernel": regress(q, k, v, 0.3), "attention": gaussian(q, k, v, 0.3)}
    gap = (curves["kernel"] - curves["attention"]).abs().max()
    error = (curves[arm] - q.sin()).square().mean()
    return {"difference": float(gap), "error": float(error)}


EXPERIMENT = ComputedExperiment(figures)
