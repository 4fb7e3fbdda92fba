"""One small model for each target: converted, opened by the real runtime, and equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import ConfigError
from regard.exports.run import REPORT, export, export_source
from tests.command import run
from tests.exports.conftest import needs_llama, small, source_of
from tests.refusals import refuses

FAST = [
    pytest.param("onnx", "gpt2", "fp32", marks=pytest.mark.slow),
    ("onnx", "bert", "fp32"),
    ("openvino", "bert", "fp32"),
    ("openvino", "bert", "int8"),
    pytest.param("openvino", "gpt2", "fp32", marks=pytest.mark.slow),
    ("ctranslate2", "gpt2", "fp32"),
    ("ctranslate2", "llama", "int8"),
    ("sentence-transformers", "bert", "fp32"),
    pytest.param("gguf", "llama", "fp32", marks=needs_llama),
    pytest.param("gguf", "gpt2", "int8", marks=needs_llama),
]


@pytest.mark.parametrize(("to", "name", "precision"), FAST)
def test_the_runtime_computes_the_same(to: str, name: str, precision: str, tmp_path: Path) -> None:
    report = export_source(source_of(name), to, tmp_path / "out", precision)
    figures = report["compared"]
    if precision == "fp32":
        assert figures["difference"] <= figures["tolerance"]
    else:
        assert figures["agreement"] >= 0.9
    if to != "sentence-transformers" and name != "bert":
        assert "perplexity" in figures or figures["tokens"] > 0
    assert json.loads((tmp_path / "out" / REPORT).read_text())["compared"] == figures


def test_the_files_are_read_by_the_plain_runtime(tmp_path: Path) -> None:
    """Without any code of ours: what a user of CTranslate2 would write."""
    import ctranslate2

    export(small("gpt2"), "ctranslate2", tmp_path / "out")
    ids = [5, 6, 7, 8, 9]
    generator = ctranslate2.Generator(str(tmp_path / "out"))
    theirs = np.array(generator.forward_batch([ids]))[0]
    ours = small("gpt2").logits(torch.tensor([ids]))[0].detach().numpy()
    np.testing.assert_allclose(theirs, ours, atol=1e-4)


def test_no_row_of_a_vocabulary_is_dropped(tmp_path: Path) -> None:
    """CTranslate2's own converter of this class takes the last row for padding."""
    loaded: Any = small("transformer")
    export(loaded, "ctranslate2", tmp_path / "out")
    vocabulary = json.loads((tmp_path / "out" / "shared_vocabulary.json").read_text())
    assert len(vocabulary) == loaded.config.vocab_size


def test_sentence_transformers_gives_the_vectors_of_embed(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    export(small("bert"), "sentence-transformers", tmp_path / "out")
    texts = ["a film", "Two  words, and more of them than before.", "中文"]
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, small("bert").embed(texts), atol=1e-5)


def test_openvino_stores_matrices_in_8_bits(tmp_path: Path) -> None:
    sizes = {}
    for precision in ("fp32", "int8"):
        report = export_source(source_of("bert"), "openvino", tmp_path / precision, precision)
        sizes[precision] = report["files"]["model.bin"]
    vectors = sum(p.numel() for p in small("bert").model.parameters() if p.dim() == 1)
    matrices = sizes["fp32"] - 4 * vectors
    assert sizes["int8"] < 4 * vectors + 0.45 * matrices  # the positions stay as they are


def test_a_decoder_that_learned_vectors_needs_no_export(tmp_path: Path) -> None:
    """As the refusal of its export says: sentence-transformers opens what finetune writes."""
    from sentence_transformers import SentenceTransformer

    small("gpt2").save(tmp_path / "model")
    rows = [{"question": f"what is {i}", "passage": f"{i} is a number of films"} for i in range(24)]
    data = tmp_path / "train.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    out = tmp_path / "vectors"
    done = run("finetune", tmp_path / "model", "--data", data, "--task", "embed", "--steps", 2,
               "--out", out, "--quiet")  # fmt: skip
    assert done.exit_code == 0, done.output
    texts = ["a film", "Two  words, and more of them than before.", "中文"]
    theirs = SentenceTransformer(str(out), device="cpu", local_files_only=True).encode(texts)
    np.testing.assert_allclose(theirs, regard.load(out).embed(texts), atol=1e-5)
    with refuses(ConfigError, "encoder", "finetune --task embed", "onnx"):
        export(regard.load(out), "sentence-transformers", tmp_path / "export")
