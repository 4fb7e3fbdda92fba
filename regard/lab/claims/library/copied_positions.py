"""Copied positions: a short model becomes a long one."""

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
from regard.lab.claims.engine.texts import refrains

SHORT, LONG, WINDOW = 64, 512, 64  # a window of the old length, as in the paper
RUN = TrainedExperiment(
    refrains,
    common={
        "model": "bert", "size": "tiny", "batch": {"seq_len": SHORT, "size": 32},
        "shape": {"pad_id": 0},  # a Longformer's positions start after this id
        "objective": {"name": "masked"}, "validation": {"samples": 100},
        "optimizer": {"name": "adamw", "lr": 1e-3, "grad_clip": 1.0},
        "schedule": {"name": "linear", "warmup": 0.1},
    },
    arms={"": {}},
    steps=400,
)  # fmt: skip


def lengthened(arm: str, seed: int, room: Workspace) -> Found:
    """Measures the masked words that the short model predicts, and the long ones before any
    training."""
    import torch

    from regard.formats.directory import load
    from regard.lab.claims.engine.small import judged, task
    from regard.models.longformer import lengthen

    data = refrains(room.place)
    with RUN.trained(ClaimCell("", 0.0, seed), room) as (run, _):
        model = load(run).model.eval()
    short = task("masked", data, "valid", SHORT, 32, seed)
    long = task("masked", data, "valid", LONG, 4, seed, global_first=False)
    copied, random = (lengthen(model, LONG, WINDOW).eval() for _ in range(2))
    seed_torch(seed, "positions")
    torch.nn.init.normal_(random.embeddings.positions.weight, std=model.config.init_std)
    measured = {"short": (model, short), "copied": (copied, long), "random": (random, long)}
    return {
        (name, 0.0): {
            "all": math.log2(judged(*pair)["masked_perplexity"]),
            "bits": math.log2(inside["masked_perplexity"]),
            "right": inside["masked_accuracy"],
        }
        for name, pair in measured.items()
        for inside in [judged(pair[0], without_seams(pair[1]))]
    }


def without_seams(plain: Any) -> Any:
    """Returns the same task in which words at the first and last position of a copy do not count:
    there, the short model has only seen the special tokens of a text."""
    from regard.objectives.masked import Masked

    class WithoutSeams(Masked):
        def collate(self, samples: Any) -> Any:
            batch = super().collate(samples)
            places = batch["targets"] % SHORT
            return batch | {"shares": batch["shares"] * ((places > 0) & (places < SHORT - 1))}

    sizes = {"seq_len": plain.seq_len, "batch_size": plain.batch_size, "seed": plain.seed}
    return WithoutSeams(plain.corpus, plain.options, learning=plain.learning, **sizes)


EXPERIMENT = FollowedExperiment(lengthened, together=True)
