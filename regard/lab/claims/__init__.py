"""What papers and tutorials say, as experiments: one short file a claim."""

from __future__ import annotations

from importlib import import_module

from regard.core.errors import UnknownName
from regard.lab.claims.engine.claim import Claim
from regard.lab.claims.library import NAMES


def names() -> list[str]:
    """Every claim there is, by its name."""
    return list(NAMES)


def claim(name: str) -> Claim:
    if name not in NAMES:
        raise UnknownName("claim", name, NAMES)
    found: Claim = import_module(f"regard.lab.claims.library.{name.replace('-', '_')}").CLAIM
    return found
