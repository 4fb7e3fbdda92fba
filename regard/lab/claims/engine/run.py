"""Runs a claim cell by cell, stores each finished cell, and judges the claim by its rule.

DIR/
  NAME/cells/ARM-PLACE-SEED.json   a measurement
  NAME/claim.json, claim.html      the result
  texts/                           the texts that several claims train on
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.core import VERSION
from regard.core.errors import ConfigError
from regard.core.files import read_json, write_json
from regard.core.processes import RunLock
from regard.lab.claims import library
from regard.lab.claims.engine.cache import ENGINE, mark
from regard.lab.claims.engine.claim import Claim, ClaimCell
from regard.lab.claims.engine.experiment import Workspace
from regard.lab.claims.engine.means import Values
from regard.lab.claims.engine.rules import All

CELL_KINDS: dict[str, Any] = {"figures": dict[str, float]}
FACT_KINDS: dict[str, Any] = {
    "verdict": str, "because": str, "effort": float, "seeds": int, "cells": list[dict[str, Any]],
    "cause": str, "plan": str, "changed": list[str], "parts": list[dict[str, Any]],
}  # fmt: skip
FORMAT = 2  # of claim.json; 1 had no tests
CELLS, FACTS, TEXTS = "cells", "claim.json", "texts"
Tell = Callable[[ClaimCell, dict[str, float]], None]


def run(
    claim: Claim,
    out: Path,
    *,
    effort: float = 1.0,
    seeds: int | None = None,
    tell: Tell = lambda cell, figures: None,
    note: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Measures the missing cells, judges the claim, and returns the content of claim.json.

    If it is started again, it resumes with the next cell. Cells that were measured with another
    effort, in another setting or by an older version are measured again: a verdict never mixes
    them. The number of seeds is part of the claim. Fewer seeds give figures and no verdict.
    """
    if seeds is not None and not 1 <= seeds <= claim.seeds:
        raise ConfigError(
            f"{seeds} seeds are asked for, but {claim.name} fixed {claim.seeds} before any run, so "
            "that no seed is added after a result is seen; leave --seeds out, or give 1 to "
            f"{claim.seeds - 1} for a first look without a verdict"
        )
    place = out / claim.name
    wanted: dict[str, Any] = {"effort": effort, "setting": setting(claim)}
    room = Workspace(out / TEXTS, effort)
    room.place.mkdir(parents=True, exist_ok=True)
    with RunLock(place):
        values: dict[tuple[str, float], list[dict[str, float]]] = {}
        plans, is_noted = set[str](), False
        for cell in claim.cells(seeds):
            file = place / CELLS / f"{cell.name}.json"
            record = read_json(file, kinds=CELL_KINDS, nan=True)
            if (
                record is None
                or "plan" not in record
                or any(record.get(key) != value for key, value in wanted.items())
            ):
                if record is not None and not is_noted:
                    note(
                        f"{file.parent} holds measurements of another setting, effort or version; "
                        "they are measured again"
                    )
                    is_noted = True
                figures = claim.experiment.figures(cell, room)
                record = wanted | {"plan": claim.plan, "figures": figures}
                write_json(file, record)
            plans.add(record["plan"])
            tell(cell, record["figures"])
            values.setdefault((cell.arm, cell.at), []).append(record["figures"])
        facts = judged(claim, values, effort)
        facts["changed"] = changes(claim, plans, place / FACTS)
        write_json(place / FACTS, facts)
    return facts


def read_facts(out: Path, name: str) -> dict[str, Any]:
    """Returns the content of a claim's claim.json; {} if it was not tried there, or by an older
    version, whose verdicts followed other tests."""
    file = out / name / FACTS
    return {} if is_outdated(out, name) else read_json(file, kinds=FACT_KINDS, nan=True) or {}


def is_outdated(out: Path, name: str) -> bool:
    """Returns whether an older version judged the claim here."""
    known = read_json(out / name / FACTS, kinds={"verdict": str}, nan=True)
    return known is not None and known.get("format") != FORMAT


def changes(claim: Claim, plans: set[str], file: Path) -> list[str]:
    """Returns the commits that changed the rule after data were seen: those that the claim
    declares, those of an earlier judgment in this place, and the last one of the claim's file if
    cells or a judgment here followed another rule."""
    earlier = read_json(file, kinds={"verdict": str}, nan=True) or {}
    commits = [*claim.revised, *earlier.get("changed", [])]
    judged_by = earlier.get("plan") or (claim.plan if not earlier else earlier.get("rule"))
    if plans - {claim.plan} or judged_by not in (claim.plan, claim.rule.words):
        commits.append(last_commit(claim))
    return list(dict.fromkeys(commits))


def last_commit(claim: Claim) -> str:
    """Returns the commit that last changed the claim's declaration; the version outside of git."""
    file = Path(library.__file__).with_name(f"{claim.name.replace('-', '_')}.toml")
    words = ["git", "-C", str(file.parent), "log", "-1", "--format=%h", "--", file.name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return f"regard {VERSION}"
    return done.stdout.strip() or f"regard {VERSION}"


def setting(claim: Claim) -> str:
    """Returns a digest of what is done: the setting in words, the numbers and tables of the
    experiment, and the code."""
    own = Path(library.__file__).with_name(f"{claim.name.replace('-', '_')}.py")
    code = mark(*ENGINE, *([own] if own.is_file() else []))  # other claims have no file here
    description = re.sub(r" at 0x[0-9a-f]+", "", repr((claim.setting.en, claim.experiment, code)))
    return hashlib.blake2b(description.encode(), digest_size=8).hexdigest()


def judged(claim: Claim, values: Values, effort: float) -> dict[str, Any]:
    """Returns the content of claim.json. Without all seeds, nothing is tested."""
    seeds = len(next(iter(values.values())))
    rule = claim.rule if isinstance(claim.rule, All) else All((claim.rule,))
    ruling = rule.judge(values) if seeds >= claim.seeds else rule.seen(values)
    return {
        "format": FORMAT,
        "name": claim.name,
        "statement": claim.statement._asdict(),
        "source": claim.source,
        "setting": claim.setting._asdict(),
        "rule": claim.rule.words,
        "verdict": ruling.verdict,
        "because": ruling.because,
        "cause": ruling.cause,
        "parts": [part._asdict() for part in (*ruling.parts, *ruling.provided)],
        "plan": claim.plan,
        "changed": list(claim.revised),
        "effort": effort,
        "seeds": seeds,
        "seeds_fixed": claim.seeds,
        "printed": claim.printed,
        "cells": [
            {"arm": arm, "at": at, "seed": seed, "figures": figures}
            for (arm, at), rows in values.items()
            for seed, figures in enumerate(rows, 1)
        ],
    }
