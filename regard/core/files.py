"""Writes files whole or not at all, and reads JSON with clear errors."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from regard.core.errors import FormatError, RegardError, StorageError
from regard.core.tables import brief, fits, words

LARGEST = 2**28  # the most bytes of a JSON file that is read
LONGEST = 180  # bytes of a name that a hidden name repeats
WRITING, COMMIT = ".writing-", ".commit-"  # files inside a directory, not complete and complete
DEBRIS = re.compile(r"\.writing-[0-9a-f]{16}|\..+\.[0-9a-f]{16}\.part")
LAST = "config.json"  # the file that makes a model directory complete
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NAN_ALLOWED = ContextVar("NAN_ALLOWED", default=False)  # in the weights that a command opens


@contextmanager
def storing(target: Path, *parts: Path) -> Iterator[None]:
    """Turns an error of the system into a StorageError that names `target`, the file that the user
    knows. `parts` are the hidden files and directories that become `target`. An error that names
    another file, neither inside one of these nor a directory above it, passes."""
    try:
        yield
    except OSError as error:
        named = None if error.filename is None else Path(os.fsdecode(error.filename))
        ours = (target, *parts)
        if named and not any(named.is_relative_to(p) or p.is_relative_to(named) for p in ours):
            raise
        raise StorageError(
            f"{target} cannot be written: {error.strerror or error}; nothing was replaced. Free "
            "disk space, change the permissions, or choose another place"
        ) from None


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Yields a new hidden file beside `file`; what is written there replaces the file, whole or not
    at all. It is on the disk before it gets its name, and the name is when this returns."""
    file = Path(file)
    with storing(file, file.parent):
        if file.exists() and not file.is_file():
            raise StorageError(f"{file} is no regular file, and it is not replaced; name a file")
        remove_debris(file)
        part, handle = create_hidden(part_of(file), file.parent)
    try:
        with storing(file, part):
            yield part
            flush_file(part)
            part.replace(file)
            flush_directory(file.parent)
    finally:
        remove(part)
        with storing(file):
            os.close(handle)


def write_bytes(file: Path, content: bytes) -> None:
    with storing(file):
        make_directory(file.parent)
    with replacing(file) as part:
        part.write_bytes(content)


def write_text(file: Path, text: str, *, errors: str = "strict") -> None:
    write_bytes(file, text.encode("utf-8", errors))


def write_json(file: Path, value: Any, *, indent: int = 2) -> None:
    write_text(file, json.dumps(value, indent=indent, ensure_ascii=False, default=str) + "\n")


def copy_file(source: Path, target: Path) -> None:
    """Copies a file; the copy is complete or does not exist."""
    with replacing(target) as part:
        shutil.copyfile(source, part)


def open_new(file: Path) -> BinaryIO:
    """Opens a file that does not exist yet, for writing."""
    return os.fdopen(os.open(file, NEW, 0o666), "wb")


# -- hidden names: they cannot be guessed, and a lock shows that their process lives


def create_hidden(pattern: str, place: Path, *, directory: bool = False) -> tuple[Path, int]:
    """Creates a hidden file or directory in `place`; its name is `pattern` with a random number for
    the star. Returns its path and a locked descriptor to close at the end: as long as it is open,
    no other process removes it as debris."""
    while True:
        path = place / pattern.replace("*", secrets.token_hex(8))
        if directory:
            path.mkdir()
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        else:
            handle = os.open(path, NEW, 0o666)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists():  # else another process took it for debris before it was locked
            return path, handle
        os.close(handle)


def part_of(target: Path) -> str:
    """Returns the pattern of the hidden names of what is to become `target`."""
    return f".{os.fsdecode(os.fsencode(target.name)[:LONGEST])}.*.part"


def hidden_of(target: Path, ending: str = "part|old") -> list[Path]:
    """Returns the hidden files and directories beside `target` that were to become it."""
    stem = part_of(target).partition("*")[0]
    pattern = re.compile(rf"{re.escape(stem)}[0-9a-f]{{16}}\.({ending})")
    try:
        with os.scandir(target.parent) as entries:
            names = [entry.name for entry in entries if pattern.fullmatch(entry.name)]
    except OSError:  # the directory does not exist or cannot be read
        return []
    return [target.with_name(name) for name in sorted(names)]


def remove_debris(target: Path) -> None:
    """Removes what processes that were killed left beside `target`."""
    for path in hidden_of(target):
        if is_abandoned(path):
            remove(path)


def is_abandoned(path: Path) -> bool:
    """Tells whether a hidden path is our user's and no living process has locked it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(handle).st_uid == os.geteuid()
    except OSError:
        return False
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Removes a file or a directory if it is there and can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


# -- directories that were being replaced (see `atomic_dir`)


def recover(out: Path) -> None:
    """Completes a replacement of `out` that was cut off, and removes what dead processes left
    beside and inside it. A directory that another user owns is left as it is."""
    out = Path(out)
    if not os.path.lexists(out):
        for old in hidden_of(out, "old"):
            new = old.with_suffix(".part")
            if is_abandoned(new if new.exists() else old):
                with storing(out):
                    (new if new.exists() else old).rename(out)
                    flush_directory(out.parent)
                break
    remove_debris(out)
    if not out.is_dir() or not os.access(out, os.W_OK):
        return
    for path in sorted(out.iterdir()):
        if path.name.startswith(COMMIT):
            move_files(path, out)
        elif DEBRIS.fullmatch(path.name) and is_abandoned(path):
            remove(path)


def move_files(ready: Path, out: Path) -> None:
    """Moves complete files to their places. Several processes may do it at once."""
    with suppress(FileNotFoundError):
        for file in sorted(ready.iterdir(), key=lambda file: file.name == LAST):
            with suppress(FileNotFoundError):
                file.replace(out / file.name)
        flush_directory(out)
        ready.rmdir()


# -- onto the disk


def make_directory(directory: Path) -> None:
    """Makes a directory and its parents, and forces their names onto the disk."""
    missing = [p for p in (directory, *directory.parents) if not p.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        flush_directory(path.parent)


def flush_file(file: Path) -> None:
    """Forces the content of a file onto the disk (fsync)."""
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())


def flush_directory(directory: Path) -> None:
    """Forces the file names of a directory onto the disk (fsync)."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        error.filename = str(directory)
        raise
    finally:
        os.close(handle)


def flush_tree(directory: Path) -> None:
    """Forces everything in a directory onto the disk, files before the directories that name
    them."""
    for place, _, names in os.walk(directory, topdown=False):
        for name in names:
            file = Path(place, name)
            if not file.is_symlink():
                flush_file(file)
        flush_directory(Path(place))


# -- JSON


def read_json(
    file: Path,
    *,
    error: type[RegardError] = StorageError,
    advice: str = "remove it to make it again",
    **checks: Any,
) -> dict[str, Any] | None:
    """Returns the JSON object in a file, or None if there is no file; `checks` are those of
    `parse_json`."""
    if not file.is_file():
        return None
    size = file.stat().st_size
    if size > LARGEST:
        raise error(f"{file} has {size:,} bytes, more than {LARGEST:,}; {advice}")
    return parse_json(file.read_bytes(), str(file), error=error, advice=advice, **checks)


def parse_json(
    content: bytes,
    name: str,
    *,
    error: type[RegardError] = StorageError,
    advice: str = "write it again",
    kinds: Mapping[str, Any] | None = None,
    repeated: bool = False,
    nan: bool = False,
) -> dict[str, Any]:
    """Returns the object that the content of a JSON file holds; `name` is the file's.

    `kinds` has the annotation that the value of a key must fit; a key may be missing if None fits.
    A key must not occur twice unless `repeated` is true (in files of others), and no number may be
    NaN or infinite unless `nan` is true (in figures that were measured).
    """
    hooks: dict[str, Any] = {} if repeated else {"object_pairs_hook": without_repetition}
    hooks |= {} if nan else {"parse_constant": refuse_constant, "parse_float": finite}
    try:
        value = json.loads(content.decode("utf-8"), **hooks)
    except (ValueError, RecursionError) as reason:
        raise error(f"{name} is not valid JSON: it is damaged ({reason}); {advice}") from None
    if not isinstance(value, dict):
        raise error(f"{name} holds {type(value).__name__} instead of an object; {advice}")
    check_kinds(value, kinds or {}, name, error=error, advice=advice)
    return value


def check_kinds(
    table: Mapping[str, Any],
    kinds: Mapping[str, Any],
    name: str,
    *,
    error: type[RegardError] = StorageError,
    advice: str,
) -> None:
    """Refuses a table of a file in which a value does not fit the annotation of its key."""
    for key, kind in kinds.items():
        if key not in table and not fits(None, kind):
            raise error(f"{name} has no {key!r}; {advice}")
        if not fits(table.get(key), kind):
            raise error(
                f"{key!r} of {name} is {brief(table[key])}; it must be {words(kind)}; {advice}"
            )


def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(n for n in names if names.count(n) > 1)!r} twice")
    return table


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


@contextmanager
def naming(file: Path | str, error: type[RegardError] = FormatError) -> Iterator[None]:
    """Adds the name of the file to an error of ours: what is wrong was read from it."""
    try:
        yield
    except RegardError as reason:
        raise error(f"{file}: {reason}") from None
