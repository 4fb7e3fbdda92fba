"""Why scores are divided by the square root of the width."""

from __future__ import annotations

from typing import Any

from regard.lab.claims.engine.experiment import ComputedExperiment

ROWS, VALUES, STEPS, RATE = 64, 16, 200, 1e-3


def figures(arm: str, width: float, seed: int) -> dict[str, float]:
    """Measures, for random queries and keys, the variance of the scores, how much of a gradient
    passes the softmax, and how well a lookup can be learned."""
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
    """Returns the squared error of a learned lookup: each row should find its own value by its key.
    A matrix makes the queries from the keys, and it starts at random."""
    import torch

    keys, values = (torch.randn(ROWS, n, generator=draw) for n in (size, VALUES))
    matrix = (torch.randn(size, size, generator=draw) * size**-0.5).requires_grad_()
    optimizer = torch.optim.Adam([matrix], lr=RATE)

    def error() -> Any:
        read = (keys @ matrix @ keys.T * times).softmax(-1) @ values
        return (read - values).square().mean()

    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(error())
        optimizer.step()
    return error().item()


EXPERIMENT = ComputedExperiment(figures)
