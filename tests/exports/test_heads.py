"""A fine-tuned model with the head of its task becomes graphs, which answer as `predict` does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.data.special_tokens import special_of
from regard.exports.base import ExportSample, ExportSource
from regard.exports.run import export_source, target
from tests.tasks.world import World

TEXTS = ["the film was great", "a dull plot and a bad film", "good good great", "the film"]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_a_classifier_answers_as_predict_does(
    classifier: ExportSource, to: str, precision: str, tmp_path: Path
) -> None:
    report = export_source(classifier, to, tmp_path / "out", precision)
    assert report["compared"]["quantity"] == "logits"
    runtime = target(to).open(classifier, tmp_path / "out", precision)
    tokenizer, path = classifier.tokenizer, classifier.checkpoint.path
    assert tokenizer is not None and path is not None
    special = special_of(tokenizer, "this model")
    ends = special.need("cls"), special.need("sep")
    samples = [
        ExportSample([ends[0], *tokenizer.encode(text, special=False), ends[1]]) for text in TEXTS
    ]
    names = json.loads((path / "config.json").read_text("utf-8"))["id2label"]
    (rows,) = np.stack(runtime.batch(samples), 1)
    shares = np.exp(rows - rows.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    expected = regard.load(path).predict(TEXTS)
    assert [names[str(row.argmax())] for row in rows] == [one.value for one in expected]
    assert {one.value for one in expected} == set(names.values())
    if precision == "fp32":
        assert shares.max(1) == pytest.approx([one.score for one in expected], abs=1e-4)


@pytest.fixture(scope="module")
def classifier(world: World) -> ExportSource:
    """A BERT that has learned to tell good reviews from bad ones; it is traced once."""
    return ExportSource(regard.load(world.run("reviewer")))
