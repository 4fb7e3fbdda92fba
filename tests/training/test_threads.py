"""A run that is resumed with another number of threads: it says so, and the difference is as small
as docs/reliability.md says."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard.cli.main import main
from regard.methods.runs import run
from regard.training.loop import Loop
from regard.training.recipe import Recipe, make

ROOT = Path(__file__).resolve().parents[2]
STEPS = 40
SHAPE = {"layers": 2, "width": 128, "heads": 4, "ffn_size": 512}  # enough for two threads to share
WEIGHTS, BITS = 1e-3, 1e-5  # forty times what docs/reliability.md says, for other machines


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation of this project, as bytes."""
    directory = tmp_path_factory.mktemp("text")
    text = "\n\n".join(file.read_text("utf-8") for file in sorted((ROOT / "docs").glob("*.md")))
    (directory / "docs.txt").write_text(text, "utf-8")
    words = ["prepare", directory / "docs.txt", "--out", directory / "data", "--tokenizer", "bytes"]
    assert main([*map(str, words), "--quiet"]) == 0
    return directory / "data"


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def plan(family: str, data: Path) -> Recipe:
    return make({
        "model": family, "data": str(data), "shape": SHAPE, "budget": {"steps": STEPS},
        "batch": {"size": 16, "seq_len": 128}, "validation": {"every": STEPS},
        "engine": {"precision": "fp32", "compile": "no", "threads": 2},
    })  # fmt: skip


def ended(out: Path, facts: dict[str, Any]) -> tuple[dict[str, torch.Tensor], float]:
    """The weights, and the bits per byte (of a BERT: per masked byte)."""
    figures = facts["valid"]
    bits = figures.get("bits_per_byte") or math.log2(figures["masked_perplexity"])
    return load_file(out / "model.safetensors"), bits


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_the_difference_is_as_small_as_documented(
    family: str, place: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    whole = ended(tmp_path / "whole", run(plan(family, place), tmp_path / "whole"))
    plain = Loop.step

    def step(self: Loop, *rest: Any) -> Any:
        if self.progress.step == STEPS // 2 and torch.get_num_threads() == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "step", step)
        facts = run(plan(family, place), tmp_path / "parts", display="silent")
    assert facts["outcome"] == "interrupted"
    torch.set_num_threads(1)
    facts = run(Recipe(), tmp_path / "parts", resume=True, display="plain")
    assert "engine.threads was 2 and is 1" in capsys.readouterr().err
    parts = ended(tmp_path / "parts", facts)
    weights = max(float((whole[0][name] - parts[0][name]).abs().max()) for name in whole[0])
    print(f"{family}: weights {weights:.2e}, bits {abs(whole[1] - parts[1]):.2e}")
    assert weights <= WEIGHTS and abs(whole[1] - parts[1]) <= BITS
