"""Shapes for a laptop, for every family, and what a new model takes from its data.

The published sizes want many machines; these keep a family's proportions (hidden = 4 · width, heads
of 64 numbers or fewer, as many layers in all for an encoder with a decoder as for one stack).
"""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError, UnknownName
from regard.data.corpus import Special

SIZES = {  # layers, width, heads
    "tiny": (2, 128, 2),
    "small": (4, 256, 4),
    "medium": (6, 512, 8),
}


def shape(family: str, size: str, length: int) -> dict[str, Any]:
    """The fields of a family's configuration for a size."""
    if size not in SIZES:
        raise UnknownName("size", size, SIZES, "(leave it out for the published one)")
    layers, width, heads = SIZES[size]
    common = {"layers": layers, "width": width, "heads": heads, "hidden": 4 * width}
    head = {"head_size": width // heads}
    match family:
        case "lstm":
            return {"layers": 2, "width": 2 * width, "dropout": 0.2}
        case "t5" | "transformer":
            return common | {"layers": max(1, layers // 2)} | (head if family == "t5" else {})
        case "transformer-xl":
            memory = {"memory": length, "same_length": False, "clamp": 0}
            return common | head | memory | {"cutoffs": (), "ratio": 1}
        case "xlnet":
            return common | head | {"memory": length * 3 // 4, "reuse": length // 2}
        case "longformer":
            return common | {"window": max(8, length // 4 // 2 * 2)}
        case "longformer-characters":
            return common | {"windows": (max(8, length // 4),) * layers}
    return common


def fitted(config: Any, special: Special, vocabulary: int, length: int) -> dict[str, Any]:
    """What a new model takes from its data: vocabulary, special ids, positions."""
    fields = config.__dataclass_fields__
    pad = special.end if special.pad is None else special.pad
    values: dict[str, Any] = {"vocabulary": vocabulary, "context": length}
    values |= {"padding": pad, "start": pad, "end": special.end}
    found = {key: value for key, value in values.items() if key in fields}
    if "cutoffs" in fields:
        found["cutoffs"] = tuple(c for c in config.cutoffs if c < vocabulary)
    return found


def check_vocabulary(model: Any, vocabulary: int) -> None:
    """Refuses a model that knows another number of tokens than its data."""
    known = model.config.vocabulary
    if known < vocabulary:
        raise ConfigError(
            f"the data has {vocabulary:,} different tokens, the model knows {known:,}; prepare the "
            "text with the model's own tokenizer ('regard prepare … --tokenizer MODEL')"
        )
