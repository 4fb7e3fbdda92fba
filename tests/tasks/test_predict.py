"""How much of a text others' models are given, who say nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.exchange.directory import load, save
from regard.tasks.predict import Predictor
from tests.objectives.judging import TOKENIZER, model_of


@pytest.mark.parametrize(
    ("family", "changes", "length"),
    [
        ("gpt", {"context": 1024}, 1024),
        ("longformer", {"context": 700}, 700),
        ("bert", {"context": 40}, 40),
        ("xlnet", {}, 512),  # reads on without end
    ],
)
def test_a_model_is_read_to_its_last_position(
    family: str, changes: dict[str, int], length: int, tmp_path: Path
) -> None:
    save(model_of(family, {"classify": 2}, **changes), tmp_path, TOKENIZER)
    assert Predictor(load(tmp_path)).length == length
    assert Predictor(load(tmp_path), length=16).length == 16
