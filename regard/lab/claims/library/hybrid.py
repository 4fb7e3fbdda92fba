"""One model that learns from two objectives."""

from __future__ import annotations

import math
from pathlib import Path

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import opened


def both_ways(run: Path, cell: ClaimCell) -> dict[str, float]:
    """Returns, on unseen text, the bits of the next word and of masked words."""
    from regard.lab.claims.engine.small import judged, task

    corpus, loaded = opened(run)
    ways = ("causal", "masked")
    on, hidden = (
        judged(loaded.model, task(way, corpus.directory, "valid", 64, 16, 0), 200) for way in ways
    )
    return {"next": on["bits_per_byte"], "hidden": math.log2(hidden["masked_perplexity"])}
