"""LoRA adapters in the layout of peft: adapter_config.json and adapter_model.safetensors.

peft names an adapter by the published module that it belongs to. Which modules make up a matrix of
ours says the table of the model's format, so that no family is named here. A family whose matrices
are not modules of a class of transformers has its adapters in model.safetensors alone.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.core.errors import FormatError, StorageError
from regard.core.files import read_json, write_json
from regard.formats import Checkpoint
from regard.formats.format import SAME, TRANSPOSED, TensorName, stacked, unstacked
from regard.formats.registry import configure, format_for, format_of, read_config
from regard.formats.weights import write_weights
from regard.models.extensions import extend
from regard.models.extensions.lora import PARTS, WHOLE, Lora, LoraSite, merge, sites_of
from regard.models.output import Heads

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ROOT = "base_model.model."  # how peft begins every name
ADAPTER = re.compile(r"(.+)\.lora_([AB])\.weight")
TASKS = {"classify": "SEQ_CLS", "tag": "TOKEN_CLS", "answer": "QUESTION_ANS"}
# What peft may write and does not change the result, beside what is read here.
INERT = frozenset(
    """
    auto_mapping base_model_name_or_path exclude_modules fan_in_fan_out inference_mode
    layers_pattern layers_to_transform megatron_config megatron_core modules_to_save peft_version
    qalora_group_size revision target_modules ensure_weight_tying lora_ga_config corda_config
    eva_config runtime_config save_embedding_layers
    """.split()
)
READ = frozenset({"peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "task_type"})
PLAIN = {"bias": "none", "init_lora_weights": (True, False, "gaussian", "orthogonal")}


class Unpublished(Exception):
    """Says why the adapters of a model have no place in peft's layout."""


class AdapterLayout(NamedTuple):
    """Where the adapters and the heads of a model stand under published names."""

    modules: dict[LoraSite, str]
    transposed: bool  # are the matrices stored as [input, output]?
    heads: list[TensorName]
    every: list[str]  # all modules of the class


def layout(model: Any, heads: Heads, sites: Sequence[LoraSite]) -> AdapterLayout:
    """Returns the published names. Raises `Unpublished` if there are none."""
    others: dict[str, Any] = {name: {} for name in model.extensions if name != Lora.name}
    format_, reason = format_for(model.family.name, model.config, others)
    if reason or format_.opens:
        raise Unpublished(reason or format_.opens)
    try:
        architecture = format_.class_for(heads)
    except FormatError as error:
        raise Unpublished(str(error)) from None
    if architecture.startswith("Regard"):
        raise Unpublished(f"transformers has no class {architecture}")
    prefix = format_.prefix if architecture == format_.base_class else ""
    table = format_.table(model.config, heads)
    by_name = {entry.ours: entry for entry in table}
    modules, forms = {}, set()
    for site in sites:
        entry = by_name.get(f"{site.module}.weight")
        modules[site] = module_of(site, entry).removeprefix(prefix)
        assert entry is not None
        forms.add(entry.form is TRANSPOSED)
    if len(forms) > 1:
        raise Unpublished("some of its matrices are stored transposed and some are not")
    every = [key.rpartition(".")[0].removeprefix(prefix) for e in table for key in e.theirs]
    own = [
        replace(e, theirs=tuple(key.removeprefix(prefix) for key in e.theirs))
        for e in table
        if e.ours.startswith("heads.")
    ]
    return AdapterLayout(modules, forms == {True}, own, list(dict.fromkeys(every)))


def module_of(site: LoraSite, entry: TensorName | None) -> str:
    """Returns the published module of a site."""
    if entry is None or not entry.theirs[0].endswith(".weight"):
        raise Unpublished(f"{site.name} is no module of its class in transformers")
    if entry.form not in (SAME, TRANSPOSED):
        raise Unpublished(f"{site.name} is stored in another form there")
    count = len(entry.theirs)
    if site.part in PARTS and count == len(PARTS):
        key = entry.theirs[PARTS.index(site.part)]
    elif site.part in PARTS:
        raise Unpublished(
            f"query, key and value are published as one module; choose targets={WHOLE}"
        )
    elif count > 1:
        raise Unpublished(
            f"{site.name} is published as {count} modules; choose targets={'+'.join(PARTS)}"
        )
    else:
        key = entry.theirs[0]
    return key.removesuffix(".weight")


def adapter_of(model: Any, site: LoraSite) -> Any:
    part = model.get_submodule(site.module)
    return part.lora[site.part] if site.part else part.lora


def options_of(model: Any) -> Any:
    return Lora.of(model.extensions[Lora.name])


# -- written


def reason_against(model: Any, heads: Heads) -> str | None:
    """Returns why peft could not open the adapters of a model; None if it can."""
    try:
        layout(model, heads, options_of(model).chosen(model))
    except Unpublished as why:
        return str(why)
    return None


def write_adapter(model: Any, heads: Heads, draft: Path) -> None:
    """Writes the two files of peft; raises `Unpublished` where they cannot be."""
    lora = options_of(model)
    sites = lora.chosen(model)
    places = layout(model, heads, sites)
    tensors: dict[str, Tensor] = {}
    for site, name in places.modules.items():
        adapter = adapter_of(model, site)
        for letter in "AB":
            value = getattr(adapter, letter).detach().cpu()
            tensors[f"{ROOT}{name}.lora_{letter}.weight"] = value.contiguous()
    state = model.state_dict()
    for entry in places.heads:
        parts = unstacked(state[entry.ours].detach().cpu(), entry)
        tensors |= {ROOT + key: part for key, part in parts.items()}
    options = lora.options
    saved = saved_modules(places)
    config = {
        "peft_type": "LORA",
        "task_type": task_type(model, heads),
        "base_model_name_or_path": options.base or None,
        "r": options.rank,
        "lora_alpha": options.alpha,
        "lora_dropout": options.dropout,
        "target_modules": short_names(list(places.modules.values()), places.every),
        "modules_to_save": saved or None,
        "fan_in_fan_out": places.transposed,
        "bias": "none",
        "init_lora_weights": True,
        "inference_mode": True,
    }
    write_weights(tensors, draft / WEIGHTS)
    write_json(draft / CONFIG, config)


def task_type(model: Any, heads: Heads) -> str | None:
    named = [TASKS[name] for name in heads if name in TASKS]
    if named:
        return named[0]
    if model.kind == "encoder-decoder":
        return "SEQ_2_SEQ_LM"
    if {*heads} == {"masked"} and model.causal:
        return "CAUSAL_LM"
    return None


def short_names(names: Sequence[str], every: Iterable[str]) -> list[str]:
    """Returns the ends of names by which peft finds these modules and no other, or whole names."""
    ends: list[str] = []
    for name in names:
        words = name.split(".")
        shorter = (".".join(words[i:]) for i in range(len(words) - 1, -1, -1))
        wanted = {*names}
        fitting = (
            end
            for end in shorter
            if {m for m in every if m == end or m.endswith(f".{end}")} <= wanted
        )
        ends.append(next(fitting, name))
    return list(dict.fromkeys(ends))


def saved_modules(places: AdapterLayout) -> list[str]:
    """Returns the highest modules that hold tensors of heads and nothing else."""
    own = {key.rpartition(".")[0] for entry in places.heads for key in entry.theirs}
    rest = {*places.every} - own
    highest: list[str] = []
    for module in sorted(own):
        words = module.split(".")
        tops = (".".join(words[: i + 1]) for i in range(len(words)))
        highest.append(
            next(t for t in tops if not any(m == t or m.startswith(f"{t}.") for m in rest))
        )
    return list(dict.fromkeys(highest))


def merge_directory(source: Path, out: Path, base: str | None = None) -> Path:
    """Writes the model of a directory with its adapters merged into the weights."""
    from regard.formats.directory import load

    if out.exists():
        raise StorageError(f"{out} exists already; give a directory that does not exist yet")
    loaded = load(source, base=base)
    merge(loaded.model)
    return loaded.save(out)


# -- read


def open_adapter(
    directory: Path, base: str | os.PathLike[str] | None, heads: Heads | None, **options: Any
) -> Checkpoint:
    """Opens the base model of a directory of peft, with its adapters."""
    from regard.formats.directory import load

    config = read_adapter_config(directory)
    place = base or config.get("base_model_name_or_path")
    if not place:
        raise FormatError(
            f"{directory} holds adapters and does not name their model; give its directory: "
            "regard.load(DIR, base=MODEL)"
        )
    source = read_config(Path(place)) if Path(place, "config.json").is_file() else {}
    tensors = read_tensors(directory)
    saved = {key: value for key, value in tensors.items() if not ADAPTER.fullmatch(key)}
    if heads is None and source:
        heads = heads_for(source, config.get("task_type"), tensors, saved, directory)
    loaded = load(place, heads=heads, **options)
    add_adapters(loaded, config, tensors, str(place), directory)
    put_heads(loaded, saved, directory)
    return Checkpoint(
        loaded.model.eval(), loaded.tokenizer, loaded.source, directory, loaded.generation_config
    )


def read_adapter_config(directory: Path) -> dict[str, Any]:
    """Reads adapter_config.json; refuses what would change the result and is not known here."""
    file = directory / CONFIG
    kinds = {"peft_type": str, "r": int, "lora_alpha": int | float}
    config = read_json(file, error=FormatError, advice="copy it again", kinds=kinds) or {}
    if config["peft_type"] != "LORA":
        raise FormatError(f"{file}: peft_type is {config['peft_type']!r}; only LORA can be opened")
    for key, value in config.items():
        only = PLAIN.get(key, ())
        if key in INERT | READ or value in (None, False, {}, []) or value == only or value in only:
            continue
        if key in ("megatron_core", "loftq_config") and not config.get("megatron_config"):
            continue
        raise FormatError(
            f"{file}: {key} is {value!r}, which cannot be computed here; merge the adapters with "
            "peft (merge_and_unload) and open the merged model"
        )
    return config


def read_tensors(directory: Path) -> dict[str, Tensor]:
    file = directory / WEIGHTS
    if not file.is_file():
        raise FormatError(
            f"{directory} has no {WEIGHTS}; save the adapters as safetensors "
            "(save_pretrained does it by default)"
        )
    try:
        tensors = load_file(file)
    except Exception as error:  # the library has no class of its own for all of its errors
        raise FormatError(f"{file} is damaged or truncated ({error}); copy it again") from None
    strange = [key for key in tensors if not key.startswith(ROOT)]
    strange += [key for key in tensors if ".lora_" in key and not ADAPTER.fullmatch(key)]
    if strange:
        raise FormatError(f"{file} holds {strange[0]}, which is no LoRA adapter of a linear map")
    return {key.removeprefix(ROOT): value for key, value in tensors.items()}


def heads_for(
    source: dict[str, Any],  # config.json of the base
    task: Any,
    tensors: Mapping[str, Tensor],
    saved: Mapping[str, Tensor],
    directory: Path,
) -> Heads | None:
    """Returns the heads of the class that the adapters were made for; None: those of the base."""
    format_ = format_of(source["model_type"])
    bare = format_.prefix and not any(key.startswith(format_.prefix) for key in tensors)
    if not saved:
        return format_.classes[format_.base_class] if bare and format_.base_class else None
    config, able = configure(format_, source), []
    for name, heads in format_.classes.items():
        prefix = format_.prefix if name == format_.base_class else ""
        entries = [e for e in format_.table(config, heads) if e.ours.startswith("heads.")]
        keys = {e.ours: e.theirs[0].removeprefix(prefix) for e in entries}
        if {*saved} <= {*keys.values()} and not name.startswith("Regard"):
            able.append((heads, keys))
    able = [each for each in able if task in {TASKS.get(name) for name in each[0]}] or able
    able = [each for each in able if {*each[1].values()} == {*saved}] or able
    if len(able) != 1:
        raise FormatError(
            f"{directory} holds {next(iter(saved))}, and it does not say of which head (task_type "
            f"is {task!r}); name it: regard.load(DIR, heads={{'classify': 2}})"
        )
    (heads, keys), counted = able[0], format_.counted
    return {
        name: saved[keys[f"heads.{name}.out.weight"]].size(0) if name in counted else number
        for name, number in heads.items()
    }


def add_adapters(
    loaded: Checkpoint,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    base: str,
    directory: Path,
) -> None:
    """Adds the adapters of the file to the model."""
    from regard.formats.directory import heads_in

    model, pairs = loaded.model, dict[str, dict[str, Tensor]]()
    for key, value in tensors.items():
        if match := ADAPTER.fullmatch(key):
            pairs.setdefault(match[1], {})[match[2]] = value
    chosen: dict[LoraSite, dict[str, Tensor]] = {}
    for site in sites_of(model):
        try:
            name = layout(model, heads_in(model), [site]).modules[site]
        except Unpublished:
            continue
        if name in pairs:
            chosen[site] = pairs.pop(name)
    if pairs or not chosen:
        name = next(iter(pairs), "nothing")
        raise FormatError(
            f"{directory} has an adapter on {name}, and this {model.family.name} can have none "
            "there; merge the adapters with peft (merge_and_unload) and open the merged model"
        )
    ranks = {pair["A"].size(0) for pair in chosen.values()}
    if ranks != {config["r"]}:
        raise FormatError(f"{directory} has adapters of the ranks {sorted(ranks)}; one is expected")
    alpha = float(config["lora_alpha"])
    if config.get("use_rslora"):  # there the scale is alpha / √rank
        alpha *= math.sqrt(config["r"])
    names = [site.name for site in chosen]
    extend(model, Lora.name, {
        "rank": config["r"], "alpha": alpha, "base": base,
        "dropout": float(config.get("lora_dropout") or 0.0),
        "targets": short_names(names, [site.name for site in sites_of(model)]),
    })  # fmt: skip
    with torch.no_grad():
        for site, pair in chosen.items():
            adapter = adapter_of(model, site)
            for letter, value in pair.items():
                place = getattr(adapter, letter)
                if place.shape != value.shape:
                    raise FormatError(
                        f"{directory}: {letter} of {site.name} has the shape {list(value.shape)}; "
                        f"the model needs {list(place.shape)}"
                    )
                place.copy_(value)


def put_heads(loaded: Checkpoint, saved: Mapping[str, Tensor], directory: Path) -> None:
    """Puts the modules that were trained whole into the heads of the model."""
    from regard.formats.directory import heads_in

    model, left = loaded.model, dict(saved)
    if not left:
        return
    state = model.state_dict()
    for entry in layout(model, heads_in(model), []).heads:
        if all(key in left for key in entry.theirs):
            whole = stacked([left.pop(key) for key in entry.theirs], entry)
            if whole.shape != state[entry.ours].shape:
                raise FormatError(
                    f"{directory}: {entry.theirs[0]} has the shape {list(whole.shape)}; the model "
                    f"needs {list(state[entry.ours].shape)}"
                )
            state[entry.ours].copy_(whole)
    if left:
        raise FormatError(
            f"{directory} holds {next(iter(left))}, and the model has no head with it; merge the "
            "adapters with peft (merge_and_unload) and open the merged model"
        )
