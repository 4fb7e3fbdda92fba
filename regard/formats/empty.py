"""The model of a config.json before its weights are read: shapes without memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regard.core.errors import ConfigError, UnknownName
from regard.formats.format import Format
from regard.models import FAMILIES
from regard.models.heads import Heads


class Undrawn(TorchFunctionMode):
    """Random weights are not drawn where there is no memory for them: to draw them there torch
    imports its compiler, which takes longer than to read a model.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__name__", "") in ("normal_", "uniform_"):
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def empty(
    found: Format, config: Any, heads: Heads, extensions: Mapping[str, Any] | None = None
) -> Any:
    """The model without memory for its weights, with the parts that were added to it."""
    model_class: Any = FAMILIES[found.family].model
    try:
        with torch.device("meta"), Undrawn():
            model = model_class(config, heads) if found.takes_heads else model_class(config)
            for name, options in (extensions or {}).items():
                from regard.models.extensions import extend

                extend(model, name, options)
            return model
    except (RuntimeError, TypeError, OverflowError) as error:  # sizes beyond what numbers can count
        raise ConfigError(f"no model has these sizes: {str(error).splitlines()[0]}") from None


def extensions_of(given: dict[str, Any]) -> dict[str, Any]:
    """The parts that a directory says were added to its model."""
    held = given.get("regard_extensions") or {}
    if not isinstance(held, dict) or not all(isinstance(o, dict) for o in held.values()):
        raise ConfigError(
            f"config.json: regard_extensions is {held!r}; it must be a table of tables"
        )
    if not held:
        return {}
    from regard.models.extensions import EXTENSIONS

    unknown = [name for name in held if name not in EXTENSIONS]
    if unknown:
        raise UnknownName("extension", unknown[0], EXTENSIONS, "(in config.json)")
    return {name: held[name] for name in EXTENSIONS if name in held}
