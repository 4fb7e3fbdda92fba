"""Writes files whole or not at all, and reads JSON with clear errors."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.core.errors import FormatError, RegardError, StorageError
from regard.core.tables import brief, fits, words

LARGEST = 2**28  # the most bytes of a JSON file that is read


@contextmanager
def replacing(file: Path, *, flush: bool = False) -> Iterator[Path]:
    """Yields a hidden path beside `file`; what is written there replaces the file, whole or not at
    all.

    With `flush` the content is on the disk before the file gets its name.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        yield part
        if flush:
            flush_file(part)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def write_bytes(file: Path, content: bytes, *, flush: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file, flush=flush) as part:
        part.write_bytes(content)


def write_text(file: Path, text: str, *, errors: str = "strict", flush: bool = False) -> None:
    write_bytes(file, text.encode("utf-8", errors), flush=flush)


def write_json(file: Path, value: Any, *, indent: int = 2, flush: bool = False) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    write_text(file, text + "\n", flush=flush)


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


def flush_file(file: Path) -> None:
    """Forces the content of a file onto the disk (fsync)."""
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())


def flush_directory(directory: Path) -> None:
    """Forces the file names of a directory onto the disk (fsync)."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give_usual_rights(file: Path) -> None:
    """Gives a file the permissions of any new file; safetensors lets only the owner read it."""
    mask = os.umask(0)
    os.umask(mask)
    file.chmod(0o666 & ~mask)
