"""Files are whole or not there; JSON that cannot be used is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.core import files
from regard.core.atomic_dir import check_place, workplace
from regard.core.errors import FormatError, StorageError
from regard.core.files import read_json, replacing, write_bytes, write_json, write_text
from tests.refusals import refuses

MARKER = "marker.json"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.json"
    for value in ({"a": "中", "b": Path("x")}, {"a": 1}):
        write_json(file, value, flush=True)
        assert read_json(file) == json.loads(json.dumps(value, default=str))
    write_text(file, "half \ud800", errors="replace")
    assert file.read_bytes() == b"half ?"
    write_bytes(file, b"\0")
    assert file.read_bytes() == b"\0" and names(file.parent) == ["a.json"]


@pytest.mark.parametrize("error", [OSError("no room"), KeyboardInterrupt()])
def test_a_writing_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, error: BaseException
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(type(error)), replacing(file) as part:
        part.write_text("half")
        assert file.read_text() == "old"
        raise error
    assert file.read_text() == "old" and names(tmp_path) == ["a.txt"]


LONG = '{"a": "' + "x" * 40 + '"}'


@pytest.mark.parametrize("content", ["{", LONG, "[1]", "[" * 10_000, "\ud800"])
def test_json_that_is_refused(tmp_path: Path, monkeypatch: Any, content: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(content, errors="surrogatepass")
    if content == LONG:
        monkeypatch.setattr(files, "LARGEST", 40)
    for error in (StorageError, FormatError):
        with refuses(error, file, "make it anew"):
            read_json(file, error=error, advice="make it anew")
    assert read_json(tmp_path / "none.json") is None


def test_a_directory_is_whole_or_not_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(RuntimeError), workplace(out, False, MARKER) as work:
        (work / "half").touch()
        raise RuntimeError
    assert names(tmp_path) == []
    for force in (False, True):
        with workplace(out, force, MARKER) as work:
            (work / MARKER).write_text(str(force))
        assert (out / MARKER).read_text() == str(force) and names(tmp_path) == ["out"]
    for place, force, marker, part in (
        (out, False, MARKER, "--force"),
        (out, True, "another.json", "not deleted"),
        (out / MARKER, True, MARKER, "a file"),
    ):
        with refuses(StorageError, place, part):
            check_place(place, force, marker)
