"""The page of speeds says what the files of the benchmarks say, in both languages."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import curves
import encode
import models
import pytest
import speed
import torch
import translate_speed
from cases import CASES, build
from other_process import OtherProcess
from translate_sides import Job

from regard.models import FAMILIES
from regard.models.step import Stepper, step_kernel

TRAIN = {
    "model": "gpt2", "kind": "train", "precision": "fp32", "ours_tokens_per_second": 2000.0,
    "peer_tokens_per_second": 1000.0, "ratio": 2.0, "goal": 1.2, "reached": True,
    "share_of_peak": 0.8, "ours_peak_mib": 900.0, "peer_peak_mib": 1800.0,
}  # fmt: skip
BERT = TRAIN | {"model": "bert", "ours_peak_mib": 2000.0, "memory_reached": False}
LSTM = {
    "model": "lstm", "kind": "train", "precision": "bf16", "ours_tokens_per_second": 500.0,
    "share_of_peak": 0.4, "ours_peak_mib": 700.0,
}  # fmt: skip
FILES = {
    "models.json": {"rows": [TRAIN, BERT, LSTM, TRAIN | {"kind": "forward"}]},
    "encode.json": {"rows": [{
        "model": "bert", "precision": "int8", "batch": "mixed", "ratio": 1.25, "goal": 1.3,
        "reached": False, "tokens_per_second": {"ours": 5000.0, "onnx": 4000.0},
    }]},
    "translating.json": {"rows": [{
        "decoding": "greedy", "ratio": 1.5, "goal": 1.3, "reached": True, "same": 0.98,
        "ours": {"sentences_per_second": 60.0, "bleu": 12.5},
        "ctranslate2": {"sentences_per_second": 40.0, "bleu": 12.4},
    }]},
    "curves.json": {"decoding-context": {
        "sizes": [256, 8160], "seconds": [0.1, 0.2], "time_slope": 0.2, "time_theory": 0.25,
    }},
}  # fmt: skip


@pytest.fixture
def pages(tmp_path, monkeypatch):
    pages = {language: tmp_path / page.name for language, page in speed.PAGES.items()}
    for language, page in speed.PAGES.items():
        pages[language].write_text(page.read_text("utf-8"), encoding="utf-8")
    monkeypatch.setattr(speed, "PAGES", pages)
    return pages


def test_every_section_is_written_in_both_languages(tmp_path, pages):
    for name, data in FILES.items():
        (tmp_path / name).write_text(json.dumps(data), encoding="utf-8")
    assert speed.main(["--results", str(tmp_path)]) == 0
    english, chinese = (page.read_text("utf-8") for page in pages.values())
    assert "| gpt2 | fp32 | 2,000 | 1,000 | 2.00 | 1.2 or 85% | 80% | 900 | 1,800 |" in english
    assert "| 80% | 2,000 (missed) | 1,800 |" in english and "2,000 (未达到)" in chinese
    assert "| lstm | bf16 | 500 | – | – | – | 40% | 700 | – |" in english
    assert "| bert | int8 | mixed | 5,000 | 4,000 | – | – | 1.25 (missed) | 1.3 |" in english
    assert "| marian | greedy | 60.0 | 12.50 | 40.0 | 12.40 | 98% | 1.50 | 1.3 |" in english
    assert "| decoding, per token, by context | 256 … 8,160 | 0.20 | 0.25 | – | – |" in english
    assert "| bert | int8 | 混合长度 | 5,000 | 4,000 | – | – | 1.25 (未达到) | 1.3 |" in chinese
    assert english.count("\n|") == chinese.count("\n|")


def test_a_missing_file_leaves_its_section(tmp_path, pages, capsys):
    before = [page.read_text("utf-8") for page in pages.values()]
    assert speed.main(["--results", str(tmp_path)]) == 0
    assert [page.read_text("utf-8") for page in pages.values()] == before
    assert capsys.readouterr().err.count("is missing") == len(FILES)


def test_rows_that_are_not_measured_again_stay(tmp_path):
    file = tmp_path / "results" / "models.json"
    models.keep(file, {"gemm_peak": {}, "rows": [TRAIN, LSTM]})
    models.keep(file, {"gemm_peak": {}, "rows": [TRAIN | {"ratio": 2.5}]})
    rows = json.loads(file.read_text("utf-8"))["rows"]
    assert [row.get("ratio") for row in rows] == [2.5, None]


def test_texts_of_mixed_lengths_are_the_same_every_time():
    texts = encode.texts_for("bert", 96, 1000)
    assert texts == encode.texts_for("bert", 96, 1000)
    sizes = [len(text) for text in texts]
    assert min(sizes) >= encode.SHORTEST and max(sizes) <= encode.LONGEST
    assert max(sizes) > 4 * min(sizes)
    assert max(map(len, encode.texts_for("longformer", 96, 1000))) <= 8 * encode.LONGEST


def test_every_curve_has_a_title_in_both_languages():
    assert set(curves.CURVES) == set(speed.CURVES)
    assert all(name in speed.WORDS for name in curves.CURVES)


@pytest.mark.skipif(step_kernel() is None, reason="there is no native code here")
def test_the_curve_of_decoding_takes_the_steps_of_generate(monkeypatch):
    steps, read = [], Stepper.read
    monkeypatch.setattr(Stepper, "read", lambda *args: steps.append(1) or read(*args))
    curve = curves.decoding("gpt2", [16, 32], argparse.Namespace(tiny=True, repeats=1))
    assert len(steps) == 2 * curves.NEW and len(curve["seconds"]) == 2


def test_a_peer_that_is_not_installed_is_left_out_before_measuring(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(encode.PACKAGES, "openvino", "no-such-package")
    installed = encode.versions()
    assert "openvino" not in installed
    assert "pip install no-such-package" in capsys.readouterr().err
    row = {"model": "bert", "precision": "fp32", "batch": "1"}
    encode.keep(tmp_path / "encode.json", [row], installed)
    runtimes = json.loads((tmp_path / "encode.json").read_text("utf-8"))["runtimes"]
    assert runtimes["torch"] == torch.__version__ and "no-such-package" not in runtimes


SMALL = {"width": 32, "layers": 1, "heads": 2, "vocab_size": 300}


@pytest.mark.parametrize("name", ["roberta", "llama"])
def test_a_peer_with_our_weights_has_our_loss(name, monkeypatch):
    pytest.importorskip("transformers")
    losses = {}
    for side in ("ours", "peer"):
        own, run = losses.setdefault(side, []), getattr(case := CASES[name], side)
        wrapped = {side: lambda m, b, run=run, own=own: kept(own, run(m, b))}
        monkeypatch.setitem(CASES, name, replace(case, **wrapped))
        changes = SMALL | {"ffn_size": 64, "dropout": 0.0, "dropout_attention": 0.0}
        build(name, side, "train", torch.float32, changes, 24, 2)()
    if name == "llama":  # the peer has one target less
        assert losses["ours"][0] == pytest.approx(losses["peer"][0], rel=0.05)
    else:
        assert losses["ours"][0] == pytest.approx(losses["peer"][0], rel=1e-4)


def kept(values, loss):
    values.append(loss.item())
    return loss


def test_rows_of_the_other_shape_stay(tmp_path):
    file = tmp_path / "results" / "translating.json"
    row = {"shape": "marian", "decoding": "greedy", "ratio": 1.5}
    translate_speed.keep(file, {"rows": [row]})
    translate_speed.keep(file, {"rows": [row | {"shape": "t5"}, row | {"ratio": 2.0}]})
    rows = json.loads(file.read_text("utf-8"))["rows"]
    assert [(x["shape"], x["ratio"]) for x in rows] == [("marian", 2.0), ("t5", 1.5)]


@pytest.mark.parametrize("shape", translate_speed.SHAPES)
def test_each_shape_of_a_translator_can_be_built(tmp_path, shape):
    family = translate_speed.SHAPES[shape]
    recipe = Job(tmp_path, 1, 1.0, 0, "bf16", model=family).recipe()
    config = FAMILIES[family].config().replace(**recipe.shape)
    assert recipe.model == family and config.layers == 3 and config.width == 256


def test_a_peer_in_another_interpreter_reports_its_memory(tmp_path):
    """The stand-in for an interpreter speaks as peer_transformer_xl.py does."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 0\nwhile read line; do echo 12345; done\n", "utf-8")
    program.chmod(0o755)
    changes = SMALL | {"head_size": 16, "ffn_size": 64}
    case = replace(CASES["transformer-xl"], batch=2, length=8)
    case = replace(case, changes=case.changes | changes)
    peer = OtherProcess(str(program), case.model(), "train", torch.float32, case)
    try:
        assert peer.ask("memory") == 0
        peer()
        assert peer.ask("memory") == 12345
    finally:
        peer.close()
