"""What attention knows about word order without positions."""

from __future__ import annotations

from typing import Any

from regard.lab.claims.engine.experiment import ComputedExperiment
from regard.training.recipe import Table

SHAPE: Table = {
    "layers": 2, "width": 64, "heads": 4, "ffn_size": 128, "vocab_size": 50, "context": 16,
}  # fmt: skip


def figures(arm: str, at: float, seed: int) -> dict[str, float]:
    """Measures how much the mean of all rows changes when words are permuted."""
    import torch

    from regard.models import create

    torch.manual_seed(seed)
    model: Any = create("bert", **SHAPE).double().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    if arm == "without":
        model.embeddings.positions.weight.data.zero_()
    tokens = torch.randperm(50)[:8][None]
    order = torch.randperm(8)
    with torch.no_grad():
        one, other = model(tokens), model(tokens[:, order])
    scale = one.norm()
    return {
        "text": float((one.mean(1) - other.mean(1)).norm() / one.mean(1).norm()),
        "rows": float((one[:, order] - other).norm() / scale),
    }


EXPERIMENT = ComputedExperiment(figures)
