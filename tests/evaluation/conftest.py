"""Tiny models that have learned each task, made once for all tests of this directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.evaluation.test import Plan, examine
from tests.tasks.world import World, rows

Tested = Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]


@pytest.fixture
def tested(world: World, tmp_path: Path) -> Tested:
    """Tests a run of the world on a file, or on the world's data of a task; gives what is said of
    the run, and what was written of each example into tmp_path / "t".
    """

    def run(name: str, data: str | Path, **plan: Any) -> tuple[dict[str, Any], list[Any]]:
        file = str(data) if Path(data).is_file() else world.data(str(data))
        report = examine(world.run(name), [file], Plan(out=tmp_path / "t", **plan))
        return report, rows(tmp_path / "t")

    return run
