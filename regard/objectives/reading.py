"""How models are made to read from left to right, and how their guesses are scored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.models.base import Model
from regard.models.output import Soft
from regard.models.state import State

# What a refusal names.
READ_ON = "gpt, transformer-xl, lstm, longformer-characters, and with an order bert and xlnet"
SEE_PREFIXES = "gpt, bert, xlnet"
HAVE_SOURCES = "t5, transformer"


def inner(model: Any) -> Any:
    """One of ours, also inside of what a compiler or an engine wraps around it."""
    if isinstance(model, Model):
        return model
    inside = next((part for part in model.modules() if isinstance(part, Model)), None)
    if inside is None:
        raise ConfigError(f"{type(model).__name__} holds none of the models of regard.models")
    return inside


def takes(model: Any, name: str) -> bool:
    return name in inner(model).accepts


def reads_on(model: Any) -> bool:
    """Can it be made to see only what came before?"""
    return bool(inner(model).causal) or takes(model, "order")


def sees_prefixes(model: Any) -> bool:
    """Can its first words see each other while each other one sees only what came before?"""
    return takes(model, "prefix") or takes(model, "order")


def read_on(
    model: Any, tokens: Tensor, state: State | None = None, prefix: Tensor | None = None
) -> Tensor:
    """Hidden states [B, T, width] of rows that see what came before them, and of the first `prefix`
    [B] that see each other.

    Padding on the right needs no marks: no row before it can see it.
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
    model: Any, hidden: Tensor, targets: Tensor, scored: Tensor, soft: Soft | None = None
) -> Tensor:
    """Summed nats of the targets [B, T] that count, from hidden states [B, T, width]."""
    output, shares = model.output, None
    if torch.compiler.is_compiling():  # which wants to know all shapes beforehand
        rows, words, shares = hidden.flatten(0, 1), targets.flatten(), scored.flatten().float()
    else:
        rows, words = hidden[scored], targets[scored]
    if soft is None:
        y: Tensor = output.surprisal(rows, words, shares)
    else:
        y = output.softened(rows, words, soft, shares)
    return y


# -- refusals


def refuse(model: Any, wanted: str, kinds: str) -> ConfigError:
    return ConfigError(f"{type(inner(model)).__name__} cannot learn {wanted}; these can: {kinds}")


def check_room(model: Any, rows: int) -> None:
    """Refuses samples longer than the positions a model has."""
    context = getattr(inner(model).config, "context", None)
    if context is not None and rows > context:
        raise ConfigError(
            f"a sample takes {rows} rows, but this model has {context} positions; choose a "
            "smaller length or a longer context"
        )


def check_reading_on(model: Any, rows: int) -> None:
    """Refuses what cannot read so many rows from left to right."""
    if not reads_on(model):
        raise refuse(model, "from left to right", READ_ON)
    if getattr(inner(model).config, "two_directions", False):
        raise ConfigError(
            "this model reads half of a batch backwards; set two_directions = false to let it "
            "read from left to right"
        )
    check_room(model, rows)
