"""How the time of attention grows with the length of a text."""

from __future__ import annotations

from regard.lab.claims.engine.experiment import ComputedExperiment, seconds


def figures(arm: str, length: float, seed: int) -> dict[str, float]:
    import torch

    from regard.attention.kernels import AttentionArgs
    from regard.attention.pattern import Full

    draw = torch.Generator().manual_seed(seed)
    rows = int(length)
    if arm == "attention":
        q, k, v = (torch.randn(1, 4, rows, 64, generator=draw) for _ in range(3))
        return {"seconds": seconds(lambda: Full().attend(q, k, v, AttentionArgs(scale=0.125)))}
    x, weight = torch.randn(rows, 256, generator=draw), torch.randn(1024, 256, generator=draw)
    return {"seconds": seconds(lambda: (x @ weight.T).relu_() @ weight)}


EXPERIMENT = ComputedExperiment(figures)
