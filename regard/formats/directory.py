"""Opens, describes and writes model directories. The native format is that of Hugging Face.

No code of a directory is executed, nothing is downloaded without being asked for, and a directory
is written whole or not at all.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import FormatError
from regard.core.files import NAN_ALLOWED, copy_file, read_json, recover, write_text
from regard.data.tokenizer import Tokenizer
from regard.formats import Checkpoint as Checkpoint
from regard.formats.format import (
    GENERATION_FILE,
    TOKENS,
    Format,
    TensorName,
    stacked,
    token_ids,
    unstacked,
    write_generation_config,
)
from regard.formats.registry import (
    OWN,
    class_of,
    configure,
    empty,
    extensions_of,
    format_for,
    format_of,
    heads_of,
    is_own_class,
    known_heads,
    names_of,
    read_config,
)
from regard.formats.weights import (
    LEGACY,
    FormatWeights,
    check_finite,
    materialize,
    write_weights,
)
from regard.models.base import Model
from regard.models.output import Heads

ADAPTED = "lora"  # the extension whose adapters are also written as peft writes them
ADAPTER_CONFIG = "adapter_config.json"
# They stand in a directory of their own: beside a config.json that transformers refuses, they would
# make it take the weights of that model for those of the plain one.
ADAPTERS = "adapter"


def load(
    path: str | os.PathLike[str],
    *,
    download: bool = False,
    revision: str | None = None,
    ignore_unknown: bool = False,
    heads: Heads | None = None,
    dtype: torch.dtype = torch.float32,
    config: Any = None,
    allow_nan: bool | None = None,
    base: str | os.PathLike[str] | None = None,
) -> Checkpoint:
    """Opens a model directory, or a name of the Hugging Face Hub that is on this machine (with
    `download` it is downloaded). A `revision`, or NAME@REVISION, pins a commit, tag or branch.

    `heads` asks for other heads than the directory holds; missing heads are initialized at random.
    `config` is used in the place of the configuration that config.json says.
    Weights that are NaN or infinite are refused, unless `allow_nan` is true, or the command that
    opens the directory has --allow-nan. `base` is the model of a directory that holds only its
    LoRA adapters, as peft saves them; without it their own file names the model.
    """
    root = locate(path, download, revision)
    directory = model_place(root)
    if is_adapter(directory):
        from regard.formats.adapter import open_adapter

        return open_adapter(
            directory, base, heads, download=download, ignore_unknown=ignore_unknown, dtype=dtype,
            config=config, allow_nan=allow_nan,
        )  # fmt: skip
    config_json = read_config(directory)
    format_ = format_of(config_json["model_type"])
    config = config or configure(format_, config_json, ignore_unknown)
    wanted = heads_of(format_, config_json) if heads is None else known_heads(format_, heads)
    weights = FormatWeights.open(directory, format_)
    if heads is None and is_own_class(format_, config_json):
        wanted = heads_of_own_class(directory, format_, config, config_json, weights)
    if weights.apart == ["lm_head.weight"] and hasattr(config, "tied"):
        config = config.replace(tied=False)  # transformers 5 also unties by the file's tensors
    elif weights.apart:
        raise FormatError(
            f"{weights.apart[0]} differs from {format_.same[weights.apart[0]]}; "
            f"a {format_.type} is supported only if they are equal"
        )
    model = empty(format_, config, wanted, extensions_of(config_json))
    values = collect(
        model, names_of(model, format_, wanted), weights, dtype, optional=heads is not None
    )
    if not (NAN_ALLOWED.get() if allow_nan is None else allow_nan):
        check_finite(directory, values)
    materialize(model, values, dtype)
    if heads is None:  # a caller that asks for other heads drops the existing ones
        warn_of_unused(directory, weights, format_)
    return Checkpoint(
        model.eval(),
        Tokenizer.open(directory),
        config_json,
        root,
        read_generation_config(directory),
    )


def heads_of_own_class(
    directory: Path,
    format_: Format,
    config: Any,
    config_json: dict[str, Any],
    weights: FormatWeights,
) -> Heads:
    """Returns the heads of a class that transformers does not have, as far as they are there."""
    heads = present(format_, config, heads_of(format_, config_json), weights)
    warnings.warn(
        f"{directory.name}: {config_json['architectures'][0]} is not a class of transformers; "
        f"it is opened as a {class_of(format_, config_json)}, with the heads "
        f"{', '.join(heads) or 'none'}",
        stacklevel=3,
    )
    return heads


def warn_of_unused(directory: Path, weights: FormatWeights, format_: Format) -> None:
    left = [key for key in weights.unread() if not format_.is_ignored(key)]
    if left:
        warnings.warn(
            f"{directory.name}: {len(left)} tensors were not used; the first is {left[0]}",
            stacklevel=3,
        )


def model_place(root: Path) -> Path:
    """Returns the directory of the model itself: some of sentence-transformers hold it inside."""
    if (root / "config.json").is_file():
        return root
    from regard.formats.sentence import transformer_place

    return transformer_place(root)


def is_adapter(directory: Path) -> bool:
    """Returns whether a directory holds only the adapters of a model, as peft saves them."""
    return (directory / ADAPTER_CONFIG).is_file() and not (directory / "config.json").is_file()


def present(format_: Format, config: Any, heads: Heads, weights: FormatWeights) -> Heads:
    """Returns those of the heads whose tensors are in the file."""
    body = {key for entry in format_.table(config, {}) for key in entry.theirs}
    return {
        name: classes
        for name, classes in heads.items()
        if all(
            key in weights
            for entry in format_.table(config, {name: classes})
            for key in entry.theirs
            if key not in body
        )
    }


def collect(
    model: Model,
    names: list[TensorName],
    weights: FormatWeights,
    dtype: torch.dtype,
    optional: bool,
) -> dict[str, Tensor]:
    """Returns our tensors by name, each checked against the shape of the configuration."""
    state = model.state_dict()
    shapes = {k: tuple(v.shape) for k, v in state.items()}
    values, missing = {}, []
    for entry in names:
        if not all(key in weights for key in entry.theirs):
            new = optional and entry.ours.startswith(("heads.", "output."))
            if not new and entry.zeros is None:
                missing += [key for key in entry.theirs if key not in weights]
            continue
        parts = {key: weights[key] for key in entry.theirs}
        wanted = expected(entry, shapes)
        other = any(parts[key].shape != shape for key, shape in wanted.items())
        if other and optional and entry.ours.startswith("heads."):
            continue  # a head with another number of classes is initialized at random
        for key, shape in wanted.items():
            if parts[key].shape != shape:
                raise FormatError(
                    f"{key} has the shape {list(parts[key].shape)} in the file; "
                    f"config.json requires {list(shape)}"
                )
        if entry.zeros is None:
            whole = stacked(list(parts.values()), entry)
            values[entry.ours] = typed(entry.ours, whole, state[entry.ours], dtype)
        elif any(part.any() for part in parts.values()):
            raise FormatError(
                f"{entry.theirs[0]} is not zero, but attention_bias is false; "
                "set it to true in config.json"
            )
    if missing:
        raise FormatError(
            f"{len(missing)} tensors are missing from the weights; the first is {missing[0]}; "
            "check that config.json belongs to this model"
        )
    return values


def typed(name: str, value: Tensor, like: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a tensor of a file as the model needs it: floats in `dtype`, integers unchanged."""
    if value.is_floating_point() and like.is_floating_point():
        return value.to(dtype)
    if value.dtype != like.dtype:
        raise FormatError(f"{name} is {value.dtype} in the file; this model needs {like.dtype}")
    return value


def expected(entry: TensorName, shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Size]:
    """Returns the shapes of their tensors, computed from the shape of ours."""
    if entry.zeros is not None:
        return dict.fromkeys(entry.theirs, torch.Size([entry.zeros]))
    parts = unstacked(torch.empty(shapes[entry.ours], device="meta"), entry)
    return {key: part.shape for key, part in parts.items()}


def save(
    model: Model,
    path: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    source: dict[str, Any] | None = None,
    generation_config: dict[str, Any] | None = None,
    copied: Iterable[Path] = (),
) -> Path:
    """Writes config.json, generation_config.json, model.safetensors, the tokenizer, and copies of
    the files `copied`. Existing files are replaced, all at once. `source` and `generation_config`
    are the files that the model came with."""
    from regard.core.atomic_dir import renew_manifest, updating

    target = Path(path)
    family = model.family.name
    format_, _ = format_for(family, model.config, model.extensions)
    heads = heads_in(model)
    ids = token_ids(model, tokenizer)
    config = describe_model(model, format_, heads, source or {}, ids)
    tables = {
        "config.json": config,
        GENERATION_FILE: write_generation_config(model, generation_config, config, ids),
    }
    state = model.state_dict()
    tensors: dict[str, Tensor] = {}
    for entry in names_of(model, format_, heads):
        if entry.zeros is not None:
            like = next(iter(state.values()))
            tensors |= {key: torch.zeros(entry.zeros, dtype=like.dtype) for key in entry.theirs}
        else:
            tensors |= unstacked(state[entry.ours].detach().cpu(), entry)
    with updating(target) as draft:
        write_weights(tensors, draft / "model.safetensors")
        for file_name, table in tables.items():
            if table is not None:
                text = json.dumps(table, indent=2, ensure_ascii=False, sort_keys=True)
                write_text(draft / file_name, text + "\n")
        if tokenizer is not None:
            tokenizer.save(draft)
        for file in copied:
            copy_file(file, draft / file.name)
        renew_manifest(target, draft)
    if ADAPTED in model.extensions:
        from regard.formats.adapter import Unpublished, write_adapter

        with suppress(Unpublished), updating(target / ADAPTERS) as draft:
            write_adapter(model, heads, draft)
    return target


def describe_model(
    model: Model, format_: Format, heads: Heads, source: dict[str, Any], ids: dict[str, int]
) -> dict[str, Any]:
    """Returns config.json: the source's values, overridden by those of the model, and the ids of
    special tokens that the source lacks."""
    own = format_.type.startswith(OWN)
    known = source if source.get("model_type") == format_.type else {}
    architecture = next(iter(format_.classes)) if own else format_.class_for(heads)
    named = (known.get("architectures") or [None])[0]
    if not own and set(format_.classes.get(named, ())) == set(heads):
        architecture = named if named in format_.classes else architecture
    config = format_.write_config(model.config, architecture, known)
    config |= {key: value for key, value in ids.items() if config.get(key) is None}
    if not known and model.decoding:  # a class of transformers would assume ids of its own
        config = dict.fromkeys(TOKENS) | config
    if own:
        added = {"regard_extensions": model.extensions} if model.extensions else {}
        return config | {"regard_heads": heads} | added
    classes = [k for n, k in heads.items() if n in ("classify", "tag")]
    if classes and len(config.get("id2label") or ()) != classes[0]:
        labels = [f"LABEL_{i}" for i in range(classes[0])]
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    config["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    for key in ("torch_dtype", "auto_map"):  # "dtype" replaces the first; no code is written
        config.pop(key, None)
    return config


def heads_in(model: Model) -> Heads:
    """Returns the heads of a model with their numbers of classes."""
    modules = getattr(model, "heads", None)
    if not isinstance(modules, nn.ModuleDict):
        return {}
    heads = {n: getattr(getattr(h, "out", None), "out_features", 0) for n, h in modules.items()}
    return heads | ({"masked": 0} if hasattr(model, "output") else {})


def locate(path: str | os.PathLike[str], download: bool, revision: str | None = None) -> Path:
    """Returns the directory of a path, or of a name in the cache of the Hub."""
    directory = Path(path)
    recover(directory)
    if directory.is_dir():
        if revision is not None:
            raise FormatError(
                f"{path} is a directory and has no revisions; leave out revision={revision!r}"
            )
        return directory
    if directory.exists():
        raise FormatError(
            f"{path} is a file; a model is a directory with config.json and model.safetensors"
        )
    text = str(path).removeprefix("hub:")
    if text.partition("@")[0].count("/") > 1 or text.startswith((".", "/", "~")):
        raise FormatError(f"{path} does not exist; give a model directory or a name of the hub")
    from regard.formats.hub import fetched  # a model on this machine needs none of it

    return fetched(text, download, revision)


def read_generation_config(directory: Path) -> dict[str, Any] | None:
    """Returns the generation_config.json of a directory, or None if it has none."""
    advice = "copy it again, or remove it to use the defaults"
    file = directory / GENERATION_FILE
    return read_json(file, error=FormatError, advice=advice, repeated=True)


def describe(path: str | os.PathLike[str], *, download: bool = False) -> dict[str, Any]:
    """Returns what a directory holds, without loading its weights."""
    directory = model_place(locate(path, download))
    config_json = read_config(directory)
    format_ = format_of(config_json["model_type"])
    config = configure(format_, config_json)
    heads = heads_of(format_, config_json)
    model = empty(format_, config, heads, extensions_of(config_json))
    tokenizer = Tokenizer.open(directory)
    files = {f.name: f.stat().st_size for f in sorted(directory.iterdir()) if f.is_file()}
    return {
        "path": str(directory),
        "model_type": format_.type,
        "family": format_.family,
        "class": class_of(format_, config_json),
        "heads": heads,
        "extensions": model.extensions,
        "parameters": model.parameter_count(),
        "config": {k: getattr(config, k) for k in config.__dataclass_fields__},
        "tokenizer": None if tokenizer is None else tokenizer.describe(),
        "files": files,
        "weights": weights_in(directory),
        "opens_in_transformers": format_.opens is None,
        "because": format_.opens
        if not format_.type.startswith(OWN)
        else format_for(format_.family, config, model.extensions)[1],
        **opens_in_peft(model, heads),
    }


def opens_in_peft(model: Model, heads: Heads) -> dict[str, Any]:
    """Returns whether peft opens the adapters of a model, or why not; {} if it has none."""
    if ADAPTED not in model.extensions:
        return {}
    from regard.formats.adapter import reason_against

    reason = reason_against(model, heads)
    return {"adapters_open_in_peft": True if reason is None else f"no, because {reason}"}


def weights_in(directory: Path) -> str:
    """Returns the file that holds the weights, or says why they do not load."""
    safe = ("model.safetensors", "model.safetensors.index.json")
    for name in (*safe, *LEGACY):
        if (directory / name).is_file():
            break
    else:
        return "none: the directory holds no model.safetensors"
    if name in safe:
        return name
    from regard.formats import legacy

    try:
        (legacy.read if name == LEGACY[0] else legacy.read_shards)(directory / name)
    except FormatError as error:
        return f"they do not load, and cannot be converted: {error}"
    return f"they do not load: {name} is a pickle; 'regard convert {directory}' makes a safe file"
