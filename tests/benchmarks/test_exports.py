"""benchmarks/exports.py: what it measures again, and what it says of its cells."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import exports
import numpy as np
import pytest
from exports_sides import OURS, PEERS, Sizes, computes, step, writes

from regard.exports import ctranslate2

SIZES = Sizes(rows=12, prompt=5, new=4, threads=1)
PROVEN = {files: Path() for files in exports.FILES}


def cell(model: str, case: str, count: int, speeds: dict[str, float]) -> dict[str, Any]:
    return {
        "model": model, "case": case, "count": count, "tokens_per_second": speeds,
        "missing": {"gguf fp32": "llama_cpp is not installed"},
        "settings": {"threads": 2, "runtimes": {"openvino": "1.2"}},
    }  # fmt: skip


def test_both_pages_have_the_same_numbers() -> None:
    rows = [
        cell("gpt2", "read", 1, {"ours, fp32": 3000, "OpenVINO, fp32": 2000, "ours, int8": 1500,
                                 "ours, int8 dynamic": 4500, "llama.cpp, Q8_0": 5000}),
        cell("gpt2", "write", 8, {"ours, bf16": 80, "CTranslate2, bf16": 40}),
        cell("bert", "read", 1, {"ours, fp32": 1, "onnxruntime, fp32": 4}),
    ]  # fmt: skip
    english, chinese = (
        exports.section(rows, say) for say in (exports.in_english, exports.in_chinese)
    )
    assert "| GPT-2 124M | ours, int8 dynamic | 4,500 | – | – | – |" in english
    assert "| GPT-2 124M | fp32 | 1.50 (OpenVINO) | – | – | – |" in english
    assert "| GPT-2 124M | int8 | 0.90 (llama.cpp) | – | – | – |" in english
    assert "| GPT-2 124M | bf16 | – | – | – | 2.00 (CTranslate2) |" in english
    assert "| BERT base | fp32 | 0.25 (onnxruntime) | – | – | – |" in english
    assert "* BERT base, left out: gguf fp32" in english and "openvino 1.2" in english
    assert "| GPT-2 124M | 我们，int8 dynamic | 4,500 | – | – | – |" in chinese
    assert "| BERT base | fp32 | 0.25 (onnxruntime) | – | – | – |" in chinese
    assert english.count("\n|") == chinese.count("\n|")


def test_only_sides_that_can_take_part_do() -> None:
    both = ("read", "write")
    gpt, bert = ({case: exports.sides_of(name, case, PROVEN) for case in both}
                 for name in ("gpt2", "bert"))  # fmt: skip
    assert gpt["read"] == [*OURS, *(side for side in PEERS if computes(side))]
    assert {side.partition(",")[0] for side in gpt["write"]} == {"ours", "CTranslate2", "llama.cpp"}
    assert "ours, int8" not in bert["read"] and bert["write"] == []
    assert all("openvino" not in side.lower() for side in exports.sides_of("gpt2", "read", {}))


def test_a_difference_is_remembered_and_a_missing_runtime_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bench exports to CTranslate2 alone, at first with a wrong weight."""
    monkeypatch.setattr(exports, "FILES", (("ctranslate2", "fp32"),))
    files = {("ctranslate2", "fp32"): tmp_path / "gpt2-ctranslate2-fp32"}
    with monkeypatch.context() as wrong:
        fill = ctranslate2.set_norm

        def shifted(spec: Any, norm: Any) -> None:
            fill(spec, norm)
            spec.gamma = spec.gamma + np.float32(1e-2)

        wrong.setattr(ctranslate2, "set_norm", shifted)
        proven, missing = exports.exported("gpt2", tmp_path, True)
        assert proven == {} and "row 0" in missing["ctranslate2", "fp32"]
    assert exports.exported("gpt2", tmp_path, True) == ({}, missing)  # not tried again
    with monkeypatch.context() as other:
        other.setattr(exports, "PACKAGES", ("torch",))  # as if another version were installed
        assert exports.exported("gpt2", tmp_path, True) == (files, {})
    shutil.rmtree(files["ctranslate2", "fp32"])
    (tmp_path / "gpt2-ctranslate2-fp32.json").unlink()
    find = importlib.util.find_spec
    with monkeypatch.context() as absent:
        absent.setattr(
            importlib.util, "find_spec", lambda name: None if name == "ctranslate2" else find(name)
        )
        proven, missing = exports.exported("gpt2", tmp_path, True)
        assert proven == {} and "not installed" in missing["ctranslate2", "fp32"]
    assert exports.exported("gpt2", tmp_path, True) == (files, {})


@pytest.mark.parametrize("name", exports.MODELS)
def test_our_sides_read_and_write(name: str, tmp_path: Path) -> None:
    directory = exports.model_in(tmp_path, name, True)
    for side in exports.sides_of(name, "read", {}):
        run = step(side, directory, None, SIZES)
        for case, count in exports.CASES:
            if case == "read" or writes(side, name):
                run(case, count)  # ends the process if a text gets another number of tokens


@pytest.mark.slow
def test_a_run_goes_on_cell_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTranslate2 alone beside ours, in processes; a second run measures only what is missing."""
    monkeypatch.setattr(exports, "FILES", (("ctranslate2", "fp32"),))
    words = ["--tiny", "--only", "marian", "--rows", "12", "--prompt", "5", "--new", "4",
             "--repeats", "1", "--threads", "1", "--json", "--kept", str(tmp_path / "kept"),
             "--out", str(tmp_path / "cells"), "--page", str(tmp_path / "page.md")]  # fmt: skip
    exports.main(words)
    first = json.loads(capsys.readouterr().out)
    assert [(row["case"], row["count"]) for row in first] == [
        ("read", 1), ("read", 8), ("write", 1), ("write", 8)
    ]  # fmt: skip
    assert all(
        {"ours, fp32", "CTranslate2, fp32"} <= set(row["tokens_per_second"]) for row in first
    )
    (tmp_path / "cells" / "tiny" / "marian-write-1.json").unlink()
    exports.main(words)
    done = capsys.readouterr()
    again = {(row["case"], row["count"]): row for row in json.loads(done.out)}
    assert done.err.count("marian: write, 1 …") == 1 and "marian: read" not in done.err
    assert all(again[row["case"], row["count"]] == row for row in first
               if (row["case"], row["count"]) != ("write", 1))  # fmt: skip
    assert not (tmp_path / "page.md").exists()  # a trial is no result
