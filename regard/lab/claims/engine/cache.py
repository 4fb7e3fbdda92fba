"""What several claims use is made once, by whoever asks first."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def once(out: Path, mark: str, make: Callable[[], Any]) -> Path:
    """`out`, which is whole when it has the file `mark`; others who want it wait meanwhile."""
    if not (out / mark).is_file():
        with alone(out):
            if not (out / mark).is_file():
                make()
    return out


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """One process at a time; where a file system has no locks, everybody."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.with_name(f".{out.name}.lock").open("w") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
