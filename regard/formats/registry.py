"""Finds the format of a directory and the format that a model can be written in, reads config.json,
and builds its model before the weights are read."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.core.files import parse_json
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
CONFIG_LIMIT = 2**24  # the most bytes of a config.json
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
        known = [*FILES, *(OWN + f for f in FAMILIES)]
        plain = {re.sub(r"\W|_", "", name): name for name in known}
        meant = plain.get(re.sub(r"\W|_", "", model_type.lower()), "")
        # types of other models have similar names, such as albert: only a spelling is suggested
        hint = "" if meant else f"the types that can be opened are {', '.join(FILES)}"
        raise UnknownName("model_type", model_type, known, meant=meant, hint=hint)
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


def base_heads(family: str) -> Heads:
    """Returns the heads of the base class of a family, which gives the hidden states alone."""
    classes = [f.classes[f.base_class] for f in formats_of(family) if f.base_class]
    return classes[0] if classes else {}


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


def configure(format_: Format, config_json: dict[str, Any], ignore_unknown: bool = False) -> Any:
    """Returns our configuration for a config.json; an error also gives their names of fields."""
    config_class = FAMILIES[format_.family].config
    try:
        return config_class.of(format_.read_config(config_json, ignore_unknown))
    except ConfigError as error:
        spelled = {o: f.theirs for o, f in format_.fields.items() if o != f.theirs}
        named = [f"{o} is {t}" for o, t in spelled.items() if re.search(rf"\b{o}\b", str(error))]
        known = any(field.theirs in str(error) for field in format_.fields.values())
        hint = f" (in config.json {', '.join(named)})" if named and not known else ""
        raise ConfigError(f"{error}{hint}") from None


def known_heads(format_: Format, heads: Heads) -> Heads:
    """Checks that the family has each requested head, and returns the heads."""
    known = heads_of_family(format_.family)
    if not isinstance(heads, dict) or not all(isinstance(k, int) for k in heads.values()):
        raise ConfigError(f"heads is {heads!r}; it must be a dict of names and numbers of classes")
    for name in heads:
        if name not in known:
            raise UnknownName("head", name, known or {"none"}, f"(heads of {format_.family})")
    return heads


def class_of(format_: Format, config_json: dict[str, Any]) -> str:
    """Returns the class of transformers that config.json names, or the one that a class of somebody
    else seems to be: that with the same ending, such as ForMaskedLM, or the first."""
    named = config_json.get("architectures") or [next(iter(format_.classes))]
    if not isinstance(named, list) or not isinstance(named[0], str):
        raise FormatError(
            f"config.json: architectures is {named!r}; it must be a list of names of classes"
        )
    if named[0] in format_.classes:
        return str(named[0])
    if named[0] in format_.others or named[0].startswith(("TF", "Flax")):
        raise FormatError(
            f"the class {named!r} is not supported for {format_.type}; "
            f"supported are {', '.join(format_.classes)}"
        )
    ending = re.search(r"(For|LM|DoubleHeads)[A-Z]?\w*$", named[0])
    alike = [name for name in format_.classes if ending and name.endswith(ending[0])]
    return next(iter([*alike, *format_.classes]))


def is_own_class(format_: Format, config_json: dict[str, Any]) -> bool:
    """Returns whether config.json names a class that transformers does not have."""
    named = config_json.get("architectures") or []
    return bool(named) and class_of(format_, config_json) not in named


def heads_of(format_: Format, config_json: dict[str, Any]) -> Heads:
    """Returns the heads that a directory holds, from its class and its number of labels."""
    if format_.type.startswith(OWN):
        return known_heads(format_, config_json.get("regard_heads") or {})
    labels = config_json.get("num_labels")  # overrules a list of other length, as in transformers
    if labels is None:
        labels = config_json.get("id2label") or 2
    labels = len(labels) if isinstance(labels, dict | list) else labels
    if not isinstance(labels, int) or not 0 < labels < 2**31:
        raise ConfigError(f"config.json: id2label or num_labels is {labels!r}, which it cannot be")
    return {
        n: labels if n in format_.counted else k
        for n, k in format_.classes[class_of(format_, config_json)].items()
    }


def read_config(directory: Path) -> dict[str, Any]:
    """Returns config.json. A missing model_type is taken from the class that the file names."""
    file = directory / "config.json"
    if not file.is_file():
        raise FormatError(
            f"{directory} has no config.json; a model directory holds one beside its weights"
        )
    if file.stat().st_size > CONFIG_LIMIT:
        raise FormatError(
            f"{file} has {file.stat().st_size:,} bytes; a config.json has at most {CONFIG_LIMIT:,}"
        )
    config_json = parse_json(
        file.read_bytes(), str(file), error=FormatError, kinds={"model_type": str | None},
        advice="download it again, or save the model again", repeated=True,
    )  # fmt: skip
    if config_json.get("model_type") is None:
        config_json["model_type"] = type_of_class(file, config_json.get("architectures"))
    return config_json


def type_of_class(file: Path, named: Any) -> str:
    """Returns the model_type whose classes include the named one, and says that it is assumed."""
    name = named[0] if isinstance(named, list) and named else None
    for model_type in FILES:
        if isinstance(name, str) and name in format_of(model_type).classes:
            warnings.warn(
                f"{file} has no model_type; it is taken to be {model_type}, because its class is "
                f"{name}",
                stacklevel=3,
            )
            return model_type
    raise FormatError(
        f"{file} has no model_type, and its architectures are {named!r}; one of them is needed to "
        "choose the model"
    )
