"""The keys of a recipe, for people who look for one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from regard.core.options import help_of
from regard.core.tables import Table, fields_of, words
from regard.models import FAMILIES
from regard.models.extensions import EXTENSIONS, extension
from regard.objectives import OBJECTIVES, objective
from regard.training.recipe import Recipe, option_keys


def matching(pattern: str = "") -> list[Table]:
    """All keys, or those whose name, option or words hold the pattern."""
    rows = [*own_keys(), *shape_keys(), *objective_keys(), *extension_keys()]
    small = pattern.lower()
    return [row for row in rows if any(small in str(value).lower() for value in row.values())]


def row(key: str, kind: Any, default: Any, about: str, option: str = "") -> Table:
    shown = "" if default in (None, "", [], (), {}, dataclasses.MISSING) else str(default)
    return {"key": key, "kind": words(kind), "default": shown, "option": option, "about": about}


def own_keys() -> Iterator[Table]:
    """What every recipe has, whatever the model."""
    options = {key: option for option, key in option_keys().items()}
    usual = Recipe()
    for name, kind in fields_of(Recipe).items():
        if not dataclasses.is_dataclass(kind):
            if help_of(Recipe, name):
                about = help_of(Recipe, name)
                yield row(name, kind, getattr(usual, name), about, options.get(name, ""))
            continue
        for inner, each in fields_of(kind).items():  # type: ignore[arg-type]
            key, default = f"{name}.{inner}", getattr(getattr(usual, name), inner)
            yield row(key, each, default, help_of(kind, inner), options.get(key, ""))  # type: ignore[arg-type]


def shape_keys() -> Iterator[Table]:
    """Fields of the models' configurations."""
    having: dict[str, list[str]] = {}
    kinds: dict[str, Any] = {}
    for family, card in FAMILIES.items():
        config: Any = card.config
        for name, kind in fields_of(config).items():
            having.setdefault(name, []).append(family)
            kinds[name] = kind
    for name, families in having.items():
        every = len(families) == len(FAMILIES)
        who = "every family" if every else ", ".join(families)
        yield row(f"shape.{name}", kinds[name], None, f"A field of the model's shape: {who}.")


def objective_keys() -> Iterator[Table]:
    having: dict[str, list[str]] = {}
    kinds: dict[str, Any] = {}
    for name in OBJECTIVES:
        for option, kind in fields_of(objective(name).Options).items():
            having.setdefault(option, []).append(name)
            kinds[option] = kind
    yield row("objective", str, None, f"What is learned: {', '.join(OBJECTIVES)}.", "--objective")
    for option, names in having.items():
        about = f"An option of the objective {' or '.join(names)}."
        yield row(f"objective.{option}", kinds[option], None, about)


def extension_keys() -> Iterator[Table]:
    """Parts that a recipe can add; what methods make of a model is no key."""
    for name in EXTENSIONS:
        if not extension(name).learns or name in ("pruned", "guidance"):
            continue
        yield row(f"extensions.{name}", bool, None, "A part that is added to the model: true.")
        for option, kind in fields_of(extension(name).Options).items():
            yield row(f"extensions.{name}.{option}", kind, None, f"An option of {name}.")
