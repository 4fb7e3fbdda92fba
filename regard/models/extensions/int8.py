"""A model in small numbers: matrices of bytes, or of bfloat16, a quarter or half as large.

What is added, normalized or put through a softmax stays as it was, and so do heads, positions,
recurrent layers (LSTM) and the tables of an adaptive softmax (Transformer-XL). A table of words
that is also the output's stays one table. There is no gradient with respect to bytes, so that such
a model does not learn; it is made from one that has learned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from torch import nn

from regard.attention.attention import Projection
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
from regard.models.extensions.step import SmallBlock, fits
from regard.models.output import Output

HEADS = "heads."  # small, read once a text, and closest to the answer: never touched
WORDS = "tokens"  # what embeddings of words are called in every family


@dataclass(frozen=True)
class Options:
    kind: str = "weight"  # what is multiplied has 16 bits; "dynamic": 8 bits; or "bf16"
    exclude: list[str] = field(default_factory=list)  # names that stay, such as "blocks.0.*"
    output: str = "int8"  # the table of words too; "float": it stays

    def __post_init__(self) -> None:
        if not isinstance(self.exclude, list | tuple) or not all(
            isinstance(pattern, str) for pattern in self.exclude
        ):
            raise ConfigError(
                f"extensions.int8.exclude is {self.exclude!r}; it must be a list of names of "
                "layers, such as ['blocks.0.*']"
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
                    f"exclude: no layer is called {pattern!r}; there are {', '.join(few(every))}"
                )
        if not self.chosen(model):
            raise ConfigError(
                f"nothing of this {type(model).__name__} would become small: exclude "
                f"{self.options.exclude} leaves none of its {len(every)} layers"
            )
        for name, part in self.chosen(model).items():
            if model.device.type != "meta" and not bool(part.weight.isfinite().all()):
                raise ConfigError(
                    f"{name} has weights that are no numbers (NaN) or infinite, so nothing can be "
                    "rounded to them; the model that this is made from is damaged"
                )

    def chosen(self, model: Any) -> dict[str, Any]:
        """The layers that become small. A table with two uses does so for both or for none."""
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
            if id(part) not in replacements:  # one module may stand in two places
                replacements[id(part)] = self.small(part, tables)
            put(model, name, replacements[id(part)])
        for name, block in list(model.named_modules()):
            if fits(block):
                put(model, name, SmallBlock(block))

    def small(self, part: Any, tables: dict[int, SmallMatrix]) -> nn.Module:
        kind = self.options.kind
        if isinstance(part, Projection):
            return SmallProjection(part, kind)
        if isinstance(part, nn.Linear):
            return SmallLinear(part, kind)
        if id(part.weight) not in tables:
            tables[id(part.weight)] = SmallMatrix(part.weight, kind)
        table = tables[id(part.weight)]
        return SmallOutput(part, table) if isinstance(part, Output) else SmallEmbedding(table)


def fitting(model: Any) -> dict[str, Any]:
    """The layers that can become small, by name; none whose matrix another part uses too."""
    layers: dict[str, Any] = {}
    others: set[int] = set()
    for name, part in model.named_modules(remove_duplicate=False):
        linear = type(part) is nn.Linear or isinstance(part, Projection)
        words = type(part) is nn.Embedding and name.rpartition(".")[2] == WORDS
        if (linear or words or type(part) is Output) and not name.startswith(HEADS):
            layers[name] = part
        else:
            others |= {id(value) for value in part.parameters(recurse=False)}
    return {name: part for name, part in layers.items() if id(part.weight) not in others}


def put(model: Any, name: str, part: nn.Module) -> None:
    place, _, last = name.rpartition(".")
    setattr(model.get_submodule(place), last, part)


def few(names: Any, most: int = 8) -> list[str]:
    """Names for a message: some of the first."""
    listed = list(names)
    return listed[:most] + (["…"] if len(listed) > most else [])
