"""Pickled weights become safetensors; pickled anything else is refused and never runs."""

from __future__ import annotations

import json
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard.core.errors import FormatError
from regard.formats.legacy import convert
from tests.refusals import refuses


def weights() -> dict[str, torch.Tensor]:
    base = torch.randn(4, 6)
    return {
        "embedding": base,
        "tied": base,  # the same memory under two names
        "row": base[1],
        "turned": base.T,
        "half": torch.randn(5).bfloat16(),
        "count": torch.tensor(7),
        "none": torch.empty(0, 3),
    }


def assert_same(tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor), name


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "before torch 1.6"])
def test_every_tensor_survives(tmp_path: Path, archive: bool) -> None:
    expected = weights()
    source = tmp_path / "pytorch_model.bin"
    torch.save(expected, source, _use_new_zipfile_serialization=archive)
    source.chmod(0o644)
    written = convert(tmp_path)
    assert written == tmp_path / "model.safetensors"
    assert_same(load_file(written), expected)
    assert names(tmp_path) == {"pytorch_model.bin", "model.safetensors"}
    assert written.stat().st_mode & 0o777 == 0o644


def test_parameters_are_tensors(tmp_path: Path) -> None:
    state = OrderedDict(weight=torch.nn.Parameter(torch.ones(2)))
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert_same(load_file(convert(tmp_path)), {"weight": torch.ones(2)})


def write_shards(folder: Path, places: dict[str, str]) -> dict[str, torch.Tensor]:
    expected = weights()
    for file in set(places.values()):
        here = {name: tensor for name, tensor in expected.items() if places[name] == file}
        torch.save(here, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    return expected


def test_shards_become_one_file(tmp_path: Path) -> None:
    places = {name: f"pytorch_model-{i % 2}.bin" for i, name in enumerate(weights())}
    expected = write_shards(tmp_path, places)
    assert_same(load_file(convert(tmp_path)), expected)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, dict.fromkeys(weights(), "pytorch_model-1.bin"))
    (tmp_path / "pytorch_model-1.bin").unlink()
    with refuses(FormatError, "pytorch_model-1.bin"):
        convert(tmp_path)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "one.bin")
    index = {"weight_map": {"a": "one.bin", "b": "one.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with refuses(FormatError, "one.bin", "'b'"):
        convert(tmp_path)


@pytest.mark.parametrize("place", ["../outside.bin", "/etc/passwd", "..", "", 3, None, ["x"]])
def test_an_index_cannot_reach_outside(tmp_path: Path, place: Any) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    torch.save({"a": torch.ones(1)}, tmp_path / "outside.bin")
    index = {"weight_map": {"a": place}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with refuses(FormatError, folder):
        convert(folder)
    assert names(folder) == {"pytorch_model.bin.index.json"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": 3}', "\udcff"])
def test_a_damaged_index_is_refused(tmp_path: Path, text: str) -> None:
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_bytes(text.encode("utf-8", "surrogateescape"))
    with refuses(FormatError, index.name):
        convert(tmp_path)


class Trap:
    """Unpickled by an ordinary reader, this makes a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.proof),)


def as_archive(value: Any, file: Path) -> None:
    torch.save(value, file)


def as_stream(value: Any, file: Path) -> None:
    torch.save(value, file, _use_new_zipfile_serialization=False)


def as_pickle(value: Any, file: Path) -> None:
    file.write_bytes(pickle.dumps(value, protocol=2))


@pytest.mark.parametrize("save", [as_archive, as_stream, as_pickle])
@pytest.mark.parametrize("hidden", [False, True], ids=["bare", "among weights"])
def test_a_malicious_file_does_not_run(
    tmp_path: Path, save: Callable[[Any, Path], None], hidden: bool
) -> None:
    folder, proof = tmp_path / "model", tmp_path / "proof"
    folder.mkdir()
    trap = Trap(proof)
    save({"weight": torch.ones(2), "trap": trap} if hidden else trap, folder / "pytorch_model.bin")
    with pytest.raises(FormatError) as refusal:
        convert(folder)
    assert not proof.exists()
    assert names(folder) == {"pytorch_model.bin"}
    assert "weights_only" not in str(refusal.value)  # no advice to switch the safety off
    assert len(str(refusal.value).splitlines()) == 1


def test_the_trap_would_have_worked(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "proof")))
    assert (tmp_path / "proof").is_dir()


def test_a_refusal_names_what_was_asked_for(tmp_path: Path) -> None:
    torch.save({"trap": Trap(tmp_path / "proof")}, tmp_path / "pytorch_model.bin")
    with refuses(FormatError, f"{os.name}.mkdir"):
        convert(tmp_path)


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    """Damages the table of contents, not a weight: those carry no checksum in a pickle."""
    at = data.index(b"embedding")
    return data[: at - 40] + b"\xff" * 40 + data[at:]


@pytest.mark.parametrize(
    "damage", [truncated, flipped, lambda data: b"", lambda data: b"\x80\x02", lambda data: b"PK"]
)
@pytest.mark.parametrize("archive", [True, False], ids=["archive", "stream"])
def test_a_damaged_file_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], archive: bool
) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save(weights(), file, _use_new_zipfile_serialization=archive)
    file.write_bytes(damage(file.read_bytes()))
    with refuses(FormatError, "pytorch_model.bin"):
        convert(tmp_path)
    assert names(tmp_path) == {"pytorch_model.bin"}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"state_dict": {"a": torch.ones(1)}, "epoch": 3}, "'state_dict' holds dict"),
        ([torch.ones(1)], "holds list"),
        ({}, "holds dict"),
        ({"a": torch.eye(2).to_sparse()}, "'a', tensor"),
        ({"a": torch.ones(1, dtype=torch.complex128)}, "complex128"),
    ],
)
def test_what_is_not_a_table_of_weights_is_refused(tmp_path: Path, value: Any, named: str) -> None:
    torch.save(value, tmp_path / "pytorch_model.bin")
    with refuses(FormatError, tmp_path, *named.split(", ")):
        convert(tmp_path)
    assert names(tmp_path) == {"pytorch_model.bin"}


def test_nothing_to_convert(tmp_path: Path) -> None:
    with refuses(FormatError, tmp_path, "convert"):
        convert(tmp_path)
    with refuses(FormatError, tmp_path / "absent", "directory"):
        convert(tmp_path / "absent")


def test_an_existing_file_stays(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    with refuses(FormatError, "model.safetensors", "exists"):
        convert(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == b"mine"
