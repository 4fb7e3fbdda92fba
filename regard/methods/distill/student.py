"""The student of a distillation before it learns: layers of its teacher, or a smaller shape."""

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
from regard.formats.directory import (
    Checkpoint,
    configure,
    heads_in,
    read_config,
    save,
)
from regard.formats.registry import format_of
from regard.methods.distill.teacher import check_extent, check_vocabulary
from regard.models import FAMILIES
from regard.training.recipe import value_of

DEPTHS = ("layers", "decoder_layers")
SMALLER = ("width", "hidden", "heads", "head_size", "embedding", "decoder_heads", "decoder_hidden")
# A weight of a layer: the stack it stands in, its number there, and the rest of its name.
LAYER = re.compile(r"^((?:encoder\.|decoder\.|encoder_|decoder_)?blocks|layers)\.(\d+)\.(.+)$")
BY_LAYER = ("window", "windows", "dilations")  # fields that may have a value for each layer


def shape_of(words: str) -> dict[str, int]:
    """ "layers=6" or "layers=4,width=256,heads=4" as a table."""
    found: dict[str, int] = {}
    for word in filter(None, re.split(r"[,\s]+", words.strip())):
        name, equals, text = word.partition("=")
        value = value_of(text)
        if not equals or not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"{word!r} is no model directory and no part of a student's shape; write "
                "NAME=NUMBER, such as layers=6 or layers=4,width=256,heads=4"
            )
        found[name] = value
    if not found:
        raise ConfigError("the student has no shape; give one, such as layers=6")
    return found


def spread(layers: int, depth: int) -> list[int]:
    """Which of a teacher's layers (from 0) a student begins with: evenly spaced, the first and the
    last among them. For 6 of 12 these are DistilBERT's: 0, 2, 4, 7, 9, 11.
    """
    if layers == 1:
        return [0]
    return [round(i * (depth - 1) / (layers - 1)) for i in range(layers)]


def student_of(teacher: Checkpoint, shape: dict[str, int], seed: int) -> Any:
    """A smaller model of the same family, with the teacher's vocabulary and heads.

    Where only layers are fewer it begins with weights of the teacher: every so many layers, the
    embeddings and the heads. Of another width it begins at random.
    """
    model, config = teacher.model, teacher.config
    check_shape(str(teacher.path), config, model.extensions, shape)
    shape = both_sides(shape, config)
    picked = {
        "encoder": spread(shape.get("layers", config.layers), config.layers),
        "decoder": decoder_layers(shape, config),
    }
    fields = asdict(config)  # what a configuration only derives cannot be set
    per_layer = {
        name: tuple(held[i] for i in picked["encoder"])
        for name in BY_LAYER
        if isinstance(held := fields.get(name), tuple | list) and len(held) == config.layers
    }
    smaller = config.replace(**shape | per_layer)
    build: Any = cast(Any, FAMILIES[model.family.name].model)
    made = build(smaller, heads_in(model)) if hasattr(model, "heads") else build(smaller)
    if set(shape) - set(DEPTHS):
        seed_torch(seed, "student")
        return made.initialise().eval()
    made.load_state_dict(inherited(model.state_dict(), made.state_dict(), picked))
    return made.eval()


def both_sides(shape: dict[str, int], config: Any) -> dict[str, int]:
    """A decoder as deep as its encoder stays so, unless it is named."""
    alike = getattr(config, "decoder_layers", None) == config.layers
    return {"decoder_layers": shape["layers"]} | shape if alike and "layers" in shape else shape


def decoder_layers(shape: dict[str, int], config: Any) -> list[int]:
    """Of a decoder with an encoder; without a number of its own it is as deep as the encoder."""
    if not hasattr(config, "decoder_layers"):
        return []
    depth = config.decoder_layers or config.layers
    usual = config.decoder_layers or shape.get("layers", config.layers)
    return spread(shape.get("decoder_layers", usual), depth)


def check_shape(
    teacher: str, config: Any, extensions: Iterable[str], shape: dict[str, int]
) -> None:
    if added := ", ".join(extensions):
        raise ConfigError(
            f"{teacher} has {added} added to it, which layers of a student cannot be cut from; "
            "give the student as a directory"
        )
    known = [name for name in (*DEPTHS, *SMALLER) if name in asdict(config)]
    for name, value in shape.items():
        if name not in known:
            raise UnknownName("part of a student's shape", name, known)
        held = getattr(config, name)
        if held is None and name == "decoder_layers":
            held = config.layers
        if held is not None and value > held:
            raise ConfigError(
                f"the student would have {name} = {value} and its teacher has {held}; a student "
                "is neither wider nor deeper than its teacher"
            )


def check_directory(student: Path, teacher: Path, *, words: bool) -> None:
    """Refuses a student that is there already and is larger than its teacher. `words`: nothing
    will add to those of either, so both have to have the same now.
    """
    (mine, own), (its, their) = (known(path) for path in (student, teacher))
    if words:
        check_vocabulary(own, their, teacher)
    check_extent(own, their, mine if mine == its else "")


def known(path: Path) -> tuple[str, Any]:
    """The family and the configuration of a directory."""
    given = read_config(path)
    found = format_of(given["model_type"])
    return found.family, configure(found, given)


def inherited(
    teacher: dict[str, Tensor], student: dict[str, Tensor], picked: dict[str, list[int]]
) -> dict[str, Tensor]:
    """The student's weights, by their names, from those of the teacher."""
    found = {}
    for name in student:
        layer = LAYER.match(name)
        source = name
        if layer is not None:
            side = "decoder" if layer[1].startswith("decoder") else "encoder"
            source = f"{layer[1]}.{picked[side][int(layer[2])]}.{layer[3]}"
        found[name] = teacher[source].clone()
    return found


def make_student(
    teacher: Checkpoint, shape: dict[str, int], out: Path, seed: int
) -> dict[str, Any]:
    """Writes the student as a model directory; gives how large both are."""
    made = student_of(teacher, shape, seed)
    with torch.no_grad():
        save(made, out, teacher.tokenizer, teacher.source)
    return {
        "student": made.parameter_count(),
        "teacher": teacher.model.parameter_count(),
        "inherited": not set(shape) - set(DEPTHS),
    }
