"""The files by which sentence-transformers knows how hidden states become a vector: modules.json
and a directory for each module. Their order is a transformer, a pooling, and any number of dense
layers and normalizations.

A dense layer is read from safetensors only. What cannot be computed exactly is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers.normalizers import Lowercase
from torch import Tensor
from torch.nn import functional as F

from regard.core.errors import FormatError
from regard.core.files import copy_file, read_json, write_json

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
POOLINGS = {  # theirs -> ours
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
NEWER = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Tanh": torch.tanh, "Identity": lambda x: x, "ReLU": F.relu, "GELU": F.gelu, "SiLU": F.silu,
    "Sigmoid": torch.sigmoid,
}  # fmt: skip
ADVICE = "restore it"
UNLIMITED = 2**31  # a longer text is no limit: transformers writes 10³⁰ for it


@dataclass(frozen=True)
class DenseLayer:
    """activation(W x + b)."""

    weight: Tensor
    bias: Tensor | None
    activation: str

    def __call__(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](F.linear(x, self.weight, self.bias))


def unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


@dataclass(frozen=True)
class SentencePipeline:
    """What happens to the hidden states of a text."""

    pooling: str = "mean"
    steps: tuple[Callable[[Tensor], Tensor], ...] = ()  # after the pooling, in order
    length: int | None = None  # the most tokens of a text
    lower: bool = False  # texts are put into lower case first
    prompt: str = ""  # stands before every text

    def prepared(self, text: str) -> str:
        """Returns a text as the tokenizer reads it."""
        text = self.prompt + text
        return str(Lowercase().normalize_str(text)) if self.lower else text


def transformer_place(directory: Path) -> Path:
    """Returns the directory of the model itself: older ones hold it in 0_Transformer."""
    if (directory / "config.json").is_file() or not (directory / MODULES).is_file():
        return directory
    first = modules_of(directory)[0]
    return inside(directory, str(first.get("path", "")))


def modules_of(directory: Path) -> list[dict[str, Any]]:
    file = directory / MODULES
    try:
        listed: Any = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as reason:
        raise FormatError(f"{file} is not valid JSON: {reason}; {ADVICE}") from None
    good = isinstance(listed, list) and listed and all(isinstance(one, dict) for one in listed)
    if not good or kind_of(listed[0]) != "Transformer":
        raise FormatError(f"{file} is no list of modules that begins with a Transformer; {ADVICE}")
    return list(listed)


def kind_of(module: dict[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def inside(directory: Path, name: str) -> Path:
    """Returns a directory that a file names; it must not be outside."""
    place = directory / name
    if not place.resolve().is_relative_to(directory.resolve()):
        raise FormatError(f"{directory / MODULES} names {name!r}, which is outside the directory")
    return place


def read_pipeline(directory: Path | None) -> SentencePipeline | None:
    """Returns the pipeline of a directory of sentence-transformers; None: it is another one."""
    if directory is None or not (directory / MODULES).is_file():
        return None
    first, *rest = modules_of(directory)
    if not rest or kind_of(rest[0]) != "Pooling":
        raise FormatError(f"{directory / MODULES} names no Pooling after its Transformer; {ADVICE}")
    settings = table(inside(directory, str(first.get("path", ""))) / "sentence_bert_config.json")
    pooling = pooling_of(inside(directory, str(rest[0].get("path", ""))) / "config.json")
    steps: list[Callable[[Tensor], Tensor]] = []
    for module in rest[1:]:
        kind, place = kind_of(module), inside(directory, str(module.get("path", "")))
        if kind == "Normalize":
            steps.append(unit)
        elif kind == "Dense":
            steps.append(dense_of(place))
        elif kind != "Dropout":  # which does nothing once a model is trained
            raise FormatError(
                f"{directory / MODULES} has a module {kind!r}, which cannot be computed here; "
                "Pooling, Dense, Normalize and Dropout can"
            )
    prompts = table(directory / PROMPTS)
    named = prompts.get("default_prompt_name")
    prompt = str((prompts.get("prompts") or {}).get(named, "")) if named else ""
    if prompt and not table_includes_prompt(inside(directory, str(rest[0].get("path", "")))):
        raise FormatError(
            f"{directory} leaves its prompt {prompt!r} out of the pooling, which cannot be done "
            "here"
        )
    tokens = table(inside(directory, str(first.get("path", ""))) / "tokenizer_config.json")
    length = settings.get("max_seq_length") or tokens.get("model_max_length")
    known = int(length) if isinstance(length, int | float) and length < UNLIMITED else None
    return SentencePipeline(
        pooling, tuple(steps), known,
        settings.get("do_lower_case") is True, prompt,
    )  # fmt: skip


def table_includes_prompt(place: Path) -> bool:
    return table(place / "config.json").get("include_prompt", True) is not False


def table(file: Path) -> dict[str, Any]:
    return read_json(file, error=FormatError, advice=ADVICE) or {}


def pooling_of(file: Path) -> str:
    config = table(file)
    newer = config.get("pooling_mode")
    if newer is not None:
        modes = [newer] if isinstance(newer, str) else list(newer)
        known = NEWER
    else:
        modes = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
        modes, known = modes or ["pooling_mode_mean_tokens"], POOLINGS
    if len(modes) != 1 or modes[0] not in known:
        raise FormatError(
            f"{file} pools by {', '.join(map(str, modes))}; what can be computed here is one of "
            f"{', '.join(known)}"
        )
    return known[modes[0]]


def dense_of(place: Path) -> DenseLayer:
    config = table(place / "config.json")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    name = activation.rpartition(".")[2]
    names = {config.get("module_input_name"), config.get("module_output_name")}
    if name not in ACTIVATIONS or config.get("use_residual") or not names <= {
        None, "sentence_embedding"
    }:  # fmt: skip
        raise FormatError(
            f"{place / 'config.json'}: a dense layer with {activation} and these inputs cannot be "
            f"computed here; known activations are {', '.join(ACTIVATIONS)}"
        )
    file = place / "model.safetensors"
    if not file.is_file():
        raise FormatError(
            f"{place} has no model.safetensors; 'regard convert {place}' makes one of a pickle"
        )
    try:
        tensors = load_file(file)
        weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
    except Exception as error:  # the library has no class of its own for all of its errors
        raise FormatError(f"{file} is damaged ({error}); copy it again") from None
    if list(weight.shape) != [config.get("out_features"), config.get("in_features")]:
        raise FormatError(f"{file} has the shape {list(weight.shape)}; config.json says another")
    return DenseLayer(weight, bias, name)


def write_pipeline(
    out: Path, *, pooling: str, normalize: bool, length: int | None, width: int
) -> None:
    """Writes the files beside a saved model; a length of None is no limit."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
         "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]  # fmt: skip
    modes = {theirs: ours == pooling for theirs, ours in POOLINGS.items()}
    for place in modules[1:]:
        (out / str(place["path"])).mkdir(exist_ok=True)
    write_json(out / "1_Pooling" / "config.json", {"word_embedding_dimension": width} | modes)
    write_json(
        out / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False}
    )
    write_json(
        out / PROMPTS,
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    write_json(out / MODULES, modules)


def copy_pipeline(source: Path, target: Path) -> None:
    """Copies the modules beside the transformer to another directory, if there are any."""
    if not (source / MODULES).is_file():
        return
    modules = modules_of(source)
    for module in modules[1:]:
        name = str(module.get("path", ""))
        (target / name).mkdir(parents=True, exist_ok=True)
        for file in inside(source, name).glob("*"):
            if file.name in ("config.json", "model.safetensors"):
                copy_file(file, target / name / file.name)
    place = inside(source, str(modules[0].get("path", "")))
    for file in (place / "sentence_bert_config.json", source / PROMPTS):
        if file.is_file():
            copy_file(file, target / file.name)
    write_json(target / MODULES, [modules[0] | {"path": ""}, *modules[1:]])
