"""What may be asked for beside --resume."""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError

FREE = ("budget.steps", "engine.device")  # of a recipe: all else is settled when a run begins


OF_A_RUN = (
    "a run goes on by its own recipe, of which only the steps may grow (budget.steps=N); leave it "
    "out, or begin a new run"
)


def check_resume(
    options: dict[str, Any], changes: dict[str, Any] | None = None, why: str = OF_A_RUN
) -> None:
    """Refuses what would be left aside; `options` by their names on the command line, not given
    where they are None, False or empty, `changes` as a recipe's table.
    """
    asked = [
        f"--{name}"
        for name, value in options.items()
        if value is not None and value is not False and value not in ("", [])
    ]
    for table, held in (changes or {}).items():
        keys = [f"{table}.{key}" for key in held] if isinstance(held, dict) else [table]
        asked += [key for key in keys if key not in FREE]
    if asked:
        raise ConfigError(f"{asked[0]} is given beside --resume, but {why}")
