"""Writes a directory under a hidden name beside its destination and then exchanges the two, so that
the destination is always a whole directory: the old one or the new one.

Where the system cannot exchange two names in one step, the old directory is renamed first. If the
process is killed between the two steps, `files.recover` completes the second; every command that
opens or replaces the directory calls it.

A run directory has a manifest: the size and the SHA-256 of each of its files, by which `regard info
RUN --verify` says what differs, is missing, or was added. Hidden files are not listed, nor are
directories that have a marker of their own: checkpoints, prepared text, and runs inside the run.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.core.errors import InputError, StorageError
from regard.core.files import (
    COMMIT,
    WRITING,
    create_hidden,
    flush_directory,
    flush_tree,
    make_directory,
    move_files,
    part_of,
    read_json,
    recover,
    remove,
    storing,
    write_json,
)

EXCHANGE = 2  # RENAME_EXCHANGE
HERE = -100  # AT_FDCWD: relative paths begin at the working directory
IN_PARTS = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}  # no exchange on this system
FORMAT = 1
MANIFEST = "manifest.json"
OWN = (MANIFEST, "data.json", "recipe.toml")  # a directory with one of them is not part of another
APART = frozenset({"checkpoints", "tensorboard", "wandb", "mlruns", "trackio"})


def check_place(out: Path, force: bool, marker: str) -> None:
    """Refuses a destination that already holds files, before any work is done. `marker` is the name
    of the file that shows that a directory was written by this package: other directories are never
    replaced."""
    recover(out)
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
    with storing(out, out.parent):
        make_directory(out.parent)
        recover(out)
        work, handle = create_hidden(part_of(out), out.parent, directory=True)
    try:
        with final_names(work, out):
            yield work
    except OSError as error:
        name = str(error.filename or work)
        if name.startswith((str(work), str(out))):
            raise StorageError(
                f"{out} cannot be written: {error.strerror}; nothing is left behind"
            ) from None
        raise InputError(f"{name}: {error.strerror}") from None
    finally:
        remove(work)
        os.close(handle)


@contextmanager
def final_names(work: Path, out: Path) -> Iterator[None]:
    """Lets an error about a file in the hidden directory `work` name the file in `out` that it was
    to become."""
    try:
        yield
    except StorageError as error:
        raise StorageError(str(error).replace(str(work), str(out))) from None


@contextmanager
def workplace(out: Path, force: bool, marker: str) -> Iterator[Path]:
    """Yields a hidden directory beside `out` that becomes `out` at the end, or is deleted after an
    error."""
    with hidden_beside(out) as work:
        yield work
        check_place(out, force, marker)
        put(work, out)


@contextmanager
def updating(out: Path) -> Iterator[Path]:
    """Yields a directory to write files into. At the end they stand in `out`, all at once, beside
    the files that `out` already has; files of the same name are replaced.

    A directory that is in use (a run that holds its lock, the working directory, a mount point)
    must stay the same directory: the files are moved into it one by one, which `recover` completes
    after a kill."""
    recover(out)
    out = out.resolve()
    if is_in_use(out):
        with inside(out) as draft:
            yield draft
        return
    with hidden_beside(out) as draft:
        yield draft
        if out.is_dir():
            link_others(out, draft)
        put(draft, out)


def put(work: Path, out: Path) -> None:
    """Puts the finished hidden directory `work` in the place of `out`, and deletes what was
    there."""
    flush_tree(work)
    if not out.exists() or not any(out.iterdir()):
        work.rename(out)
    elif not exchange(work, out):
        old = work.with_suffix(".old")
        out.rename(old)
        flush_directory(out.parent)
        work.rename(out)
        flush_directory(out.parent)
        remove(old)
    flush_directory(out.parent)


def exchange(one: Path, other: Path) -> bool:
    """Exchanges two directories in one step; returns False where the system cannot."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if call(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in IN_PARTS:
        return False
    raise OSError(number, os.strerror(number), str(other))


# -- into a directory that stays


def is_in_use(out: Path) -> bool:
    """Tells whether a directory must not be exchanged for another."""
    if not out.is_dir():
        return False
    writable = os.access(out.parent, os.W_OK)
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was deleted
        here = Path("/")
    locked = (out / ".lock").exists()
    return locked or here.is_relative_to(out) or not writable or out.is_mount()


@contextmanager
def inside(out: Path) -> Iterator[Path]:
    """Yields a hidden directory in `out`; its files are moved to `out` at the end."""
    with storing(out):
        draft, handle = create_hidden(f"{WRITING}*", out, directory=True)
    try:
        with storing(out), final_names(draft, out):
            yield draft
            flush_tree(draft)
            ready = draft.rename(out / draft.name.replace(WRITING, COMMIT))
            flush_directory(out)
            move_files(ready, out)
    finally:
        remove(draft)
        os.close(handle)


def link_others(out: Path, draft: Path) -> None:
    """Gives `draft` the files of `out` that it has not, as links to the same content; where the
    file system has no such links, as copies."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            shutil.copy2(source, target, follow_symlinks=False)

    for entry in out.iterdir():
        target = draft / entry.name
        if os.path.lexists(target):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target, symlinks=True, copy_function=link)
        else:
            link(str(entry), str(target))


# -- the manifest


def write_manifest(directory: Path) -> None:
    """Writes the manifest of all files that are in the directory now."""
    files = {name: entry_of(directory / name) for name in listed_files(directory)}
    write_json(directory / MANIFEST, {"format": FORMAT, "files": files})


def renew_manifest(old: Path, draft: Path) -> None:
    """Writes a manifest into `draft` if `old`, whose files it is going to replace, has one: entries
    of files that are not replaced stay."""
    known = read_manifest(old)
    if known is not None:
        files = known | {name: entry_of(draft / name) for name in listed_files(draft)}
        write_json(draft / MANIFEST, {"format": FORMAT, "files": files})


def listed_files(directory: Path) -> Iterator[str]:
    """Yields the names of the files that a manifest lists, relative to the directory."""
    for place, inner, names in os.walk(directory):
        here = Path(place)
        inner[:] = sorted(
            name
            for name in inner
            if not name.startswith(".")
            and not (here == directory and name in APART)
            and not any((here / name / marker).is_file() for marker in OWN)
        )
        for name in sorted(names):
            if not name.startswith(".") and not (here == directory and name == MANIFEST):
                yield (here / name).relative_to(directory).as_posix()


def entry_of(file: Path) -> dict[str, Any]:
    with file.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return {"bytes": file.stat().st_size, "sha256": digest}


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Returns the entries of a manifest by file name, or None if there is no manifest."""
    table = read_json(directory / MANIFEST)
    if table is None:
        return None
    files = table.get("files")
    if table.get("format") != FORMAT or not isinstance(files, dict):
        raise StorageError(f"{directory / MANIFEST} is no manifest of format {FORMAT}")
    return files


def compare_with_manifest(directory: Path) -> dict[str, Any] | None:
    """Returns the number of files of the manifest, and the names of those that differ, are missing,
    or are extra; or None if the directory has no manifest."""
    files = read_manifest(directory)
    if files is None:
        return None
    present = set(listed_files(directory))
    return {
        "files": len(files),
        "differs": sorted(n for n in present & set(files) if entry_of(directory / n) != files[n]),
        "missing": sorted(set(files) - present),
        "extra": sorted(present - set(files)),
    }
