"""A quantized model: matrices of int8 or bfloat16, a quarter or half as large, or of int4.

Sums, norms and softmaxes are computed as before. Heads, positions, recurrent layers (LSTM) and the
tables of an adaptive softmax (Transformer-XL) are not quantized. A token embedding that is tied to
the output stays one table. There is no gradient with respect to int8 weights, so a quantized model
cannot be trained; it is made from a trained model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from torch import nn

from regard.attention.attention import Projection
from regard.attention.linear import Linear
from regard.core.errors import ConfigError
from regard.models.extensions.base import Extension
from regard.models.extensions.small import (
    KINDS,
    SmallEmbedding,
    SmallLinear,
    SmallMatrix,
    SmallOutput,
    SmallProjection,
)
from regard.models.output import Output

HEADS = "heads."  # never quantized: small, used once per text, and nearest to the answer
WORDS = "tokens"  # the name of the token embedding in every family
TABLES = {"int4": "weight"}  # the kind of the embedding and output, where it is another one


@dataclass(frozen=True)
class Options:
    kind: str = "weight"  # inputs have 16 bits; "dynamic": 8 bits; "bf16": no int8 at all;
    # "int4": the embedding and output are int8, and the other matrices have 4 bits, by groups
    exclude: list[str] = field(default_factory=list)  # layers that stay, such as "blocks.0.*"
    output: str = "int8"  # quantize the token embedding and output, too; "float": do not

    def __post_init__(self) -> None:
        if not isinstance(self.exclude, list | tuple) or not all(
            isinstance(pattern, str) for pattern in self.exclude
        ):
            raise ConfigError(
                f"extensions.int8.exclude is {self.exclude!r}; it must be a list of layer "
                "names, such as ['blocks.0.*']"
            )


class Int8(Extension):
    Options: ClassVar[type] = Options
    name = "int8"
    learns = False
    choices: ClassVar = {"kind": KINDS, "output": ("int8", "float")}

    def check(self, model: Any) -> None:
        every = fitting(model)
        for pattern in self.options.exclude:
            if not any(fnmatchcase(name, pattern) for name in every):
                raise ConfigError(
                    f"exclude: no layer is named {pattern!r}; known are "
                    f"{', '.join(shortlist(every))}"
                )
        if not self.chosen(model):
            raise ConfigError(
                f"no layer of this {type(model).__name__} would be quantized: exclude "
                f"{self.options.exclude} leaves none of its {len(every)} layers"
            )
        for name, part in self.chosen(model).items():
            if model.device.type != "meta" and not bool(part.weight.isfinite().all()):
                raise ConfigError(
                    f"{name} has weights that are NaN or infinite, which cannot be quantized; the "
                    "model is damaged, so train or copy it again"
                )

    def chosen(self, model: Any) -> dict[str, Any]:
        """Returns the layers to quantize; a table with two uses is quantized for both or none."""
        every = fitting(model)
        stay = {
            name
            for name, part in every.items()
            if any(fnmatchcase(name, pattern) for pattern in self.options.exclude)
            or (self.options.output == "float" and isinstance(part, Output | nn.Embedding))
        }
        tables = {id(every[name].weight) for name in stay}
        return {
            name: part
            for name, part in every.items()
            if name not in stay and id(part.weight) not in tables
        }

    def apply(self, model: Any) -> None:
        replacements: dict[int, nn.Module] = {}
        tables: dict[int, SmallMatrix] = {}
        for name, part in self.chosen(model).items():
            if id(part) not in replacements:  # one module may be used in two places
                replacements[id(part)] = self.small(part, tables)
            put(model, name, replacements[id(part)])

    def small(self, part: Any, tables: dict[int, SmallMatrix]) -> nn.Module:
        kind = self.options.kind
        if isinstance(part, Projection):
            return SmallProjection(part, kind)
        if isinstance(part, nn.Linear):
            return SmallLinear(part, kind)
        if id(part.weight) not in tables:
            tables[id(part.weight)] = SmallMatrix(part.weight, TABLES.get(kind, kind))
        table = tables[id(part.weight)]
        return SmallOutput(part, table) if isinstance(part, Output) else SmallEmbedding(table)


def fitting(model: Any) -> dict[str, Any]:
    """Returns the layers that can be quantized, by name: no other part uses their matrices."""
    layers: dict[str, Any] = {}
    others: set[int] = set()
    for name, part in model.named_modules(remove_duplicate=False):
        linear = type(part) in (nn.Linear, Linear) or isinstance(part, Projection)
        words = type(part) is nn.Embedding and name.rpartition(".")[2] == WORDS
        if (linear or words or type(part) is Output) and not name.startswith(HEADS):
            layers[name] = part
        else:
            others |= {id(value) for value in part.parameters(recurse=False)}
    return {name: part for name, part in layers.items() if id(part.weight) not in others}


def put(model: Any, name: str, part: nn.Module) -> None:
    place, _, last = name.rpartition(".")
    setattr(model.get_submodule(place), last, part)


def shortlist(names: Any, most: int = 8) -> list[str]:
    """Returns the first names, for a message."""
    listed = list(names)
    return listed[:most] + (["…"] if len(listed) > most else [])
