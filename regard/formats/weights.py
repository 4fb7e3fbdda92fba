"""Reads and writes safetensors, in one file or several: tensor by tensor, and whole files."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regard.core.errors import FormatError, StorageError
from regard.core.files import read_json, replacing
from regard.formats.format import Format

ALIGNED = 64  # bytes; products with unaligned tensors may differ in the last bit
PIECE = 2**22  # bytes that are written and hashed at a time
PYTORCH = {"format": "pt"}  # the metadata by which transformers knows the file
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
LEGACY = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class FormatWeights(Mapping[str, Tensor]):
    """The tensors of a directory under the names of its format, for every prefix or spelling that a
    file may use."""

    def __init__(self, files: dict[str, Any], format_: Format) -> None:
        self.files, self.read = files, set[str]()
        self.floating = not format_.whole_numbers
        self.keys_in_file = {spelled(key, files, format_): key for key in files}
        for repeated, original in format_.same.items():  # a file may hold either of the two
            if repeated in self and original not in self:
                self.keys_in_file[original] = self.keys_in_file.pop(repeated)
        self.apart = [
            repeated
            for repeated, original in format_.same.items()
            if repeated in self and not torch.equal(self[repeated], self[original])
        ]  # tied tensors that differ in the file

    @classmethod
    def open(cls, directory: Path, format_: Format) -> FormatWeights:
        index = directory / "model.safetensors.index.json"
        single = directory / "model.safetensors"
        if single.is_file():
            names = [single.name]
        elif index.is_file():
            names = listed(index)
        else:
            for name in LEGACY:
                if (directory / name).is_file():
                    raise FormatError(
                        f"{directory} has only {name}, a pickle, which can hold code; "
                        f"'regard convert {directory}' makes a safe model.safetensors of it"
                    )
            raise FormatError(f"{directory} has no model.safetensors; give a model directory")
        files: dict[str, Any] = {}
        for name in names:
            file = directory / name
            if not file.is_file():
                raise FormatError(f"{index.name} names {name!r}, which is not in {directory}")
            try:
                opened = safe_open(file, framework="pt")
            except (SafetensorError, OSError) as error:
                raise FormatError(
                    f"{file} is damaged or truncated ({error}); copy it again"
                ) from None
            files |= dict.fromkeys(opened.keys(), opened)
        return cls(files, format_)

    def __getitem__(self, key: str) -> Tensor:
        spelling = self.keys_in_file[key]
        self.read.add(key)
        try:
            value: Tensor = self.files[spelling].get_tensor(spelling)
        except (SafetensorError, RuntimeError, TypeError) as error:
            raise FormatError(f"{spelling} cannot be read from its file: {error}") from None
        if not value.is_floating_point() and self.floating:
            raise FormatError(f"{spelling} is {value.dtype}; weights must be floating-point")
        aligned = value.data_ptr() % ALIGNED == 0
        return value if aligned else value.clone()

    def __contains__(self, key: object) -> bool:
        return key in self.keys_in_file

    def __iter__(self) -> Any:
        return iter(self.keys_in_file)

    def __len__(self) -> int:
        return len(self.keys_in_file)

    def unread(self) -> list[str]:
        return [key for key in self.keys_in_file if key not in self.read]


def read_index(index: Path) -> dict[str, str]:
    """Returns the file of each tensor, as an index names it."""
    kinds, advice = {"weight_map": dict[str, str]}, "download it again"
    table = read_json(index, error=FormatError, advice=advice, kinds=kinds, repeated=True)
    if table is None:
        raise FormatError(f"{index} does not exist; {advice}")
    places: dict[str, str] = table["weight_map"]
    return places


def listed(index: Path) -> list[str]:
    """Returns the files that an index names; none may be outside its directory."""
    names = sorted(set(read_index(index).values()))
    for name in names:
        if Path(name).name != name:
            raise FormatError(f"{index} names {name!r}, which is not a file in its directory")
    return names


def spelled(key: str, keys: Mapping[str, Any], format_: Format) -> str:
    """Returns a key in the published spelling: it translates old names of norms, and adds the
    prefix that base classes leave out."""
    new = key.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )
    if format_.prefix and not any(k.startswith(format_.prefix) for k in keys):
        return format_.prefix + new
    return new


def materialize(model: nn.Module, values: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Fills a model that was built on the meta device. Shared tensors stay shared, and missing ones
    are initialized at random."""
    loaded: dict[int, Tensor] = {}
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]:
        if name in values:
            value = values[name]
            loaded[id(tensor)] = nn.Parameter(value) if isinstance(tensor, nn.Parameter) else value
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if id(tensor) not in loaded:
            if not tensor.is_floating_point():
                raise FormatError(f"the weights have no {name}, and integers cannot be random")
            value = torch.full(tensor.shape, float(name.endswith("norm.weight")), dtype=dtype)
            value = value if value.dim() < 2 else value.normal_(std=0.02)
            loaded[id(tensor)] = nn.Parameter(value) if isinstance(tensor, nn.Parameter) else value
    for module in model.modules():
        for kind in (module._parameters, module._buffers):
            for name, old in kind.items():
                if old is not None:
                    kind[name] = loaded[id(old)]  # type: ignore[assignment]


def write_weights(
    tensors: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] = PYTORCH
) -> None:
    """Writes one safetensors file, whole or not at all."""
    with replacing(file) as part, part.open("wb") as handle:
        contents = (tensors[name].detach() for name in aligned(tensors))
        write_pieces(handle, serialized(tensors, contents, metadata))


def write_pieces(handle: BinaryIO, parts: Iterable[memoryview]) -> dict[str, Any]:
    """Writes, hashes and flushes a file; returns its size and its SHA-256."""
    digest, size = hashlib.sha256(), 0
    for part in parts:
        for start in range(0, len(part), PIECE):
            piece = part[start : start + PIECE]
            handle.write(piece)
            digest.update(piece)
        size += len(part)
    handle.flush()
    os.fsync(handle.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def aligned(tensors: Mapping[str, Tensor]) -> list[str]:
    """Returns the names in file order: large dtypes come first, so that all tensors are aligned."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def serialized(
    tensors: Mapping[str, Tensor],
    contents: Iterator[Tensor],
    metadata: Mapping[str, str] = PYTORCH,
) -> Iterator[memoryview]:
    """Yields a safetensors file in pieces: length of the header, header, tensors. At most one
    tensor is copied at a time."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in aligned(tensors):
        tensor = tensors[name]
        if tensor.dtype not in DTYPES:
            raise StorageError(f"{name} holds {tensor.dtype}, which safetensors does not store")
        begin, end = end, end + math.prod(tensor.shape) * tensor.element_size()
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield memoryview(len(text).to_bytes(8, "little") + text)
    for _ in tensors:
        yield next(contents).cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def check_finite(directory: Path, values: dict[str, Tensor]) -> None:
    """Refuses weights that are NaN or infinite: damaged files hold such numbers. A sum is finite
    only if all its terms are, and it is the quickest way to see each of them once."""
    for name, value in values.items():
        if value.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            value = value.float()  # torch does not sum numbers of 8 bits
        if value.is_floating_point() and not value.sum().isfinite():
            wrong = int(value.numel() - value.isfinite().sum())
            if wrong:  # else the sum alone was too large for its type
                raise FormatError(
                    f"{directory}: {wrong:,} of {value.numel():,} weights of {name} are NaN or "
                    "infinite; the file is damaged or the training diverged, so copy it again, or "
                    "open it with --allow-nan (allow_nan=True)"
                )
