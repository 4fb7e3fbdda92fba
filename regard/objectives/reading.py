"""Reads texts from left to right with any model that can, and computes the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.models import FAMILIES
from regard.models.base import Model
from regard.models.output import SoftTarget
from regard.models.state import State


def inner(model: Any) -> Any:
    """Returns our model, also from inside the wrapper of a compiler or an engine."""
    if isinstance(model, Model):
        return model
    inside = next((part for part in model.modules() if isinstance(part, Model)), None)
    if inside is None:
        raise ConfigError(f"{type(model).__name__} contains no model of regard.models")
    return inside


def takes(model: Any, name: str) -> bool:
    return name in inner(model).accepts


# -- capabilities of a model's class


def has_source(kind: type[Model]) -> bool:
    return kind.kind == "encoder-decoder"


def reads_on(kind: type[Model]) -> bool:
    """Returns whether each row of the model can be limited to the rows before it."""
    return kind.causal or "order" in kind.accepts


def sees_prefixes(kind: type[Model]) -> bool:
    """Returns whether a prefix can see itself from both sides while the rest is causal."""
    return "prefix" in kind.accepts or "order" in kind.accepts


def read_on(
    model: Any, tokens: Tensor, state: State | None = None, prefix: Tensor | None = None
) -> Tensor:
    """Returns hidden states [B, T, width] of rows that see the rows before them; the first `prefix`
    [B] rows see each other.

    Padding on the right needs no attention mask: no row before it can see it.
    """
    more: dict[str, Any] = {} if state is None else {"state": state}
    if takes(model, "order"):
        order = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
        more["order"] = order if prefix is None else (order - prefix[:, None] + 1).clamp_min(0)
    elif prefix is not None:
        more["prefix"] = prefix
    y: Tensor = model(tokens, **more)
    return y


def surprise(
    model: Any, hidden: Tensor, targets: Tensor, scored: Tensor, soft: SoftTarget | None = None
) -> Tensor:
    """Returns the summed nats of the `scored` targets [B, T] for hidden [B, T, width]."""
    output, shares = model.output, None
    if torch.compiler.is_compiling():  # the compiler needs static shapes
        rows, words, shares = hidden.flatten(0, 1), targets.flatten(), scored.flatten().float()
    else:
        rows, words = hidden[scored], targets[scored]
    if soft is None:
        y: Tensor = output.surprisal(rows, words, shares)
    else:
        y = output.softened(rows, words, soft, shares)
    return y


# -- refusals


def refuse(model: Any, wanted: str, can: Callable[[type[Model]], object]) -> ConfigError:
    """Returns the error for a model that cannot learn `wanted`; it names families that can."""
    able = ", ".join(name for name, card in FAMILIES.items() if can(card.model))
    return ConfigError(f"{type(inner(model)).__name__} cannot learn {wanted}; these can: {able}")


def check_room(model: Any, rows: int) -> None:
    """Refuses samples with more rows than the model has positions."""
    context = getattr(inner(model).config, "context", None)
    if context is not None and rows > context:
        raise ConfigError(
            f"a sample has {rows} rows, but this model has {context} positions; choose a "
            "smaller length or a longer context"
        )


def check_reading_on(model: Any, rows: int) -> None:
    """Refuses a model that cannot read `rows` rows from left to right."""
    if not reads_on(type(inner(model))):
        raise refuse(model, "from left to right", reads_on)
    if getattr(inner(model).config, "two_directions", False):
        raise ConfigError(
            "this model reads half of a batch backwards; set two_directions = false, so that it "
            "reads from left to right"
        )
    check_room(model, rows)
