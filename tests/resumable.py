"""Tests of minutes go on where they stopped: what has passed is not run again on the same tree.

`--cache-clear` forgets it. A test that was interrupted, or that failed, always runs again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READ = ("regard/**/*", "scripts/*.py", "tests/exports/*.py", "tests/*.py", "docs/tutorial*.md")


@cache
def tree() -> str:
    """Returns a hash of everything that such a test depends on: files, and installed versions."""
    digest = hashlib.sha256()
    for pattern in READ:
        for file in sorted(ROOT.glob(pattern)):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    for name in sorted(f"{one.name} {one.version}" for one in distributions()):
        digest.update(name.encode())
    return digest.hexdigest()


@contextmanager
def resumable(request: pytest.FixtureRequest) -> Iterator[None]:
    """Skips a test that has passed on this tree; remembers that it has, if nothing was raised."""
    memory = getattr(request.config, "cache", None)  # None: pytest -p no:cacheprovider
    if memory is None:
        yield
        return
    name = hashlib.sha256(f"{tree()} {request.node.nodeid}".encode()).hexdigest()
    mark = memory.mkdir("resumable") / name
    if mark.exists():
        pytest.skip("it has passed on this tree; --cache-clear runs it again")
    yield
    mark.touch()
