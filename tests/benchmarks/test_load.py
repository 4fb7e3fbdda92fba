"""Opening a model with and without the look for NaN."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from load import main

from regard.core.errors import FormatError
from regard.formats.directory import save
from regard.models import create
from tests.refusals import refuses


def test_both_ways_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = create("gpt2", vocab_size=50, width=8, layers=1, heads=2, context=16)
    save(model, tmp_path / "model")
    words = ["--directory", str(tmp_path / "model"), "--repeats", "1"]
    assert main(words) == 0
    ratio = float(capsys.readouterr().out.split("ratio")[1])
    assert ratio > 0
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    save(model, tmp_path / "model")
    with refuses(FormatError, "--allow-nan"):  # one of the two looks
        main(words)
