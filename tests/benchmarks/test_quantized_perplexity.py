"""The perplexity of a model in few bits: windows of the same ids, and a table of all sides."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import quantized_perplexity as script

from regard.api import LoadedModel
from tests.decoding.small import talking
from tests.refusals import refuses


@pytest.fixture
def run(tmp_path: Path) -> Path:
    loaded = talking()
    return LoadedModel(loaded.model.float(), loaded.tokenizer).save(tmp_path / "gpt")


def test_our_sides_are_measured(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 60, encoding="utf-8")
    words = [str(run), "--data", str(text), "--calibrate", str(text), "--texts", "3"]
    script.main([*words, "--json"])
    report = json.loads(capsys.readouterr().out)
    sides = report["sides"]
    assert list(sides) == list(script.OURS) and report["windows"] == 3
    plain = sides["ours, fp32"]
    for name, row in sides.items():
        assert row["perplexity"] == pytest.approx(plain["perplexity"], rel=0.1), name
        assert (row["bytes"] < plain["bytes"]) == (name != "ours, fp32")
    lines = script.section(report).splitlines()
    assert len(lines) == 2 + len(script.OURS) and "+0.00%" in lines[2]


def test_a_perplexity_is_that_of_the_logits() -> None:
    """Equal logits: as many choices as there are tokens."""
    rows = script.perplexity(lambda ids: np.zeros((len(ids), 7), np.float32), [[1, 2, 3], [4, 5]])
    assert math.isclose(rows, 7.0)


def test_a_goal_is_judged_where_the_peer_is_there() -> None:
    side = {"bytes": 10**6, "perplexity": 20.0}
    sides = dict.fromkeys(script.OURS, side) | {"llama.cpp, Q4_K_M": side | {"perplexity": 19.0}}
    assert script.section({"sides": sides}).endswith("1.0526 (missed) (goal: at most 1)")


def test_a_text_that_is_too_short(run: Path) -> None:
    with refuses(SystemExit, "window", "longer text"):
        script.windows(script.load(run), "a", 3)
