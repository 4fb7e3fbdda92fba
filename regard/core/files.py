"""Writes files whole or not at all, and reads JSON with clear errors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError, StorageError

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
) -> dict[str, Any] | None:
    """Returns the JSON object in a file, or None if there is no file."""
    if not file.is_file():
        return None
    size = file.stat().st_size
    if size > LARGEST:
        raise error(f"{file} has {size:,} bytes, more than {LARGEST:,}; {advice}")
    return parse_json(file.read_bytes(), str(file), error=error, advice=advice)


def parse_json(
    content: bytes,
    name: str,
    *,
    error: type[RegardError] = StorageError,
    advice: str = "write it again",
) -> dict[str, Any]:
    """Returns the object that the content of a JSON file holds; `name` is the file's."""
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as reason:
        raise error(f"{name} is not valid JSON: it is damaged ({reason}); {advice}") from None
    if not isinstance(value, dict):
        raise error(f"{name} holds {type(value).__name__} instead of an object; {advice}")
    return value


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
