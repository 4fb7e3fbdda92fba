"""The tables of a comparison: a row for each model, over its seeds."""

from __future__ import annotations

import statistics
from typing import Any

from regard.lab.compare.comparison import Plan
from regard.lab.compare.verdict import (
    BITS,
    HIDDEN,
    PAIRS,
    PROBE,
    PSEUDO,
    RANKED,
    Measure,
    Said,
    leaders,
    scores,
)

PREFIX = Measure(
    "prefix_bits_per_byte", Said("bits per byte, given a prefix", "给定前文的每字节比特数"),
    falling=True,
)  # fmt: skip
MEASURES = (BITS, PREFIX, PSEUDO, HIDDEN, PAIRS, PROBE)
SPENT = ("parameters", "tokens", "flops", "seconds", "tokens_per_second")


def table(found: dict[str, Any], measure: Measure) -> list[dict[str, Any]]:
    """A row for each model that has the measure, the best first."""
    ranked = scores(found, measure)
    best = leaders(ranked) if measure in RANKED else []
    return [
        {
            "model": score.model,
            "mean": score.mean,
            "values": list(score.values),
            "deviation": score.deviation,
            "interval": score.interval,
            "best": score in best,
        }
        for score in ranked
    ]


def spent(found: dict[str, Any], plan: Plan) -> list[dict[str, Any]]:
    """What each model cost, in the order of the plan: means over seeds, and the most memory."""
    rows = []
    for entry in plan.entries:
        cells = cells_of(found, entry.name)
        if cells:
            means = {key: statistics.fmean(cell[key] for cell in cells) for key in SPENT}
            memory = max(cell["peak_memory"] for cell in cells)
            rows.append({"model": entry.name, **means, "peak_memory": memory})
    return rows


def cells_of(found: dict[str, Any], model: str) -> list[dict[str, Any]]:
    """The cells of a model, one for each seed that is there."""
    return [cell for name, cell in found["cells"].items() if name.rpartition("-")[0] == model]
