"""How much time a window saves."""

from __future__ import annotations

from typing import Any

from regard.lab.claims.engine.experiment import ComputedExperiment, seconds
from regard.training.recipe import Table

SHAPE: Table = {
    "layers": 2, "width": 128, "heads": 4, "ffn_size": 256, "vocab_size": 100, "context": 16384,
}  # fmt: skip
WINDOWS = {"window 128": 128, "window 512": 512, "window 2048": 2048}


def figures(arm: str, length: float, seed: int) -> dict[str, float]:
    import torch

    from regard.models import create

    torch.manual_seed(seed)
    more: dict[str, Any]
    name, more = ("bert", {}) if arm == "full" else ("longformer", {"window": WINDOWS[arm]})
    model: Any = create(name, **SHAPE, **more).eval()
    tokens = torch.randint(0, 100, (1, int(length)))
    with torch.inference_mode():
        return {
            "seconds": seconds(lambda: model(tokens), least=1.0, rounds=2),
            "attention": attention_alone(arm, int(length)),
        }


def attention_alone(arm: str, rows: int) -> float:
    """Measures the seconds of one layer's attention, without the projections and the feed-forward
    network."""
    import torch

    from regard.attention.kernels import AttentionArgs
    from regard.attention.pattern import Full, Pattern
    from regard.attention.window import Window

    size = SHAPE["width"] // SHAPE["heads"]
    q, k, v = (torch.randn(1, SHAPE["heads"], rows, size) for _ in range(3))
    pattern: Pattern = Full()
    if arm != "full":
        side = WINDOWS[arm] // 2
        pattern = Window(side, side, rows, q.dtype, q.device)
    how = AttentionArgs(scale=size**-0.5)
    return seconds(lambda: pattern.attend(q, k, v, how), least=1.0, rounds=2)


EXPERIMENT = ComputedExperiment(figures)
