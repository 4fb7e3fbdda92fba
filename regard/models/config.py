"""A model's configuration: a few numbers named by words, checked for kind and contradiction."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self, get_type_hints

from regard.attention.block import ACTIVATIONS, NORM_PLACES
from regard.core.errors import ConfigError, UnknownName
from regard.core.tables import fits, from_table


@dataclass(frozen=True)
class Config:
    """A model's few numbers. Subclasses are frozen dataclasses whose fields are words."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuses what is of another kind, or contradicts itself."""
        kinds = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not fits(value, kinds[field.name]):
                raise ConfigError(f"{field.name} is {value!r}; it must be {field.type}")
            if field.name in CHOICES and value not in CHOICES[field.name]:
                raise UnknownName(field.name, value, CHOICES[field.name])
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if field.name.startswith("dropout") and not 0.0 <= value < 1.0:
                raise ConfigError(f"{field.name} is {value}; a dropout rate lies in [0, 1)")
            if field.name in POSITIVE and value <= 0:
                raise ConfigError(f"{field.name} is {value}; it must be at least 1")
            if field.name in ("layers", "decoder_layers") and value > MOST_LAYERS:
                raise ConfigError(
                    f"{field.name} is {value:,}; at most {MOST_LAYERS:,} are believable"
                )
        width, heads = getattr(self, "width", None), getattr(self, "heads", None)
        if width and heads and getattr(self, "head_size", None) is None and width % heads:
            raise ConfigError(
                f"width {width} is not divisible by heads {heads}; choose heads that divide it"
                + (", or give head_size" if hasattr(self, "head_size") else "")
            )

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """From a dictionary, naming the field that is unknown."""
        return from_table(cls, values, what="field", advice=f"({cls.__name__})")

    def replace(self, **changes: Any) -> Self:
        return self.of(dataclasses.asdict(self) | changes)


POSITIVE = {
    "vocabulary", "context", "width", "layers", "heads", "kv_heads", "hidden", "head_size",
    "window", "band", "embedding", "ratio", "buckets", "segments", "decoder_layers",
    "decoder_heads", "decoder_hidden",
}  # fmt: skip
MOST_LAYERS = 10_000  # of anything believable
CHOICES = {
    "activation": set(ACTIVATIONS),
    "norm": set(NORM_PLACES),
    "positions": {"halves", "interleaved", "tensor2tensor"},
}
