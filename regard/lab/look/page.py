"""The page of a recording: one file with its style, program and data; nothing is fetched."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.text import clean
from regard.report import pages

if TYPE_CHECKING:
    from regard.lab.look.recorded import Layer, LookSide, Recorded


def page(recorded: Recorded) -> str:
    names = " / ".join(dict.fromkeys(side.model for side in recorded.sides))
    sides = [side_data(side) for side in recorded.sides]
    return pages.page(
        "look", f"{names} · regard look", locales=["look"], spoken=pages.words("look"),
        script="look", styles=["look"], data={"sides": sides}, count=len(sides),
    )  # fmt: skip


def side_data(side: LookSide) -> dict[str, Any]:
    return {
        "model": clean(side.model),
        "family": side.family,
        "text": clean(side.text.replace("\r", "").replace("\n", "⏎ ")),
        "tokens": {name: [t.table() for t in tokens] for name, tokens in side.tokens.items()},
        "notes": side.notes,
        "facts": [clean(fact) for fact in side.facts],
        "deeper": side.deeper.facts(),
        "precision": {"kind": side.precision.kind, "count": side.precision.count},
        "stacks": [
            {
                "kind": stack.kind,
                "rows": stack.rows,
                "columns": stack.columns,
                "layers": [layer_data(layer) for layer in stack.layers],
            }
            for stack in side.stacks
        ],
    }


def layer_data(layer: Layer) -> dict[str, Any]:
    """Heads first, then their mean and the rollout; small pictures in the same order."""
    small = b"".join(np.ascontiguousarray(table).tobytes() for table, _ in layer.pictures)
    return {
        "heads": [head.table() for head in layer.heads],
        "mean": layer.mean.table(),
        "rolled": layer.rolled.table(),
        "size": list(layer.pictures[0][1]),
        "small": base64.b64encode(small).decode(),
    }
