"""Pre-norm, post-norm, and the need for a warm-up."""

from __future__ import annotations

import math
from typing import Any

from regard.core.seeding import seed_torch
from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import (
    FollowedExperiment,
    Found,
    TrainedExperiment,
    Workspace,
)
from regard.lab.claims.engine.texts import numerals

LAYERS, SAMPLES, LENGTH = 6, 64, 32
SHAPE: dict[str, Any] = {"layers": LAYERS, "width": 64, "heads": 2, "ffn_size": 256}
RUNS = TrainedExperiment(
    numerals,
    common={
        "model": "transformer", "shape": SHAPE, "batch": {"seq_len": LENGTH, "size": SAMPLES},
        "objective": {"name": "pairs", "smoothing": 0.0}, "validation": {"samples": 300},
        "optimizer": {"name": "adam", "lr": 1e-3, "betas": [0.9, 0.98], "grad_clip": 0.0,
                      "weight_decay": 0.0},
        "schedule": {"name": "linear"},
    },
    arms={
        f"{norm}, {'warm-up' if warmup else 'none'}": {
            "shape": {"norm": norm}, "schedule": {"warmup": warmup}
        }
        for norm in ("post", "pre") for warmup in (0.2, 0.0)
    },
    steps=600,
)  # fmt: skip


def layers(arm: str, seed: int, room: Workspace) -> Found:
    """Returns the final perplexity, and for each decoder layer the gradient before the
    first step."""
    from regard.core.errors import Diverged
    from regard.lab.claims.engine.small import task

    learning = task("pairs", numerals(room.place), "train", LENGTH, SAMPLES, seed, smoothing=0.0)
    norms = gradients(learning, arm.split(",")[0], seed)
    try:
        loss = RUNS.figures(ClaimCell(arm, 0.0, seed), room)["perplexity"]
    except Diverged:
        loss = math.nan
    broken = 1.0 if math.isnan(loss) else 0.0
    if broken:  # it learned nothing, so it is as good as a random guess among all tokens
        loss = float(learning.corpus.vocab_size)
    return {
        (arm, n): {"perplexity": loss, "gradient": norm, "broken": broken}
        for n, norm in enumerate(norms, 1)
    }


def gradients(learning: Any, norm: str, seed: int) -> list[float]:
    """Returns the gradient norm of the second matrix of each feed-forward network, as in the
    paper's figure."""
    import torch

    from regard.models import create

    seed_torch(seed, "weights")
    words = learning.corpus.vocab_size
    model: Any = create("transformer", norm=norm, vocab_size=words, **SHAPE).eval()
    batch = learning.collate([learning.get(i) for i in range(learning.batch_size)])
    loss = learning.loss(model, batch)
    (loss.sums["pairs"] / loss.counts["pairs"]).backward()
    parts = [block.feed_forward.layer.narrow.weight.grad for block in model.decoder_blocks]
    return [float(torch.linalg.norm(grad)) for grad in parts]


EXPERIMENT = FollowedExperiment(layers)
