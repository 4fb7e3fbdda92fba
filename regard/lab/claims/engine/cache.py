"""What several claims use is made once, by whoever asks first; and a mark of the code that made it,
so that nobody takes what other code has measured for their own.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SHOWS = {"claim", "rules", "chart", "page", "parallel"}  # they do not measure
ENGINE = tuple(
    file for file in sorted(Path(__file__).parent.glob("*.py")) if file.stem not in SHOWS
)


def mark(*files: str | Path) -> str:
    """Of the bytes of these files: a comment counts as well."""
    code = b"".join(Path(file).read_bytes() for file in files)
    return hashlib.blake2b(code, digest_size=4).hexdigest()


def once(out: Path, whole: str, make: Callable[[], Any]) -> Path:
    """`out`, which is whole when it has the file `whole`; others who want it wait meanwhile."""
    if not (out / whole).is_file():
        with alone(out):
            if not (out / whole).is_file():
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
