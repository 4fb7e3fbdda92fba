"""Converts a pickled weight file to safetensors, on request: only weights, and no code is executed.

torch's own reader reads the file. With `weights_only` it accepts tensors and plain containers and
refuses everything else that a pickle can contain, before it is built.
"""

from __future__ import annotations

import pickle
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import FormatError
from regard.core.files import NAN_ALLOWED
from regard.formats.weights import DTYPES, check_finite, read_index, write_weights

PICKLE, INDEX, TARGET = "pytorch_model.bin", "pytorch_model.bin.index.json", "model.safetensors"


def convert(path: str | Path) -> Path:
    """Writes `model.safetensors` beside a directory's pickled weights, and returns its path."""
    folder = Path(path)
    if not folder.is_dir():
        raise FormatError(f"{folder} is not a directory; give the one that holds {PICKLE}")
    target = folder / TARGET
    if target.exists():
        raise FormatError(f"{target} exists already; delete it to convert again")
    if (source := folder / PICKLE).exists():
        tensors = read(source)
    elif (source := folder / INDEX).exists():
        tensors = read_shards(source)
    else:
        raise FormatError(f"{folder} holds neither {PICKLE} nor {INDEX}, so there are no weights")
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise FormatError(f"{folder}: {name!r} holds {tensor.dtype}, which no safetensors has")
    if not NAN_ALLOWED.get():
        check_finite(source, tensors)
    write_weights(tensors, target)
    shutil.copymode(source, target)
    return target


def read(file: Path) -> dict[str, Tensor]:
    """Returns the tensors of one pickled file."""
    if not file.is_file():
        raise FormatError(f"{file} is missing")
    try:
        # a file of torch before 1.6 is not an archive and cannot be memory-mapped
        with warnings.catch_warnings(action="ignore"):
            archive = zipfile.is_zipfile(file)
            tensors: Any = torch.load(file, map_location="cpu", weights_only=True, mmap=archive)
    except Exception as error:  # a damaged pickle can raise any error
        raise FormatError(f"{file} {diagnosis(error)}") from error
    if not isinstance(tensors, dict) or not tensors:
        raise FormatError(f"{file} holds {type(tensors).__name__}, not a table of named weights")
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise FormatError(f"{file}: {name!r} holds {type(value).__name__}, not a tensor")
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise FormatError(f"{file}: {name!r} is not a plain tensor ({value.layout})")
    return {name: value.detach() for name, value in tensors.items()}


def diagnosis(error: Exception) -> str:
    """Returns what is wrong, without torch's advice to switch the safety off."""
    text = str(error)
    if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in text:
        wanted = text.split("GLOBAL", 1)[1].split()[0]
        return f"asks for {wanted}, which is not a weight; it is refused and no code was run"
    return "is damaged or is not a file of weights; download it again"


def read_shards(index: Path) -> dict[str, Tensor]:
    """Returns the tensors of all files that an index names, each from the file given there."""
    places = read_index(index)
    files = sorted(set(places.values()))
    tensors: dict[str, Tensor] = {}
    for name in files:
        if Path(name).name != name:
            raise FormatError(f"{index} names {name!r}, which is not a file in its directory")
        shard = read(index.parent / name)
        for key in (key for key, place in places.items() if place == name):
            if key not in shard:
                raise FormatError(f"{index.parent / name} lacks {key!r}, which {index.name} lists")
            tensors[key] = shard[key]
    return tensors
