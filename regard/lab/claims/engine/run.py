"""Runs a claim cell by cell, stores each finished cell, and judges the claim by its rule.

DIR/
  NAME/cells/ARM-PLACE-SEED.json   a measurement
  NAME/claim.json, claim.html      the result
  texts/                           the texts that several claims train on
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.core.files import read_json, write_json
from regard.core.processes import RunLock
from regard.lab.claims import library
from regard.lab.claims.engine.cache import ENGINE, mark
from regard.lab.claims.engine.claim import Claim, ClaimCell
from regard.lab.claims.engine.experiment import Workspace
from regard.lab.claims.engine.rules import Values

CELL_KINDS: dict[str, Any] = {"figures": dict[str, float]}
FACT_KINDS: dict[str, Any] = {
    "verdict": str, "because": str, "effort": float, "seeds": int, "cells": list[dict[str, Any]],
}  # fmt: skip
CELLS, FACTS, TEXTS = "cells", "claim.json", "texts"
Tell = Callable[[ClaimCell, dict[str, float]], None]


def run(
    claim: Claim,
    out: Path,
    *,
    effort: float = 1.0,
    seeds: int | None = None,
    tell: Tell = lambda cell, figures: None,
) -> dict[str, Any]:
    """Measures the missing cells, judges the claim, and returns the content of claim.json.

    If it is started again, it resumes with the next cell. Cells that were measured with another
    effort or in another setting are measured again: a verdict never mixes them.
    """
    place = out / claim.name
    wanted: dict[str, Any] = {"effort": effort, "setting": setting(claim)}
    room = Workspace(out / TEXTS, effort)
    room.place.mkdir(parents=True, exist_ok=True)
    with RunLock(place):
        values: dict[tuple[str, float], list[dict[str, float]]] = {}
        for cell in claim.cells(seeds):
            file = place / CELLS / f"{cell.name}.json"
            record = read_json(file, kinds=CELL_KINDS, nan=True)
            if record is None or any(record.get(key) != value for key, value in wanted.items()):
                record = wanted | {"figures": claim.experiment.figures(cell, room)}
                write_json(file, record)
            tell(cell, record["figures"])
            values.setdefault((cell.arm, cell.at), []).append(record["figures"])
        facts = judged(claim, values, effort)
        write_json(place / FACTS, facts)
    return facts


def read_facts(out: Path, name: str) -> dict[str, Any]:
    """Returns the content of a claim's claim.json; {} if it was not tried there."""
    return read_json(out / name / FACTS, kinds=FACT_KINDS, nan=True) or {}


def setting(claim: Claim) -> str:
    """Returns a digest of what is done: the setting in words, the numbers and tables of the
    experiment, and the code."""
    own = Path(library.__file__).with_name(f"{claim.name.replace('-', '_')}.py")
    code = mark(*ENGINE, *([own] if own.is_file() else []))  # other claims have no file here
    description = re.sub(r" at 0x[0-9a-f]+", "", repr((claim.setting.en, claim.experiment, code)))
    return hashlib.blake2b(description.encode(), digest_size=8).hexdigest()


def judged(claim: Claim, values: Values, effort: float) -> dict[str, Any]:
    ruling = claim.rule.judge(values)
    return {
        "name": claim.name,
        "statement": claim.statement._asdict(),
        "source": claim.source,
        "setting": claim.setting._asdict(),
        "rule": claim.rule.words,
        "verdict": ruling.verdict,
        "because": ruling.because,
        "effort": effort,
        "seeds": len(next(iter(values.values()))),
        "printed": claim.printed,
        "cells": [
            {"arm": arm, "at": at, "seed": seed, "figures": figures}
            for (arm, at), rows in values.items()
            for seed, figures in enumerate(rows, 1)
        ],
    }
