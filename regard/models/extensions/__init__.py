"""Parts that are added to a plain model where it is built, and saved with it.

An extension changes a model in place: gates on its residual paths, fewer heads, weights of eight
bits. Its name and options stand in `model.extensions`, and from there in config.json, so that a
saved model is built again the same way before its weights are read. A file is imported when its
extension is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.core.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from regard.data.tokenizer import Tokenizer
    from regard.models.extensions.base import Extension

EXTENSIONS = {  # name: (file, class); a model gets its parts in this order
    "gates": ("gates", "Gates"),
    "characters": ("characters", "Characters"),
    "guidance": ("guidance", "Guidance"),
    "pointer": ("pointer", "Pointer"),
    "pruned": ("pruned", "Pruned"),
    "int8": ("int8", "Int8"),
}


def extension(name: str) -> type[Extension]:
    """The class of an extension."""
    if name not in EXTENSIONS:
        raise UnknownName("extension", name, EXTENSIONS)
    file, kind = EXTENSIONS[name]
    extension_class: type[Extension] = getattr(
        import_module(f"regard.models.extensions.{file}"), kind
    )
    return extension_class


def place_of(name: str) -> int:
    """Where in the order of all extensions one stands."""
    extension(name)
    return list(EXTENSIONS).index(name)


def extend(
    model: Any, name: str, options: dict[str, Any] | None = None, tokenizer: Tokenizer | None = None
) -> Any:
    """Adds a part to a model, in place, and gives the model back.

    On the meta device only shapes are made; elsewhere the new weights get their first values.
    """
    from regard.models.extensions.base import made_like

    if name in model.extensions:
        raise ConfigError(
            f"this model has the extension {name!r} already, with {model.extensions[name]}; "
            "begin with the model it was made from"
        )
    part = extension(name).of(options or {})
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
