"""One process equals two, with every engine, and a lost process costs nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard.training import recipe as recipes
from tests.training.small import STILL, recipe

WORKER = Path(__file__).with_name("worker.py")
KINDS = ("ddp", "fsdp")
LEARNERS = ("gpt", "bert", "transformer-xl", "xlnet", "t5")


def work(what: str, out: Path, files: list[Path], processes: int) -> None:
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), str(WORKER), what, str(out), *map(str, files)]
    done = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def place(where: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process and what two have learned, with every engine: starting them takes long."""
    place = tmp_path_factory.mktemp("parallel")
    exact, plain = {"engine": {"precision": "fp64"}, "budget": {"steps": 20}}, {"precision": "fp32"}
    runs: dict[str, dict[str, dict[str, Any]]] = {
        "gradients": {"step": {"engine": plain, "optimizer": {"grad_clip": 0.0}}},
        "train": {"own": exact, "muon": exact | {"optimizer": {"name": "muon"}}},
    }
    for what, variants in runs.items():
        files = []
        for name, kind, learner in product(variants, KINDS, LEARNERS):
            changes = variants[name] | {"engine": variants[name]["engine"] | {"parallel": kind}}
            batch = {"size": 8, "grad_accum": 2}
            files.append(place / f"{name}-{kind}-{learner}.toml")
            recipes.write(
                recipe(learner, where, shape=STILL[learner], batch=batch, **changes), files[-1]
            )
        for processes in (1, 2):
            work(what, place / str(processes), files, processes)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_gradients_of_a_step(place: Path, learner: str, kind: str) -> None:
    one, two = (load_file(place / n / f"step-{kind}-{learner}.safetensors") for n in "12")
    assert one.keys() == two.keys()
    for name, value in one.items():
        scale = max(float(value.norm()), 1e-3 * float(one["loss"]))
        assert float((two[name] - value).norm()) <= 1e-6 * scale, name


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["own", "muon"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learner", LEARNERS)
def test_weights_after_twenty_steps(place: Path, learner: str, kind: str, optimizer: str) -> None:
    run = f"{optimizer}-{kind}-{learner}"
    one, two = (load_file(place / n / run / "model.safetensors") for n in "12")
    for name, value in one.items():
        assert value.dtype == torch.float64
        assert (two[name] - value).abs().max() <= 1e-10, name


def started(out: Path, file: Path, processes: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "3"]
    command += ["--nproc-per-node", str(processes), str(WORKER), "train", str(out), str(file)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def workers(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children]


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, "ended before its time"
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


def disturbed(run_recipe: recipes.Recipe, place: Path) -> tuple[Path, subprocess.Popen[bytes]]:
    """Two processes have learned it, and two others are at it, with checkpoints already."""
    file, saved = place / "run.toml", place / "shaken" / "run" / "checkpoints"
    recipes.write(run_recipe, file)
    work("train", place / "plain", [file], 2)
    process = started(place / "shaken", file, 2)
    wait_for(lambda: len(list(saved.glob("step-*"))) > 1, process)
    return file, process


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_worker(kind: str, where: Path, tmp_path: Path) -> None:
    """torchrun starts all again; the result is that of the undisturbed run, bit for bit. Dropout
    is on.
    """
    run_recipe = recipe(
        "transformer-xl",
        where,
        batch={"size": 8},
        engine={"parallel": kind},
        budget={"steps": 60},
        checkpoint={"every": 3},
        validation={"every": 30},
    )
    _, process = disturbed(run_recipe, tmp_path)
    os.kill(workers(process.pid)[-1], signal.SIGKILL)
    assert process.wait(timeout=240) == 0
    plain, shaken = (
        (tmp_path / n / "run" / "model.safetensors").read_bytes() for n in ("plain", "shaken")
    )
    assert plain == shaken


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_resumed_by_another_number_of_processes(kind: str, where: Path, tmp_path: Path) -> None:
    """Two begin, one goes on: the same within the tolerance of the law."""
    run_recipe = recipe(
        "transformer-xl",
        where,
        shape=STILL["transformer-xl"],
        batch={"size": 8, "grad_accum": 2},
        engine={"parallel": kind, "precision": "fp64"},
        budget={"steps": 200},
        checkpoint={"every": 3},
        validation={"every": 100},
    )
    file, process = disturbed(run_recipe, tmp_path)
    process.terminate()
    process.wait(timeout=60)
    work("train", tmp_path / "shaken", [file], 1)
    plain, shaken = (
        load_file(tmp_path / n / "run" / "model.safetensors") for n in ("plain", "shaken")
    )
    for name, value in plain.items():
        assert (shaken[name] - value).abs().max() <= 1e-10, name
