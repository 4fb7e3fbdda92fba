"""Label smoothing: a model learns to be less sure."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import opened

ASKED = 300  # pairs that are decoded


def exact(run: Path, cell: ClaimCell) -> dict[str, float]:
    """Returns the share of targets that greedy decoding writes without a mistake."""
    from regard.decoding.generation import generate

    corpus, loaded = opened(run)
    edges = np.asarray(corpus.sentences)[: 2 * ASKED + 1].tolist()
    parts = [corpus.read(a, b).tolist() for a, b in pairwise(edges)]
    written = generate(loaded, parts[::2], max_new_tokens=20, temperature=0)
    right = [
        generations[0].ids[: len(target)] == target
        for generations, target in zip(written, parts[1::2], strict=True)
    ]
    return {"accuracy": sum(right) / len(right)}
