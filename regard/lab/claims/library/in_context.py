"""In-context learning: a model learns from the prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import (
    FollowedExperiment,
    Found,
    TrainedExperiment,
    Workspace,
    opened,
)
from regard.lab.claims.engine.texts import SHOTS, ciphers


def accuracies(run: Path, cell: ClaimCell) -> dict[str, float]:
    """Returns the accuracy of the answers in unseen lines, by the number of examples before
    them."""
    import torch

    corpus, loaded = opened(run)
    model = loaded.model.eval()
    starts = np.asarray(corpus.documents)[:-1].tolist()
    lines = np.stack([corpus.read(start, start + 2 * SHOTS) for start in starts])
    tokens = torch.from_numpy(lines).long()
    before = torch.full((len(tokens), 1), corpus.special.end)  # a line starts after an end token
    with torch.inference_mode():
        hidden = model(torch.cat([before, tokens[:, :-1]], 1))
        guesses = model.logits(hidden).argmax(-1)
    right = (guesses == tokens)[:, 1::2].double().mean(0)
    return {f"{shots}": float(right[shots]) for shots in range(SHOTS)}


RUNS = TrainedExperiment(
    ciphers,
    common={
        "model": "gpt", "batch": {"seq_len": 2 * SHOTS + 1, "size": 64},
        "objective": {"name": "causal", "documents": "separate"},
        "optimizer": {"name": "adamw", "lr": 2e-3}, "validation": {"samples": 100},
        "schedule": {"name": "linear", "warmup": 0.1},
    },
    arms={
        "small": {"shape": {"layers": 2, "width": 16, "heads": 2}},
        "large": {"shape": {"layers": 2, "width": 128, "heads": 4}},
    },
    steps=500,
    look=accuracies,
)  # fmt: skip


def shots(arm: str, seed: int, room: Workspace) -> Found:
    figures = RUNS.figures(ClaimCell(arm, 0.0, seed), room)
    right = [figures[f"{n}"] for n in range(SHOTS)]
    return {
        (arm, n): {"accuracy": each, "gain": each - right[0], "last": right[-1]}
        for n, each in enumerate(right)
    }


EXPERIMENT = FollowedExperiment(shots)
