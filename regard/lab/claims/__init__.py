"""What papers and tutorials say, as experiments: one short file a claim."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from regard.core.errors import UnknownName
from regard.lab.claims.engine.claim import (
    Claim,  # before `claim` below, which is then the function, always
)

DECLARES = "\nCLAIM = Claim("  # what a file of this package has that is a claim


@cache
def names() -> list[str]:
    """Every claim there is, by its name."""
    files = sorted((Path(__file__).parent / "library").glob("*.py"))
    found = [file.stem for file in files if DECLARES in file.read_text(encoding="utf-8")]
    return [file.replace("_", "-") for file in found]


def claim(name: str) -> Claim:
    if name not in names():
        raise UnknownName("claim", name, names())
    found: Claim = import_module(f"regard.lab.claims.library.{name.replace('-', '_')}").CLAIM
    return found
