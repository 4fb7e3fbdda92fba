"""How much of a text others' models are given, who say nothing of it; and batches at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.api import load
from regard.core.seeding import keyed
from regard.data.examples import LabeledExample
from regard.evaluation.predict import Predictor
from regard.formats.directory import save
from regard.tasks import inference
from tests.tasks.judging import FAMILIES, TOKENIZER, WORDS, model_of


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


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_at_once_say_what_one_says(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(model_of(family, {"classify": 3}), tmp_path, TOKENIZER)
    dice = keyed("texts")
    texts = [" ".join(dice.choice(WORDS[:12], 1 + n % 14)) for n in range(60)]
    examples = [LabeledExample(text) for text in texts]
    alone = [Predictor(load(tmp_path))([example])[0] for example in examples]
    monkeypatch.setattr(inference, "FEW", 48)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        together = Predictor(load(tmp_path))(examples)
    finally:
        torch.set_num_threads(before)
    assert [one.value for one in together] == [one.value for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)
