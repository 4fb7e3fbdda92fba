"""What learns most in a small budget resumes bit for bit: Muon, averages of checkpoints, rates that
rise and fall, layers that thaw, budgets that were prolonged."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from regard.methods.runs import run
from regard.training.loop import Loop
from regard.training.recipe import Recipe, make, read_resolved
from tests.training.small import recipe
from tests.training.test_never_lost import bits, figures, interrupted

MUON: dict[str, Any] = {"optimizer": {"name": "muon", "lr": 0.01, "weight_decay": 0.1}}
WSD: dict[str, Any] = {"schedule": {"name": "wsd", "warmup": 2, "decay_fraction": 0.5}}
WAYS: dict[str, dict[str, Any]] = {
    "muon": MUON,
    "accumulated": MUON | {"batch": {"size": 8, "seq_len": 32, "grad_accum": 4}},
    "rises and falls": MUON | WSD,
    "averaged": MUON | WSD | {"checkpoint": {"every": 1, "average": 3}},
    "thaws": {"optimizer": MUON["optimizer"] | {"freeze_layers": 1, "unfreeze_every": 2}},
}


@pytest.mark.parametrize("family", ["gpt", "lstm"])
@pytest.mark.parametrize("way", WAYS)
def test_a_stopped_run_ends_with_the_same_bits(
    way: str, family: str, where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe(family, where, **WAYS[way])
    run(chosen, tmp_path / "whole", display="silent")
    interrupted(chosen, tmp_path / "parts", [1, 4], monkeypatch)
    assert read_resolved(tmp_path / "parts" / "recipe.toml").optimizer.name == "muon"
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")


def stop_at(number: int, patch: pytest.MonkeyPatch) -> None:
    """Lets the next run be told to stop in the middle of this step."""
    plain = Loop.step

    def step(self: Loop, *rest: Any) -> Any:
        if self.progress.step == number:
            patch.setattr(Loop, "step", plain)
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self, *rest)

    patch.setattr(Loop, "step", step)


def go_on(out: Path, outcome: str, steps: int | None = None) -> None:
    longer = make({"budget": {"steps": steps}}) if steps else Recipe()
    assert run(longer, out, resume=True, display="silent")["outcome"] == outcome


@pytest.mark.parametrize("name", ["wsd", "linear", "cosine"])
def test_a_prolonged_run_that_is_stopped_ends_with_the_same_bits(
    name: str, where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for out in (whole, parts):
        run(recipe("gpt", where, **MUON, schedule={"name": name}), out, display="silent")
    before = bits(whole)
    go_on(whole, "done", steps=12)
    stop_at(8, monkeypatch)
    go_on(parts, "interrupted", steps=12)
    go_on(parts, "done")
    assert bits(whole) == bits(parts) != before
    assert figures(whole) == figures(parts)


def test_what_is_prolonged_before_its_rate_falls_is_a_run_that_was_planned_so(
    where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate of warm-up, stable, decay is the same in both until then; the warm-up has a number
    of steps of its own."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(recipe("gpt", where, **MUON, **WSD, budget={"steps": 16}), whole, display="silent")
    stop_at(3, monkeypatch)
    run(recipe("gpt", where, **MUON, **WSD, budget={"steps": 8}), parts, display="silent")
    go_on(parts, "done", steps=16)
    assert bits(whole) == bits(parts)
