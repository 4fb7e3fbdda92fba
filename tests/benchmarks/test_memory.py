"""The same weights with another memory: a run's own gives the run's own figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from memory import measured, own
from page import in_process

from regard.training import run as runs
from tests.refusals import refuses
from tests.training.small import data, recipe


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize(
    ("model", "figure"),
    [("transformer-xl", "bits_per_byte"), ("xlnet", "permuted_perplexity")],
)
def test_other_memories(model: str, figure: str, where: Path, tmp_path: Path) -> None:
    report = runs.train(recipe(model, where), tmp_path / "run", display="silent")
    assert own(tmp_path / "run") == 12
    same = measured(tmp_path / "run", 12)
    assert {"memory": 12} | report["valid"] == pytest.approx(same, rel=1e-6)
    none = measured(tmp_path / "run", 0)
    assert list(none) == list(same) and none[figure] != pytest.approx(same[figure], rel=1e-6)


def test_a_run_without_a_memory_is_refused(where: Path, tmp_path: Path) -> None:
    runs.train(recipe("gpt", where), tmp_path / "run", display="silent")
    with refuses(SystemExit, "'causal'", "gpt"):
        measured(tmp_path / "run", 0)


def test_a_cell_of_its_own_process(where: Path, tmp_path: Path) -> None:
    import memory

    runs.train(recipe("transformer-xl", where), tmp_path / "run", display="silent")
    words = [str(tmp_path / "run"), "--data", str(where), "--rows", "0"]
    record = in_process(memory.__file__, words)
    assert json.loads(json.dumps(measured(tmp_path / "run", 0))) == pytest.approx(record, rel=1e-6)
