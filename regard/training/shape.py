"""The shape of a run's model: every field of its configuration, dropout included.

It is resolved once, by pure functions, and stands whole under [shape] of the resolved recipe. The
model is built from that alone, so that a run goes on as it began whatever a card says by then.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from regard.core.errors import ConfigError
from regard.core.tables import Table, fields_of, fits
from regard.data.corpus import Special
from regard.models.family import Family
from regard.training.recipe import R, Recipe, replaced


@dataclass(frozen=True)
class ShapeFacts:
    """What the data and the objective say of the model that will learn."""

    special: Special
    vocab_size: int
    objective: str
    options: Any  # of the objective
    pretrained: Any = None  # the configuration of the model's directory; None: the model is new
    resumed: bool = False  # the recipe is that of a run to go on with


def with_shape(config: R, card: Family, facts: ShapeFacts) -> R:
    """The recipe with the whole shape. A shape that is whole already stays as it is."""
    if is_whole(card, config.shape) and (facts.resumed or facts.pretrained is None):
        return config
    if facts.pretrained is None:
        return replaced(config, shape=shape_table(new_config(config, card, facts)))
    shape = shape_table(facts.pretrained)
    if config.size or any(shape.get(name) != value for name, value in config.shape.items()):
        raise ConfigError(f"{config.model} has its shape already; remove size and shape")
    return replaced(config, shape=shape)


def config_of(card: Family, shape: Table) -> Any:
    """The configuration of a whole shape. TOML has no None: a field that is left out is None."""
    return card.config.of(dict.fromkeys(optional_fields(card)) | shape)


def start_config(recipe: Recipe, card: Family, length: int, **changes: Any) -> Any:
    """The configuration of a new model, before it takes anything from its data."""
    if is_whole(card, recipe.shape):
        return config_of(card, recipe.shape)
    start = card.sizes.get(recipe.model) or card.config()
    laptop = card.shape(recipe.size, length) if recipe.size else {}
    usual = start.without_dropout() if recipe.by_budget else {}
    return start.replace(**(usual | laptop | changes | recipe.shape))


def new_config(recipe: Any, card: Family, facts: ShapeFacts) -> Any:
    """The configuration of a new model, with what it takes from its objective and its data:
    vocabulary, special ids, positions.
    """
    length, special, vocab_size = recipe.batch.seq_len, facts.special, facts.vocab_size
    changes = card.objective_fields(facts.objective, facts.options, length)
    start = start_config(recipe, card, length, **changes)
    pad = special.end if special.pad is None else special.pad
    values: dict[str, Any] = {"vocab_size": vocab_size, "context": length}
    values |= {"pad_id": pad, "start_id": pad, "eos_id": special.end}
    if hasattr(start, "cutoffs"):
        values["cutoffs"] = tuple(c for c in start.cutoffs if c < vocab_size)
    known = config_fields(card).keys() - recipe.shape.keys()
    return start.replace(**{name: value for name, value in values.items() if name in known})


def shape_table(config: Any) -> Table:
    """The fields as a recipe holds them: tuples are lists, and what is None is left out."""
    values = dataclasses.asdict(config).items()
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values}
    return {name: value for name, value in plain.items() if value is not None}


def is_whole(card: Family, shape: Table) -> bool:
    """Does a shape name every field that cannot be None?"""
    return config_fields(card).keys() - optional_fields(card) <= shape.keys()


def optional_fields(card: Family) -> set[str]:
    return {name for name, kind in config_fields(card).items() if fits(None, kind)}


def config_fields(card: Family) -> Table:
    """The annotation of each field of the family's configuration."""
    return fields_of(card.config)  # type: ignore[arg-type]
