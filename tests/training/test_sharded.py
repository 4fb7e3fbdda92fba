"""A checkpoint of dealt-out weights is a plain one, for any number of processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.core.errors import FormatError
from regard.training.checkpoint import Checkpoints
from tests.refusals import refuses
from tests.training import sharded_worker
from tests.training.sharded_worker import OPTIMIZERS, build, everything, learn
from tests.training.small import data

ROOT = Path(__file__).resolve().parents[2]
SAVED = Path("checkpoints", "step-00000003")

pytestmark = pytest.mark.slow


def run_two(action: str, directory: Path) -> None:
    """The worker in two processes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, sharded_worker.__file__, action, str(directory)]
    both = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], "\n".join(errors)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes save at step 3 and go on; one process does; two new ones resume both."""
    directory = tmp_path_factory.mktemp("sharded")
    data(directory / "data")
    run_two("begin", directory)
    for kind in OPTIMIZERS:
        alone = build(kind, directory, directory / f"{kind}-alone")
        learn(alone, 3)
        alone.save()
    shutil.copytree(directory / "adamw", directory / "damaged")
    (directory / "damaged" / SAVED / "optimizer.safetensors").unlink()
    run_two("go_on", directory)
    return directory


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys() and one
    return max(float((one[name].double() - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_resumed_by_as_many_is_bit_for_bit_the_same(runs: Path, kind: str) -> None:
    straight, resumed = (load_file(runs / f"{kind}-{n}.safetensors") for n in ("6", "resumed"))
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
    assert apart(straight, load_file(runs / f"{kind}-3.safetensors")) > 1e-3


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_two_processes_then_one(runs: Path, kind: str) -> None:
    alone = build(kind, runs, runs / kind)
    alone.restore()
    at_save, resumed = load_file(runs / f"{kind}-3.safetensors"), everything(alone)
    assert resumed.keys() == at_save.keys()
    assert all(torch.equal(resumed[name], at_save[name]) for name in resumed)
    assert alone.loop.model.output.weight is alone.loop.model.tokens.weight
    learn(alone, 3)
    assert apart(everything(alone), load_file(runs / f"{kind}-6.safetensors")) < 1e-10


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_one_process_then_two(runs: Path, kind: str) -> None:
    names = (f"{kind}-6", f"{kind}-alone-resumed")
    assert apart(*(load_file(runs / f"{name}.safetensors") for name in names)) < 1e-10


def test_the_files_are_those_of_one_process(runs: Path) -> None:
    """Without a pickle, and marked as the best where this was said."""
    dealt, alone = (
        {file.name: file.stat().st_size for file in (runs / name / SAVED).iterdir()}
        for name in ("adamw", "adamw-alone")
    )
    assert dealt.keys() == alone.keys() and all(
        dealt[name] == size for name, size in alone.items() if name.endswith(".safetensors")
    )
    assert {Path(name).suffix for name in dealt} == {".json", ".safetensors"}
    best = Checkpoints(runs / "adamw" / "checkpoints").best()
    assert best is not None and best.step == 3
    assert Checkpoints(runs / "adamw-alone" / "checkpoints").best() is None


def test_what_fails_in_the_first_process_fails_in_all_and_leaves_nothing(runs: Path) -> None:
    first, second = (json.loads((runs / f"failure-{rank}.json").read_text()) for rank in range(2))
    last = list(OPTIMIZERS)[-1]
    assert "step 6 cannot be saved: File too large" in first
    assert f"is intact: {runs / last / SAVED}" in first
    assert "the first process failed" in second
    assert [path.name for path in (runs / last / "checkpoints").iterdir()] == [SAVED.name]


def test_a_missing_file_is_refused_in_all_processes(runs: Path) -> None:
    (first, heard), (second, _) = (
        json.loads((runs / f"damaged-{rank}.json").read_text()) for rank in range(2)
    )
    assert "no checkpoint" in first and "optimizer.safetensors is missing" in first and not heard
    assert "the first process failed" in second


def test_another_model_is_refused(runs: Path) -> None:
    run = build("adamw", runs, runs / "adamw")
    saved = run.checkpoints.latest()
    assert saved is not None
    files = {name: saved.tensors(name) for name in ("weights", "optimizer")}
    run.loop.model.float()
    with refuses(FormatError, "torch.float64", "torch.float32"):
        run.loop.restore(files, saved.facts["progress"])
    run.loop.model.double()
    lost = files["weights"].pop("tokens.weight")
    with refuses(FormatError, "tokens.weight"):
        run.loop.restore(files, saved.facts["progress"])
    files["weights"] |= {"tokens.weight": lost, "another": lost}
    with refuses(FormatError, "another"):
        run.loop.restore(files, saved.facts["progress"])
