"""Claims that are quick to measure, measured once for all tests that show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.lab.claims import claim
from regard.lab.claims.engine.claim import Claim
from regard.lab.claims.engine.run import run
from tests.files import alone, of_all_workers

CLAIMS = "claims"


def measured(name: str, base: Path) -> tuple[Claim, dict[str, Any]]:
    """The claim, and what its seeds gave; `base` is the directory of the test session."""
    study, shared = claim(name), of_all_workers(base)
    with alone(shared / f"{name}.lock"):
        return study, run(study, shared / CLAIMS)
