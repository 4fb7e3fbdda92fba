"""How much time a memory saves when a text is read word by word."""

from __future__ import annotations

from typing import Any

from regard.lab.claims.engine.experiment import ComputedExperiment, seconds

SHAPE: dict[str, Any] = {"layers": 4, "width": 128, "heads": 4, "ffn_size": 512, "vocab_size": 200}
XL: dict[str, Any] = {"head_size": 32, "cutoffs": (), "ratio": 1, "clamp_len": 0}
SEGMENT = 128  # tokens of a segment that is read with a memory


def figures(arm: str, length: float, seed: int) -> dict[str, float]:
    """Measures the seconds for one word, with `length` words of context before it."""
    import torch

    from regard.models import create

    torch.manual_seed(seed)
    context = int(length)
    model: Any
    if arm == "sliding window":  # the whole context is read again for every word
        model = create("gpt", **SHAPE, context=context).eval()
        tokens = torch.randint(0, 200, (1, context))
        with torch.inference_mode():
            return {"seconds": seconds(lambda: model(tokens), least=0.5)}
    model = create("transformer-xl", **SHAPE, **XL, mem_len=context).eval()
    with torch.inference_mode():
        state = model.start(1, 0)
        tokens = torch.randint(0, 200, (1, SEGMENT))
        for _ in range(-(-context // SEGMENT)):  # fill the memory
            model(tokens, state=state)
        took = seconds(lambda: model(tokens, state=state), least=0.5)
        return {"seconds": took / SEGMENT}


EXPERIMENT = ComputedExperiment(figures)
