"""A run that was stopped, in whatever way, ends with the very bits of one that never was."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.methods.runs import run
from regard.models import FAMILIES
from regard.training import run as runs
from regard.training.loop import Loop
from regard.training.recipe import Recipe
from tests.refusals import warns
from tests.training.small import data, recipe

KILLS = 30


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data(tmp_path_factory.mktemp("pairs"), kind="pairs")


def bits(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def figures(run: Path) -> list[dict[str, Any]]:
    """The metrics without the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def interrupted(run_recipe: Recipe, out: Path, steps: list[int], patch: pytest.MonkeyPatch) -> None:
    """Trains, with a SIGTERM in the middle of each of these steps, until it is done."""
    plain = Loop.step

    def step(self: Loop, *rest: Any) -> Any:
        if self.progress.step in steps:
            steps.remove(self.progress.step)
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self, *rest)

    patch.setattr(Loop, "step", step)
    facts = run(run_recipe, out, display="silent")
    while facts["outcome"] == "interrupted":
        facts = run(Recipe(), out, resume=True, display="silent")
    assert facts["outcome"] == "done" and not steps


CASES = [
    *((name, card.objective, {}) for name, card in FAMILIES.items()),
    ("bert", "masked", {}),
    ("gpt", "prefix", {}),
    ("t5", "prefix", {}),
    ("transformer", "span", {}),
    ("transformer-xl", "causal", {}),
    ("transformer", "pairs", {}),
    ("t5", "pairs", {}),
    (
        "gpt",
        "mixture",
        {"parts": [{"objective": "causal", "share": 0.5}, {"objective": "prefix", "share": 0.5}]},
    ),
]


@pytest.mark.parametrize(("family", "name", "options"), CASES, ids=lambda c: str(c)[:20])
def test_resumed_equals_uninterrupted(
    family: str,
    name: str,
    options: dict[str, Any],
    where: Path,
    pairs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped twice, every objective."""
    source = pairs if name == "pairs" else where
    run_recipe = recipe(family, source, objective={"name": name, **options})
    run(run_recipe, tmp_path / "whole", display="silent")
    run_recipe = recipe(family, source, objective={"name": name, **options})
    interrupted(run_recipe, tmp_path / "parts", [1, 4], monkeypatch)
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")


@pytest.mark.parametrize("family", ["gpt", "transformer-xl"])
def test_under_accumulation(
    family: str, where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"batch": {"size": 8, "grad_accum": 4}}
    run(recipe(family, where, **changes), tmp_path / "whole", display="silent")
    interrupted(recipe(family, where, **changes), tmp_path / "parts", [2, 3], monkeypatch)
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")


def test_stopped_during_validation(
    where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validation that was cut off is done again."""
    run(recipe("gpt", where), tmp_path / "whole", display="silent")
    plain, calls = runs.validate, []

    def validate(*args: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(*args, **named)

    monkeypatch.setattr(runs, "validate", validate)
    facts = run(recipe("gpt", where), tmp_path / "parts", display="silent")
    assert facts["outcome"] == "interrupted" and facts["progress"]["step"] == 3
    facts = run(Recipe(), tmp_path / "parts", resume=True, display="silent")
    assert facts["outcome"] == "done"
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")


def child(run_recipe: Recipe, out: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    resume = (out / "recipe.toml").is_file()
    run(Recipe() if resume else run_recipe, out, resume=resume, display="silent")


def wait_a_little(process: Any, metrics: Path, dice: random.Random) -> None:
    """Until a few more steps are done and a moment has passed; sometimes not even that long."""
    before = lines_of(metrics)
    wanted = dice.randint(0, 12)
    while process.is_alive() and lines_of(metrics) - before < wanted:
        time.sleep(0.002)
    time.sleep(dice.uniform(0.0, 0.03))


def lines_of(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.mark.slow
def test_killed_at_random_moments(where: Path, tmp_path: Path) -> None:
    """SIGKILL, writes included: every checkpoint interval is one step long."""
    changes: dict[str, Any] = {
        "budget": {"steps": 500},
        "checkpoint": {"every": 1},
        "validation": {"every": 50},
    }
    new_recipe: Callable[[], Recipe] = lambda: recipe("transformer-xl", where, **changes)  # noqa: E731
    fork = multiprocessing.get_context("fork")
    whole = fork.Process(target=child, args=(new_recipe(), tmp_path / "whole"))
    whole.start()
    whole.join()
    assert whole.exitcode == 0
    dice, kills = random.Random(5), 0
    out = tmp_path / "parts"
    while kills < KILLS + 5:
        process = fork.Process(target=child, args=(new_recipe(), out))
        process.start()
        wait_a_little(process, out / "metrics.jsonl", dice)
        if process.exitcode is not None:
            break
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
    last = fork.Process(target=child, args=(new_recipe(), out))
    last.start()
    last.join()
    assert last.exitcode == 0
    assert kills >= KILLS, f"only {kills} kills: make the run longer"
    assert bits(tmp_path / "whole") == bits(out)
    assert figures(tmp_path / "whole") == figures(out)
    assert not list(out.glob("**/.writing*"))


def test_a_damaged_checkpoint_falls_back(where: Path, tmp_path: Path) -> None:
    run_recipe = recipe("gpt", where, checkpoint={"every": 2}, budget={"steps": 6})
    run(run_recipe, tmp_path / "run", display="silent")
    whole = bits(tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    weights = newest / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with warns(UserWarning, "weights.safetensors"):
        run(Recipe(), tmp_path / "run", resume=True, display="silent")
    assert bits(tmp_path / "run") == whole


def test_what_diverged_is_kept(where: Path, tmp_path: Path) -> None:
    run_recipe = recipe(
        "gpt", where, optimizer={"lr": 1e30, "grad_clip": 0.0}, budget={"steps": 20}
    )
    with pytest.raises(runs.Diverged):
        run(run_recipe, tmp_path / "run", display="silent")
    saved = runs.Checkpoints(tmp_path / "run" / "checkpoints").latest()
    assert saved is not None and saved.facts["reason"] == "diverged"
    assert all(torch.isfinite(w).all() for w in saved.tensors("weights").values())
