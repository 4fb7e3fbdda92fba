"""A trained small model of every family becomes each export that its kind can become."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard
from regard.exports.base import ExportSource
from regard.exports.run import able, export_source, target
from tests.command import run
from tests.resumable import resumable

GRAPHS = {"onnx", "openvino"}
BECOMES = {  # family -> what its trained model can become
    "transformer": GRAPHS | {"ctranslate2"},
    "bert": GRAPHS | {"ctranslate2", "gguf", "sentence-transformers"},
    "roberta": GRAPHS | {"ctranslate2", "sentence-transformers"},
    "gpt": GRAPHS | {"ctranslate2", "gguf"},
    "transformer-xl": GRAPHS,
    "xlnet": GRAPHS | {"sentence-transformers"},
    "longformer": GRAPHS | {"sentence-transformers"},
    "t5": GRAPHS | {"ctranslate2", "gguf"},
    "llama": GRAPHS | {"ctranslate2", "gguf"},
    "lstm": set(),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text with a tokenizer that every target can express."""
    out = tmp_path_factory.mktemp("text") / "text"
    done = run("prepare", "builtin:python-docs", "--out", out, "--tokenizer", "gpt2-bpe",
               "--vocab-size", 1000)  # fmt: skip
    assert done.exit_code == 0, done.output
    return out


@pytest.mark.long
@pytest.mark.parametrize("family", BECOMES)
def test_a_trained_model_is_exported(
    family: str, text: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with resumable(request):
        model = tmp_path / "model"
        done = run("train", family, text, "--out", model, "--size", "tiny", "--steps", 40,
                   "--batch-size", 8, "--seq-len", 64, "--quiet")  # fmt: skip
        assert done.exit_code == 0, done.output
        source = ExportSource(regard.load(model))
        names = able(source)
        assert set(names) == BECOMES[family]
        for name in names:
            if target(name).missing():
                continue
            for precision in target(name).precisions:
                out = tmp_path / f"{name}-{precision}"
                figures = export_source(source, name, out, precision)["compared"]
                assert out.is_dir() and figures["texts"]
                if precision == "fp32":
                    assert figures["difference"] <= figures["tolerance"]
                elif figures["quantity"] == "logits":
                    assert figures["agreement"] >= 0.9
                else:
                    assert figures["cosine"] >= 0.99
