"""The manifest of a run directory: the size and the SHA-256 of each of its files, by which
`regard info RUN --verify` says what differs, is missing, or was added.

Hidden files are not listed, nor are directories that have a marker of their own: checkpoints,
prepared text, and runs inside the run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.core.errors import StorageError
from regard.core.files import read_json, write_json

FORMAT = 1
MANIFEST = "manifest.json"
OWN = (MANIFEST, "data.json", "recipe.toml")  # a directory with one of them is not part of another
APART = frozenset({"checkpoints", "tensorboard"})


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
