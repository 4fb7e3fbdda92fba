"""Gradient accumulation: small batches that make a large one."""

from __future__ import annotations

from typing import Any

from regard.lab.claims.engine.experiment import ComputedExperiment
from regard.training.recipe import Table

SHAPE: Table = {
    "layers": 2, "width": 32, "heads": 2, "vocab_size": 50, "context": 16, "dropout": 0.0,
    "dropout_attention": 0.0, "dropout_embedding": 0.0,
}  # fmt: skip


def figures(arm: str, at: float, seed: int) -> dict[str, float]:
    """Compares the gradient of four micro-batches of unequal size with that of all texts at
    once."""
    import torch
    from torch.nn import functional as F

    from regard.models import create

    torch.manual_seed(seed)
    model: Any = create("gpt", **SHAPE).double()
    lengths = torch.randint(3, 16, (12,))
    tokens = torch.randint(0, 50, (12, 17))
    counted = torch.arange(16)[None] < lengths[:, None]

    def gradient(parts: list[slice], each: bool) -> Any:
        model.zero_grad()
        for part in parts:
            logits = model.logits(model(tokens[part, :-1]))
            nats = F.cross_entropy(logits.mT, tokens[part, 1:], reduction="none")
            scored = counted[part]
            among = scored.sum() * len(parts) if each else counted.sum()
            ((nats * scored).sum() / among).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    whole = gradient([slice(0, 12)], each=False)
    parts = [slice(i, i + 3) for i in range(0, 12, 3)]
    summed = gradient(parts, each=arm == "mean of means")
    return {"difference": float((summed - whole).abs().max() / whole.abs().max())}


EXPERIMENT = ComputedExperiment(figures)
