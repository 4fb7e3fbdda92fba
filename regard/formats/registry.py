"""Which format a directory is in, which one a model can be written in, and the model of a
config.json before its weights are read.
"""

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
BESIDE = "crf."  # a part that a task adds, and keeps in a file of its own
OWN = "regard-"  # types of our own, which transformers refuses


def formats(file: str) -> tuple[Format, ...]:
    tables: tuple[Format, ...] = import_module(f"regard.formats.{file}").FORMATS
    return tables


def formats_of(family: str) -> tuple[Format, ...]:
    """The published formats of a family; their file has the name of the model's file."""
    file = MODULES[family]
    return formats(file) if file in FILES.values() else ()


def format_of(model_type: str) -> Format:
    """The format of a `model_type`."""
    if model_type.startswith(OWN) and model_type.removeprefix(OWN) in FAMILIES:
        return own(model_type.removeprefix(OWN))
    if model_type not in FILES:
        raise UnknownName("model_type", model_type, [*FILES, *(OWN + f for f in FAMILIES)])
    return next(f for f in formats(FILES[model_type]) if f.type == model_type)


def format_for(
    family: str, config: Any, extensions: Mapping[str, Any] | None = None
) -> tuple[Format, str | None]:
    """The first published format that holds the model, or our own and why no other does."""
    if extensions:
        return own(family), f"transformers knows no models with {' and '.join(extensions)}"
    why = []
    for candidate in formats_of(family):
        refusal = candidate.refuses(config)
        if refusal is None:
            return candidate, None
        why.append(refusal)
    return own(family), "; ".join(why) or "transformers has no class for it"


def heads_of_family(family: str) -> set[str]:
    """Every head that some published class of the family has."""
    classes = (heads for f in formats_of(family) for heads in f.classes.values())
    return {name for heads in classes for name in heads}


def own(family: str) -> Format:
    """Our own names and fields, under a type that transformers does not open as something else."""
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
    """The table of names; our own format's is the model itself, each shared tensor once."""
    if not format_.type.startswith(OWN):
        return format_.table(model.config, heads)
    keys = [*dict(model.named_parameters()), *dict(model.named_buffers())]
    return [TensorName(key, (key,)) for key in keys if not key.startswith(BESIDE)]


class SkipRandomInit(TorchFunctionMode):
    """Random weights are not drawn where there is no memory for them: to draw them there torch
    imports its compiler, which takes longer than to read a model.
    """

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
    """The model without memory for its weights, with the parts that were added to it."""
    model_class: Any = FAMILIES[format_.family].model
    try:
        with torch.device("meta"), SkipRandomInit():
            model = model_class(config, heads) if format_.takes_heads else model_class(config)
            for name, options in (extensions or {}).items():
                from regard.models.extensions import extend

                extend(model, name, options)
            return model
    except (RuntimeError, TypeError, OverflowError) as error:  # sizes beyond what numbers can count
        raise ConfigError(f"no model has these sizes: {str(error).splitlines()[0]}") from None


def extensions_of(config_json: dict[str, Any]) -> dict[str, Any]:
    """The parts that a directory says were added to its model."""
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
