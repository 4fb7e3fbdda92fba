"""Layer norm and batch norm: what a norm averages over."""

from __future__ import annotations

import math
from typing import Any

from regard.core.seeding import seed_torch
from regard.lab.claims.engine.experiment import FollowedExperiment, Found, Workspace
from regard.lab.claims.engine.texts import paragraphs

LENGTH, STEPS, SIZES = 64, 300, (4, 16)


def sizes(arm: str, seed: int, room: Workspace) -> Found:
    from regard.lab.claims.engine.small import SHAPE, judged, learn, task, with_batch_norms
    from regard.models import create

    data = paragraphs(room.place)
    bits: dict[tuple[str, float], dict[str, float]] = {}
    for size in SIZES:
        options: dict[str, Any] = {"documents": "separate"}
        learning = task("masked", data, "train", LENGTH, size, seed, **options)
        seed_torch(seed, "weights")
        words = learning.corpus.vocab_size
        model = create("bert", vocab_size=words, context=LENGTH, **SHAPE)
        if arm == "batch norm":
            with_batch_norms(model)
        learn(model, learning, room.steps(STEPS), 1e-3, seed)
        valid = task("masked", data, "valid", LENGTH, 32, seed, **options)
        figures = judged(model, valid, 800)
        bits[arm, size] = {"bits": math.log2(figures["masked_perplexity"])}
    return bits


EXPERIMENT = FollowedExperiment(sizes)
