"""All model families by name. MODULES is the only registry; all facts about a family are on its
card, at the end of its file.

Importing this package imports no torch; a family's file is imported when its card is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from regard.core.errors import UnknownName

if TYPE_CHECKING:
    from regard.models.base import Config, Model
    from regard.models.family import Family


MODULES = {  # family -> the file that ends with its card
    "transformer": "transformer",
    "gpt": "gpt",
    "bert": "bert",
    "transformer-xl": "transformer_xl",
    "xlnet": "xlnet",
    "t5": "t5",
    "longformer": "longformer",
    "longformer-characters": "longformer_characters",
    "lstm": "lstm",
    "llama": "llama",
    "roberta": "roberta",
}


class Families(Mapping[str, "Family"]):
    """The card of each family by name; a family's file is imported when its card is read."""

    def __getitem__(self, name: str) -> Family:
        card: Family = import_module(f"regard.models.{MODULES[name]}").FAMILY
        return card

    def __contains__(self, name: object) -> bool:
        return name in MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


FAMILIES = Families()


def sizes() -> dict[str, Config]:
    """Returns the configuration of every published size by name."""
    return {name: size for family in FAMILIES.values() for name, size in family.sizes.items()}


def family_of(name: str) -> Family:
    """Returns the family with this name, or the family of the published size with this name."""
    if name in FAMILIES:
        return FAMILIES[name]
    for family in FAMILIES.values():
        if name in family.sizes:
            return family
    raise UnknownName("model", name, [*FAMILIES, *sizes()], "('regard models' lists them all)")


def create(name: str, *, initialize: bool = True, **changes: Any) -> Model:
    """Builds a new model of a published size, or of a family's default size, with changed fields.

    >>> create("gpt2", layers=2, width=128, heads=4)
    """
    family = family_of(name)
    config = family.sizes[name] if name in family.sizes else family.config()
    model: Model = cast(Any, family.model)(config.replace(**changes))
    return model.initialize() if initialize else model


def count_parameters(name: str) -> int:
    """Returns the exact parameter count of a published size, without allocating its weights."""
    import torch

    with torch.device("meta"):
        return create(name, initialize=False).parameter_count()
