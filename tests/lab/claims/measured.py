"""Claims that are quick to measure, measured once for all tests that show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.lab.claims import claim
from regard.lab.claims.engine.claim import Claim
from regard.lab.claims.engine.run import run

CLAIMS = "claims"


def measured(name: str, shared: Path) -> tuple[Claim, dict[str, Any]]:
    """The claim, and what its seeds gave; `shared` is the directory of the whole test session."""
    study = claim(name)
    return study, run(study, shared / CLAIMS)
