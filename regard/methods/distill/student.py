"""The student of a distillation before training: with layers of its teacher, or with a smaller
shape."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from regard.core.errors import ConfigError, UnknownName
from regard.core.seeding import seed_torch
from regard.formats.directory import Checkpoint, heads_in, save
from regard.methods.distill.teacher import check_extent, check_vocabulary
from regard.methods.runs import model_facts
from regard.models import FAMILIES
from regard.training.recipe import value_of

DEPTHS = ("layers", "decoder_layers")
SMALLER = (
    "width",
    "ffn_size",
    "heads",
    "head_size",
    "embedding",
    "decoder_heads",
    "decoder_ffn_size",
)
# The name of a layer's weight: its stack, its number in the stack, and the rest of its name.
LAYER = re.compile(r"^((?:encoder\.|decoder\.|encoder_|decoder_)?blocks|layers)\.(\d+)\.(.+)$")
BY_LAYER = ("window", "windows", "dilations")  # fields that may have a value for each layer


def shape_of(words: str) -> dict[str, int]:
    """Parses "layers=6" or "layers=4,width=256,heads=4" into a table."""
    shape: dict[str, int] = {}
    for word in filter(None, re.split(r"[,\s]+", words.strip())):
        name, equals, text = word.partition("=")
        value = value_of(text)
        if not equals or not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"{word!r} is no model directory and no part of a student's shape; write "
                "NAME=NUMBER, such as layers=6 or layers=4,width=256,heads=4"
            )
        shape[name] = value
    if not shape:
        raise ConfigError("the student has no shape; give one, such as layers=6")
    return shape


def spread(layers: int, depth: int) -> list[int]:
    """Returns the teacher's layers (from 0) that a student starts with: evenly spaced, with the
    first and the last. For 6 of 12 layers these are DistilBERT's: 0, 2, 4, 7, 9, 11."""
    if layers == 1:
        return [0]
    return [round(i * (depth - 1) / (layers - 1)) for i in range(layers)]


def student_of(teacher: Checkpoint, shape: dict[str, int], seed: int) -> Any:
    """Builds a smaller model of the same family, with the teacher's vocabulary and heads.

    If only the number of layers is smaller, the student starts with weights of the teacher: evenly
    spaced layers, the embeddings and the heads. With another width it starts at random.
    """
    model, config = teacher.model, teacher.config
    check_shape(str(teacher.path), config, model.extensions, shape)
    decoder = getattr(config, "decoder_layers", None)
    if decoder == config.layers and "layers" in shape:
        # A decoder as deep as its encoder stays as deep as it, unless decoder_layers is given.
        shape = {"decoder_layers": shape["layers"]} | shape
    layers = shape.get("layers", config.layers)
    picked = {"encoder": spread(layers, config.layers)}
    if hasattr(config, "decoder_layers"):  # None: as deep as the encoder
        new = shape.get("decoder_layers", decoder or layers)
        picked["decoder"] = spread(new, decoder or config.layers)
    fields = asdict(config)  # without properties that are derived and cannot be set
    per_layer = {
        name: tuple(values[i] for i in picked["encoder"])
        for name in BY_LAYER
        if isinstance(values := fields.get(name), tuple | list) and len(values) == config.layers
    }
    smaller = config.replace(**shape | per_layer)
    build: Any = cast(Any, FAMILIES[model.family.name].model)
    student = build(smaller, heads_in(model)) if hasattr(model, "heads") else build(smaller)
    if set(shape) - set(DEPTHS):
        seed_torch(seed, "student")
        return student.initialize().eval()
    student.load_state_dict(inherited(model.state_dict(), student.state_dict(), picked))
    return student.eval()


def check_shape(
    teacher: str, config: Any, extensions: Iterable[str], shape: dict[str, int]
) -> None:
    if added := ", ".join(extensions):
        raise ConfigError(
            f"{teacher} has the extensions {added}, and a student cannot be made from it; give the "
            "student as a model directory"
        )
    known = [name for name in (*DEPTHS, *SMALLER) if name in asdict(config)]
    for name, value in shape.items():
        if name not in known:
            raise UnknownName("part of a student's shape", name, known)
        theirs = getattr(config, name)
        if theirs is None and name == "decoder_layers":
            theirs = config.layers
        if theirs is not None and value > theirs:
            raise ConfigError(
                f"the student would have {name} = {value} and its teacher has {theirs}; a student "
                "must not be larger than its teacher: give a smaller number"
            )


def check_directory(student: Path, teacher: Path, *, words: bool) -> None:
    """Raises ConfigError if an existing student is larger than its teacher. With `words`, nothing
    will add tokens to either of them, so their vocabularies must be the same already."""
    own, their = model_facts(student), model_facts(teacher)
    if words:
        check_vocabulary(own.config, their.config, teacher)
    check_extent(own.config, their.config, own.family if own.family == their.family else "")


def inherited(
    teacher: dict[str, Tensor], student: dict[str, Tensor], picked: dict[str, list[int]]
) -> dict[str, Tensor]:
    """Returns the weights of the student, by name, copied from the teacher."""
    weights = {}
    for name in student:
        layer = LAYER.match(name)
        source = name
        if layer is not None:
            side = "decoder" if layer[1].startswith("decoder") else "encoder"
            source = f"{layer[1]}.{picked[side][int(layer[2])]}.{layer[3]}"
        weights[name] = teacher[source].clone()
    return weights


def make_student(
    teacher: Checkpoint, shape: dict[str, int], out: Path, seed: int
) -> dict[str, Any]:
    """Writes the student as a model directory and returns the sizes of both models."""
    student = student_of(teacher, shape, seed)
    with torch.no_grad():
        save(student, out, teacher.tokenizer, teacher.source)
    return {
        "student": student.parameter_count(),
        "teacher": teacher.model.parameter_count(),
        "inherited": not set(shape) - set(DEPTHS),
    }
