"""Finds the format of a directory and the format that a model can be written in, and builds the
model of a config.json before its weights are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regard.core.errors import ConfigError, UnknownName
from regard.formats.format import Field, Format, TensorName
from regard.models import FAMILIES, MODULES
from regard.models.base import Model
from regard.models.output import Heads

# model_type of config.json -> the file that knows it
FILES = {
    "gpt2": "gpt",
    "openai-gpt": "gpt",
    "bert": "bert",
    "longformer": "longformer",
    "t5": "t5",
    "marian": "transformer",
    "xlnet": "xlnet",
    "transfo-xl": "transformer_xl",
    "llama": "llama",
    "roberta": "roberta",
}
BESIDE = "crf."  # a part that a task adds and stores in another file
OWN = "regard-"  # the prefix of our own types, which transformers refuses


def formats(file: str) -> tuple[Format, ...]:
    tables: tuple[Format, ...] = import_module(f"regard.formats.{file}").FORMATS
    return tables


def formats_of(family: str) -> tuple[Format, ...]:
    """Returns the published formats of a family; their file has the name of the model's file."""
    file = MODULES[family]
    return formats(file) if file in FILES.values() else ()


def format_of(model_type: str) -> Format:
    """Returns the format of a `model_type`."""
    if model_type.startswith(OWN) and model_type.removeprefix(OWN) in FAMILIES:
        return own(model_type.removeprefix(OWN))
    if model_type not in FILES:
        raise UnknownName("model_type", model_type, [*FILES, *(OWN + f for f in FAMILIES)])
    return next(f for f in formats(FILES[model_type]) if f.type == model_type)


def format_for(
    family: str, config: Any, extensions: Mapping[str, Any] | None = None
) -> tuple[Format, str | None]:
    """Returns the first published format that can hold the model, or our own and the reason."""
    if extensions:
        return own(family), f"transformers has no models with {' and '.join(extensions)}"
    why = []
    for candidate in formats_of(family):
        refusal = candidate.refuses(config)
        if refusal is None:
            return candidate, None
        why.append(refusal)
    return own(family), "; ".join(why) or "transformers has no class for it"


def heads_of_family(family: str) -> set[str]:
    """Returns every head of a published class of the family."""
    classes = (heads for f in formats_of(family) for heads in f.classes.values())
    return {name for heads in classes for name in heads}


def own(family: str) -> Format:
    """Returns the format with our own names and fields; transformers does not open its type."""
    config = FAMILIES[family].config

    def restore(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    fields = {f.name: Field(f.name, f.default, restore) for f in dataclasses.fields(config)}
    return Format(
        type=OWN + family,
        family=family,
        classes={f"Regard{FAMILIES[family].model.__name__}": {}},
        fields=fields,
        inert=frozenset({"regard_heads", "regard_extensions"}),
        names=lambda config, heads: [],
        opens="transformers has no class for it",
        whole_numbers=True,
        takes_heads=hasattr(FAMILIES[family].model, "read"),
    )


def names_of(model: Model, format_: Format, heads: Heads) -> list[TensorName]:
    """Returns the table of names; for our own format, the model's tensors, shared ones once."""
    if not format_.type.startswith(OWN):
        return format_.table(model.config, heads)
    keys = [*dict(model.named_parameters()), *dict(model.named_buffers())]
    return [TensorName(key, (key,)) for key in keys if not key.startswith(BESIDE)]


class SkipRandomInit(TorchFunctionMode):
    """Skips random initialization on the meta device: for it torch would import its compiler, which
    takes longer than reading a model."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if getattr(func, "__name__", "") in ("normal_", "uniform_"):
            return args[0] if args else options["tensor"]
        return func(*args, **options)


def empty(
    format_: Format, config: Any, heads: Heads, extensions: Mapping[str, Any] | None = None
) -> Any:
    """Builds the model on the meta device, without memory for its weights, with its extensions."""
    model_class: Any = FAMILIES[format_.family].model
    try:
        with torch.device("meta"), SkipRandomInit():
            model = model_class(config, heads) if format_.takes_heads else model_class(config)
            for name, options in (extensions or {}).items():
                from regard.models.extensions import extend

                extend(model, name, options)
            return model
    except (RuntimeError, TypeError, OverflowError) as error:  # sizes that overflow
        raise ConfigError(f"no model can have these sizes: {str(error).splitlines()[0]}") from None


def extensions_of(config_json: dict[str, Any]) -> dict[str, Any]:
    """Returns the extensions in a directory's config.json with their options."""
    options = config_json.get("regard_extensions") or {}
    if not isinstance(options, dict) or not all(isinstance(o, dict) for o in options.values()):
        raise ConfigError(
            f"config.json: regard_extensions is {options!r}; it must be a table of tables"
        )
    if not options:
        return {}
    from regard.models.extensions import EXTENSIONS

    unknown = [name for name in options if name not in EXTENSIONS]
    if unknown:
        raise UnknownName("extension", unknown[0], EXTENSIONS, "(in config.json)")
    return {name: options[name] for name in EXTENSIONS if name in options}
