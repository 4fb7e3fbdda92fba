"""Decoding beside the peers: what is timed on each side, and what drafts gain."""

from __future__ import annotations

import json
from pathlib import Path

import inference
import inference_sides
import pytest
from inference_drafts import drafted

PROGRAM = """#!/usr/bin/env python3
import json, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
open(sys.argv[0] + ".log", "a").write(words["-ntg"] + "\\n")
print("loading", json.dumps({"n_kv_max": 1, "t_pp": 0.5, "t_tg": 0.25 * int(words["-ntg"])}))
"""


def test_llama_cpp_takes_as_many_steps_as_the_others(tmp_path: Path) -> None:
    """The first new token follows from the prompt; a prompt alone takes no step."""
    program, file = tmp_path / "llama-batched-bench", tmp_path / "F32.gguf"
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    file.write_bytes(b"weights")
    measure, size = inference_sides.llama(file, tmp_path)
    assert size == 7 and measure([[1, 2, 3]], 9) == (0.5 + 8 * 0.25, [])
    assert measure([[1, 2, 3]], 1) == (0.5, [])
    assert (tmp_path / "llama-batched-bench.log").read_text().split() == ["8", "1"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return inference_sides.made(tmp_path, True, None)


def test_drafts_are_measured_with_and_without(model: Path) -> None:
    rows = drafted(model, [], 1, True)
    assert [row["draft"] for row in rows] == ["lookup", "the first layers"]
    for row in rows:
        assert row["with"] > 0 and row["without"] > 0 and 1 <= row["tokens_a_call"] <= 17
    report = {"drafts": [{"draft": "lookup", "without": 10.0, "with": 25.0, "tokens_a_call": 3.0}]}
    assert "| lookup | 10.0 | 25.0 | 2.50 | 3.0 |" in inference.drafts_of(report, str)
    assert "| 在文本中查找 |" in inference.drafts_of(report, inference.in_chinese)


def test_a_trained_pair_takes_the_place_of_the_random_one(model: Path) -> None:
    rows = drafted(model, [model, model], 1, True)
    assert rows[1]["draft"] == "a small model" and rows[1]["tokens_a_call"] > 2
    assert json.dumps(rows)
