"""Parts that are added to a plain model when it is built, and saved with it.

An extension changes a model in place: gates on its residual paths, fewer heads, int8 weights. Its
name and options are in `model.extensions`, and from there in config.json, so that a saved model is
built again in the same way before its weights are read. An extension's file is imported when it is
used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.core.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from regard.data.tokenizer import Tokenizer
    from regard.models.extensions.base import Extension

EXTENSIONS = {  # name -> (file, class); a model gets its extensions in this order
    "gates": ("gates", "Gates"),
    "characters": ("characters", "Characters"),
    "guidance": ("guidance", "Guidance"),
    "pointer": ("pointer", "Pointer"),
    "pruned": ("pruned", "Pruned"),
    "int8": ("int8", "Int8"),
    "lora": ("lora", "Lora"),
}


def extension(name: str) -> type[Extension]:
    """Returns the class of an extension."""
    if name not in EXTENSIONS:
        raise UnknownName("extension", name, EXTENSIONS)
    file, kind = EXTENSIONS[name]
    extension_class: type[Extension] = getattr(
        import_module(f"regard.models.extensions.{file}"), kind
    )
    return extension_class


def place_of(name: str) -> int:
    """Returns the index of an extension in the order of all extensions."""
    extension(name)
    return list(EXTENSIONS).index(name)


def extend(
    model: Any, name: str, options: dict[str, Any] | None = None, tokenizer: Tokenizer | None = None
) -> Any:
    """Adds an extension to a model, in place, and returns the model.

    On the meta device only shapes are created; elsewhere the new weights are initialized.
    """
    from regard.models.extensions.base import made_like

    if name in model.extensions:
        raise ConfigError(
            f"this model has the extension {name!r} already, with {model.extensions[name]}; "
            "start from the model without it"
        )
    part = extension(name).of(options or {})
    for other in model.extensions:
        if advice := extension(other).closes:
            raise ConfigError(f"{name!r} cannot be added to a model with {other!r}; {advice}")
    late = [other for other in model.extensions if place_of(other) > place_of(name)]
    if late:
        raise ConfigError(
            f"{name!r} cannot be added to a model with {late[0]!r}; add {name!r} first, then "
            f"{late[0]!r}"
        )
    part.check(model)
    was_training = model.training
    with made_like(model):
        part.apply(model)
        if model.device.type != "meta":
            part.initialize(model, tokenizer)
    model.extensions[name] = part.table()
    return model.train(was_training)
