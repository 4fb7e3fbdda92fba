"""What is refused: by whom, why, and that nothing is left behind."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.core.errors import ConfigError, StorageError, UnknownName
from regard.data.vocabulary import train
from regard.exports import ctranslate2
from regard.exports.base import ExportDiffers, ExportSample, ExportSource
from regard.exports.compare import HOSTILE, differing
from regard.exports.run import TARGETS, able, export, target
from tests.command import run
from tests.exports.conftest import small, words
from tests.refusals import refuses

ABLE = {  # what each kind of model can become
    "transformer": {"onnx", "openvino", "ctranslate2"},
    "bert": {"onnx", "openvino", "ctranslate2", "gguf", "sentence-transformers"},
    "gpt1": {"onnx", "openvino", "ctranslate2"},
    "gpt2": {"onnx", "openvino", "ctranslate2", "gguf"},
    "gpt3": {"onnx", "openvino"},
    "transformer-xl": {"onnx", "openvino"},
    "xlnet": {"onnx", "openvino", "sentence-transformers"},
    "longformer": {"onnx", "openvino", "sentence-transformers"},
    "t5": {"onnx", "openvino", "ctranslate2", "gguf"},
    "llama": {"onnx", "openvino", "ctranslate2", "gguf"},
    "lstm": set(),
}


@pytest.mark.parametrize("name", ABLE)
def test_each_target_says_what_it_can_hold(name: str) -> None:
    assert set(able(ExportSource(small(name)))) == ABLE[name]


def test_a_refusal_names_the_reason_and_the_targets_that_can(tmp_path: Path) -> None:
    with refuses(ConfigError, "windows", "onnx, openvino"):
        export(small("gpt3"), "ctranslate2", tmp_path / "out")
    with refuses(ConfigError, "onnx", "recurrent"):
        export(small("lstm"), "onnx", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_unknown_target_and_precision_are_named(tmp_path: Path) -> None:
    with refuses(UnknownName, "onnx"):
        target("onxx")
    with refuses(UnknownName, "int8"):
        export(small("gpt2"), "ctranslate2", tmp_path / "out", "int4")
    with refuses(ConfigError, "fp32"):
        export(small("bert"), "sentence-transformers", tmp_path / "out", "int8")


def test_a_missing_runtime_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ctranslate2" else find(name)
    )
    with refuses(ConfigError, "ctranslate2", "regard[export]"):
        export(small("gpt2"), "ctranslate2", tmp_path / "out")


@pytest.mark.parametrize("kind", ["bytes-bpe", "unigram", "wordpiece"])
def test_a_tokenizer_that_llama_cpp_cannot_name_is_refused(kind: str, tmp_path: Path) -> None:
    texts = ["a film and a book, two films and books"] * 9
    other = train(kind, texts, vocab_size=None, lower=None, marks=0)
    loaded = regard.LoadedModel(small("gpt2").model, other)
    with refuses(ConfigError, "gpt2-bpe"):
        export(loaded, "gguf", tmp_path / "out")


def test_a_model_without_a_tokenizer_is_refused_where_one_is_stored(tmp_path: Path) -> None:
    with refuses(ConfigError, "tokenizer"):
        export(regard.LoadedModel(small("gpt2").model), "gguf", tmp_path / "out")


def test_what_differs_is_shown_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight of the file is another than the model's."""
    fill = ctranslate2.set_norm

    def shifted(spec: Any, norm: Any) -> None:
        fill(spec, norm)
        spec.gamma = spec.gamma + np.float32(1e-2)

    monkeypatch.setattr(ctranslate2, "set_norm", shifted)
    with refuses(ExportDiffers, "1 token", "row 0", "column"):
        export(small("gpt2"), "ctranslate2", tmp_path / "out")
    assert not list(tmp_path.iterdir())


class ConverterError(Exception):
    """Such as onnx's InferenceError, which is no kind of Python's own."""


@pytest.mark.parametrize("kind", [ValueError, ConverterError])
def test_an_error_of_the_converter_leaves_nothing(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise kind("no such layer\nmore")

    monkeypatch.setattr(ctranslate2, "set_blocks", fails)
    with refuses(ExportDiffers, "ctranslate2", "no such layer"):
        export(small("gpt2"), "ctranslate2", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_existing_directory_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with refuses(StorageError, str(tmp_path)):
        export(small("gpt2"), "ctranslate2", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["note.txt"]


def test_nan_and_another_shape_differ() -> None:
    ours, sample = np.ones((2, 3), np.float32), ExportSample([1, 2])
    assert differing(sample, ours, ours, 1e-4) == 0.0
    with refuses(ExportDiffers, "row 1", "column 2"):
        theirs = ours.copy()
        theirs[1, 2] = np.nan
        differing(sample, ours, theirs, 1e-4)
    with refuses(ExportDiffers, "[1, 3]"):
        differing(sample, ours, ours[:1], 1e-4)


def test_a_quantized_model_is_not_exported_again(tmp_path: Path) -> None:
    from regard.models.extensions import extend

    model = regard.create("gpt2", width=32, heads=4, layers=1, context=16, vocab_size=len(words()))
    loaded = regard.LoadedModel(extend(model.eval(), "int8", {}), words())
    with refuses(ConfigError, "--precision int8"):
        export(loaded, "onnx", tmp_path / "out")


def test_the_command_and_the_python_function(tmp_path: Path) -> None:
    small("gpt2").save(tmp_path / "model")
    done = run(
        "export", tmp_path / "model", "--to", "ctranslate2", "--out", tmp_path / "out", "--quiet"
    )
    assert done.exit_code == 0 and "all equal" in done.stdout, done.output
    assert (tmp_path / "out" / "model.bin").is_file()
    refused = run("export", tmp_path / "model", "--to", "gguff", "--out", tmp_path / "other")
    assert refused.exit_code == 2 and "gguf" in refused.output
    report = regard.export(  # type: ignore[attr-defined]
        tmp_path / "model", to="ctranslate2", out=tmp_path / "again", quiet=True
    )
    assert report["compared"]["difference"] <= 1e-4


def test_hostile_texts_tell_two_rules_apart() -> None:
    """The bounded rule of bytes-bpe is not GPT-2's: the texts of the comparison show it."""
    texts = ["a" * 90 + " 中文 and English 中" * 3] * 5
    ours = {
        kind: train(kind, texts, vocab_size=None, lower=None, marks=0)
        for kind in ("bytes-bpe", "gpt2-bpe")
    }
    ids = {
        kind: [one.encode(text, special=False) for text in HOSTILE] for kind, one in ours.items()
    }
    assert ids["bytes-bpe"] != ids["gpt2-bpe"]


def test_every_target_has_its_table() -> None:
    for name in TARGETS:
        one = target(name)
        assert one.name == name and one.limits and one.packages and one.precisions
