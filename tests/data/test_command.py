"""The command: help, lines, JSON, errors."""

from __future__ import annotations

import json
from pathlib import Path

from regard.core.errors import StorageError
from regard.data.corpus import Corpus
from tests.command import run


def test_json_and_lines(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ["prepare", str(source), "--out", str(data), "--tokenizer", "wordpiece", "--lower"]
    result = run(*words, "--valid-fraction", "0.1", "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert summary["splits"]["valid"]["documents"] == 18
    assert summary["tokenizer"] == "wordpiece"
    assert summary["seconds"] > 0
    assert Corpus.open(data, "train").tokenizer.encode("THE", special=False)
    result = run(*words, "--force", "--chunk", "fixed", "--chunk-length", "16")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["split", "train", "valid", "test", "all"]
    assert "wordpiece" in lines[5]


def test_standard_input(tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ["prepare", "-", "-o", str(data), "--tokenizer", "bytes", "--split-by", "line"]
    result = run(*words, input="".join(f"line {i}\n" for i in range(30)))
    assert result.exit_code == 0, result.output
    assert not (data / "standard-input").exists()
    assert Corpus.open(data, "train").facts["splits"]["train"]["documents"] == 26


def test_errors_reach_the_caller(source: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("x")
    result = run("prepare", str(source), "-o", str(tmp_path / "data"))
    assert isinstance(result.exception, StorageError)
    assert run("prepare", str(source)).exit_code == 2
