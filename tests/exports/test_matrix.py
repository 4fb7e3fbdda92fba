"""`regard models --exports` prints what was measured; every cell can be measured again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from regard.exports.matrix import measured
from regard.exports.run import TARGETS, target
from tests.command import run
from tests.exports.conftest import script, source_of
from tests.resumable import resumable

NUMBER = re.compile(r"[\d.,]*\d")  # how far an export is from the model differs by processor
CELLS: list[dict[str, Any]] = measured()["cells"]


def test_the_matrix_has_every_cell() -> None:
    names = {(cell["model"], cell["to"]) for cell in CELLS}
    assert names == {(row, name) for row in script().ROWS for name in TARGETS}


def test_the_command_prints_it() -> None:
    done = run("models", "--exports")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["model", *TARGETS] and len(lines) == 1 + len(script().ROWS)
    assert "fp32" in next(line for line in lines if line.startswith("gpt2"))
    assert run("models", "--exports", "--family", "gpt").exit_code == 2


@pytest.mark.long
@pytest.mark.parametrize(
    "cell", CELLS, ids=[f"{c['model']}-{c['to']}-{c['precision']}" for c in CELLS]
)
def test_a_cell_is_as_it_was_measured(
    cell: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if missing := target(cell["to"]).missing():
        pytest.skip(f"{', '.join(missing)} is not installed")
    with resumable(request):
        source = source_of(cell["model"])
        again = script().outcome(source, cell["to"], tmp_path / "out", cell["precision"])
        assert again["equal"] == cell["equal"], again
        if not cell["equal"]:
            assert NUMBER.sub("#", again["because"]) == NUMBER.sub("#", cell["because"])
