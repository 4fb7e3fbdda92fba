"""Builds things that several claims use once, in the process that needs them first; and digests the
code that measures, so that results of other code are not reused."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from regard.core.processes import OPENED, is_same

# modules that do not measure
SHOWS = {"claim", "rules", "rulings", "means", "chart", "page", "parallel"}
ENGINE = tuple(
    file for file in sorted(Path(__file__).parent.glob("*.py")) if file.stem not in SHOWS
)


def mark(*files: str | Path) -> str:
    """Returns a digest of the bytes of these files; a changed comment changes it, too."""
    code = b"".join(Path(file).read_bytes() for file in files)
    return hashlib.blake2b(code, digest_size=4).hexdigest()


def once(out: Path, whole: str, make: Callable[[], Any]) -> Path:
    """Makes `out` if it is not complete, and returns it. It is complete when it has the file
    `whole`. Other processes that need it wait meanwhile."""
    if not (out / whole).is_file():
        with alone(out):
            if not (out / whole).is_file():
                make()
    return out


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Holds a lock, so that one process works at a time. On a file system without locks,
    all may."""
    out.parent.mkdir(parents=True, exist_ok=True)
    lock = out.with_name(f".{out.name}.lock")
    while True:
        handle = os.open(lock, OPENED, 0o644)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        if is_same(handle, lock):  # else its last holder removed it
            break
        os.close(handle)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)
