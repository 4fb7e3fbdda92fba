"""MTEB's own tasks on our directories: the same figure as `regard evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.api import load
from regard.evaluation.test import Plan, examine
from regard.exports.run import export
from tests.tasks import tuning

PAIRS = [
    ("fine film", "warm film", 4.5), ("fine plot", "dull plot", 2.0), ("poor film", "fine", 1.0),
    ("warm", "warm and fine film", 3.8), ("dull film", "poor film", 4.1), ("cold", "a film", 1.7),
]  # fmt: skip


def test_sick_r_is_measured_as_by_us(tmp_path: Path) -> None:
    """Its task SICK-R reads a few pairs of ours instead of the hub's."""
    pytest.importorskip("mteb", reason="mteb is not installed")
    import mteb
    from datasets import Dataset
    from mteb.tasks.sts.eng.sickr_sts import SickrSTS
    from sentence_transformers import SentenceTransformer

    loaded: Any = load(tuning.bert(tmp_path / "bert"))
    export(loaded, "sentence-transformers", tmp_path / "vectors")
    task = SickrSTS()
    rows = [{"sentence1": a, "sentence2": b, "score": score} for a, b, score in PAIRS]
    task.dataset, task.data_loaded = {"test": Dataset.from_list(rows)}, True
    model = SentenceTransformer(str(tmp_path / "vectors"), device="cpu", local_files_only=True)
    result = mteb.evaluate(model, [task], cache=None).task_results[0]
    file = tuning.write(
        tmp_path / "pairs.jsonl", [{"a": a, "b": b, "score": score} for a, b, score in PAIRS]
    )
    ours = examine(str(tmp_path / "vectors"), [str(file)], Plan(task="embed", resamples=20))
    assert result.scores["test"][0]["cosine_spearman"] == pytest.approx(
        ours["figures"]["spearman"], abs=1e-6
    )
