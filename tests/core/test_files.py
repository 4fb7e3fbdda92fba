"""Files are whole or not there; JSON that cannot be used is refused by its name."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.core import atomic_dir, files
from regard.core.atomic_dir import check_place, updating, workplace
from regard.core.errors import FormatError, StorageError
from regard.core.files import read_json, recover, replacing, write_bytes, write_json, write_text
from tests.refusals import refuses

MARKER = "marker.json"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.json"
    for value in ({"a": "中", "b": Path("x")}, {"a": 1}):
        write_json(file, value)
        assert read_json(file) == json.loads(json.dumps(value, default=str))
    write_text(file, "half \ud800", errors="replace")
    assert file.read_bytes() == b"half ?"
    write_bytes(file, b"\0")
    assert file.read_bytes() == b"\0" and names(file.parent) == ["a.json"]


FULL = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO]


@pytest.mark.parametrize(
    "error", [*(OSError(n, os.strerror(n)) for n in FULL), KeyboardInterrupt()]
)
def test_a_writing_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, error: BaseException
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    expected = StorageError if isinstance(error, OSError) else type(error)
    parts = (file, error.strerror) if isinstance(error, OSError) else ()
    with refuses(expected, *parts), replacing(file) as part:
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


# -- nothing goes through a link, and nothing of the dead stays


def test_hidden_files_are_new_and_cannot_be_guessed(tmp_path: Path) -> None:
    """A link at the final name is replaced, not followed; two writers never share a file."""
    precious, file = tmp_path / "precious", tmp_path / "a.txt"
    precious.write_text("precious")
    file.symlink_to(precious)
    with replacing(file) as one, replacing(file) as two:
        assert one != two and one.is_file() and not one.is_symlink()
        one.write_text("one")
        two.write_text("two")
    assert precious.read_text() == "precious"
    assert file.read_text() == "one" and not file.is_symlink()
    with refuses(StorageError, "/dev/null"):
        write_text(Path("/dev/null"), "x")


WRITER = """
import sys, time
from pathlib import Path
from regard.core.atomic_dir import workplace
from regard.core.files import replacing
with replacing(Path(sys.argv[1], "a.txt")) as part, workplace(Path(sys.argv[1], "out"), True, "m"):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_debris_goes_when_its_process_is_dead(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    foreign = tmp_path / ".a.txt.mine.part"
    foreign.touch()
    for alive in (True, False):
        write_text(tmp_path / "a.txt", "new")
        with workplace(tmp_path / "out", True, "m") as work:
            (work / "m").touch()
        hidden = [name for name in names(tmp_path) if name.startswith(".") and "mine" not in name]
        assert len(hidden) == (2 if alive else 0)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert foreign.exists()


# -- directories


def full(place: Path, name: str) -> Path:
    place.mkdir()
    (place / MARKER).write_text(name)
    (place / name).touch()
    return place


def test_a_replacement_is_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At no moment is the destination absent: it is exchanged, never renamed away."""
    out = full(tmp_path / "out", "old")
    plain = Path.rename

    def rename(self: Path, target: Path) -> Path:
        assert self != out
        return plain(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with workplace(out, True, MARKER) as work:
        (work / MARKER).write_text("new")
    assert names(out) == [MARKER] and names(tmp_path) == ["out"]


@pytest.mark.parametrize("renames", [1, 2])
def test_two_steps_are_completed_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """Where nothing can be exchanged, a kill after the first rename loses neither directory."""
    out = full(tmp_path / "out", "old")
    done: list[Path] = []
    plain, remove = Path.rename, files.remove

    class Killed(BaseException):
        pass

    def rename(self: Path, target: Path) -> Path:
        plain(self, target)
        done.append(target)
        if len(done) == renames:
            raise Killed
        return target

    with monkeypatch.context() as patch:
        patch.setattr(atomic_dir, "exchange", lambda one, other: False)
        patch.setattr(atomic_dir, "remove", lambda path: None)  # a killed process removes nothing
        patch.setattr(Path, "rename", rename)
        with pytest.raises(Killed), workplace(out, True, MARKER) as work:
            (work / MARKER).write_text("new")
    assert out.exists() == (renames == 2) and remove is files.remove
    recover(out)
    assert (out / MARKER).read_text() == "new" and names(tmp_path) == ["out"]


@pytest.mark.parametrize("used", [False, True])
def test_an_update_keeps_what_it_does_not_replace(tmp_path: Path, used: bool) -> None:
    out = full(tmp_path / "out", "old")
    (out / "deep").mkdir()
    (out / "deep" / "file").write_text("deep")
    (out / "link").symlink_to("old")
    if used:
        (out / ".lock").touch()
    for text in ("one", "two"):
        with updating(out) as draft:
            (draft / MARKER).write_text(text)
            (draft / "config.json").write_text(text)
        assert (out / MARKER).read_text() == (out / "config.json").read_text() == text
        assert (out / "deep" / "file").read_text() == "deep" and (out / "link").is_symlink()
    with pytest.raises(RuntimeError), updating(out) as draft:
        (draft / MARKER).write_text("half")
        raise RuntimeError
    lock = [".lock"] if used else []
    assert names(out) == [*lock, "config.json", "deep", "link", MARKER, "old"]
    assert (out / MARKER).read_text() == "two" and names(tmp_path) == ["out"]


def test_moved_files_are_completed(tmp_path: Path) -> None:
    """A kill amid the moves: whoever opens the directory next moves the rest."""
    out = full(tmp_path / "out", "old")
    ready = out / f".commit-{'0' * 16}"
    ready.mkdir()
    (ready / MARKER).write_text("new")
    (out / f".writing-{'0' * 16}").mkdir()
    recover(out)
    assert (out / MARKER).read_text() == "new" and names(out) == [MARKER, "old"]
