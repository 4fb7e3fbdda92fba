"""The effective context: how far back a model really uses the text."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import (
    FollowedExperiment,
    Found,
    TrainedExperiment,
    Workspace,
    opened,
)
from regard.lab.claims.engine.texts import python_docs

CONTEXTS, SCORED, STRIDE, LENGTH = (8, 16, 32, 64, 128, 256), 8, 128, 64
GAIN = 0.01  # a longer context counts if it lowers the loss by this share


def bits(run: Path, cell: ClaimCell) -> dict[str, float]:
    """Returns the bits of the same words for each context: the number of words before the first of
    them."""
    import torch

    from regard.objectives.reading import read_on

    corpus, loaded = opened(run)
    model = loaded.model.eval()
    size = max(CONTEXTS) + SCORED
    starts = range(0, len(corpus) - size, STRIDE)
    text = torch.stack([torch.from_numpy(corpus.read(a, a + size)).long() for a in starts])
    room = getattr(model.config, "context", size)
    losses = {}
    for context in CONTEXTS:
        seen = text[:, -min(context + SCORED, room + 1) :]
        nats = 0.0
        with torch.inference_mode():
            for part in seen.split(64):
                hidden = read_on(model, part[:, :-1])[:, -SCORED:]
                nats += float(
                    model.output.surprisal(hidden.flatten(0, 1), part[:, -SCORED:].flatten())
                )
        losses[f"{context}"] = nats / math.log(2) / (len(text) * SCORED)
    return losses


RUNS = TrainedExperiment(
    python_docs,
    common={
        "size": "tiny", "batch": {"seq_len": LENGTH, "size": 16}, "validation": {"samples": 100},
        "optimizer": {"name": "adamw", "lr": 1e-3, "grad_clip": 0.25},
        "schedule": {"name": "cosine", "warmup": 0.1},
    },
    arms={
        "transformer-xl": {"model": "transformer-xl", "objective": {"name": "recurrent"},
                           "shape": {"mem_len": 128}},
        "lstm": {"model": "lstm", "objective": {"name": "recurrent"}},
        "gpt": {"model": "gpt", "objective": {"name": "causal"}},
    },
    steps=500,
    look=bits,
)  # fmt: skip


def contexts(arm: str, seed: int, room: Workspace) -> Found:
    figures = RUNS.figures(ClaimCell(arm, 0.0, seed), room)
    losses = [figures[f"{context}"] for context in CONTEXTS]
    effective = CONTEXTS[0]
    for (before, after), context in zip(pairwise(losses), CONTEXTS[1:], strict=True):
        if after > before * (1 - GAIN):
            break
        effective = context
    learned = {key: figures[key] for key in ("bits_per_byte", "unigram_bits_per_byte")}
    return {
        (arm, context): {"bits": each, "effective": float(effective), **learned}
        for context, each in zip(CONTEXTS, losses, strict=True)
    }


EXPERIMENT = FollowedExperiment(contexts)
