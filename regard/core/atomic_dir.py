"""Writes a directory under a hidden name beside its destination and then renames it, so that the
destination never holds half-written files."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.core.errors import InputError, StorageError
from regard.core.files import flush_directory


def check_place(out: Path, force: bool, marker: str) -> None:
    """Refuses a destination that already holds files, before any work is done. `marker` is the name
    of the file that shows that a directory was written by this package: other directories are never
    replaced."""
    if not out.exists() and not out.is_symlink():
        return
    if not out.is_dir():
        raise StorageError(f"{out} is a file; give --out a directory that does not exist yet")
    if not any(out.iterdir()):
        return
    if not (out / marker).is_file():
        raise StorageError(
            f"{out} exists and holds no prepared text (it is not deleted); give another --out"
        )
    if not force:
        raise StorageError(f"{out} exists already; give another --out, or --force to replace it")


@contextmanager
def hidden_beside(out: Path) -> Iterator[Path]:
    """Yields a hidden directory beside `out`. It is deleted at the end, unless it was moved."""
    work = out.parent / f".{out.name}.{secrets.token_hex(4)}.part"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir()
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror}") from None
    try:
        yield work
    except OSError as error:
        name = str(error.filename or work)
        if name.startswith(str(work)):
            raise StorageError(
                f"{out} could not be written: {error.strerror}; nothing is left behind"
            ) from None
        raise InputError(f"{name}: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def workplace(out: Path, force: bool, marker: str) -> Iterator[Path]:
    """Yields a hidden directory beside `out` that is renamed to `out` at the end, or deleted after
    an error. The rename is one step; an old directory is deleted only when the new one is in its
    place."""
    with hidden_beside(out) as work:
        yield work
        check_place(out, force, marker)
        old = work.with_suffix(".old")
        if out.exists() and any(out.iterdir()):
            out.rename(old)
        try:
            work.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
        shutil.rmtree(old, ignore_errors=True)
        flush_directory(out.parent)
