"""A checkpoint of dealt-out weights is one for any number of processes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.core.errors import StorageError
from regard.training.checkpoint import Checkpoints, Saved
from regard.training.sharded import covers, latest_together, load_sharded, save_sharded
from tests.training import sharded_worker
from tests.training.sharded_worker import OPTIMIZERS, build, learn, whole

ROOT = Path(__file__).resolve().parents[2]
FIRST = "sharded/shard-00001-model-00001-of-00001.safetensors"
SECOND = "sharded/shard-00002-model-00001-of-00001.safetensors"


def run_two(action: str, directory: Path) -> None:
    """The worker in two processes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, sharded_worker.__file__, action, str(directory)]
    both = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=240)[1] for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], "\n".join(said)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes save at step 3 and go on; one process does; two new ones resume both."""
    directory = tmp_path_factory.mktemp("sharded")
    run_two("begin", directory)
    for kind in OPTIMIZERS:
        learner, optimizer = build(kind)
        learn(learner, optimizer, 0, 3)
        save_sharded(Checkpoints(directory / f"{kind}-alone"), 3, learner.model, optimizer, {})
    shutil.copytree(directory / "adamw", directory / "damaged")
    (directory / "damaged" / "step-00000003" / SECOND).unlink()
    run_two("go_on", directory)
    return directory


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys() and one
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_resumed_by_as_many_is_bit_for_bit_the_same(runs: Path, kind: str) -> None:
    straight, resumed = (load_file(runs / f"{kind}-{n}.safetensors") for n in ("6", "resumed"))
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
    assert apart(straight, load_file(runs / f"{kind}-3.safetensors")) > 1e-3


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_two_processes_then_one(runs: Path, kind: str) -> None:
    saved = Checkpoints(runs / kind).best()
    assert saved is not None and saved.step == 3 and saved.facts == {"loss": 0.5}
    learner, optimizer = build(kind)
    load_sharded(saved, learner.model, optimizer)
    at_save = load_file(runs / f"{kind}-3.safetensors")
    found = whole(learner.model, optimizer)
    assert found.keys() == at_save.keys()
    assert all(torch.equal(found[name], at_save[name]) for name in found)
    assert learner.model.output.weight is learner.model.tokens.weight
    learn(learner, optimizer, 3, 6)
    assert apart(whole(learner.model, optimizer), load_file(runs / f"{kind}-6.safetensors")) < 1e-10


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_one_process_then_two(runs: Path, kind: str) -> None:
    names = (f"{kind}-6", f"{kind}-alone-resumed")
    assert apart(*(load_file(runs / f"{name}.safetensors") for name in names)) < 1e-10


def test_the_groups_come_back(runs: Path) -> None:
    saved = latest_together(Checkpoints(runs / "adamw"))
    learner, optimizer = build()
    assert saved is not None
    load_sharded(saved, learner.model, optimizer)
    for group, decay in zip(optimizer.param_groups, (0.1, 0.0), strict=True):
        assert group["lr"] == 1e-2 * 0.9 * 0.9 * 0.9
        assert group["weight_decay"] == decay and group["fused"] is True
        assert group["betas"] == (0.9, 0.999)
        assert all(optimizer.state[p]["step"] == 3 for p in group["params"])


def test_memory_is_a_file_of_its_own(runs: Path) -> None:
    saved = Checkpoints(runs / "adamw").latest()
    assert saved is not None
    assert torch.equal(saved.tensors("memory")["hidden.0"], torch.arange(6.0))


def test_a_shared_weight_is_stored_once(runs: Path) -> None:
    saved = Checkpoints(runs / "adamw").latest()
    assert saved is not None
    names = load_file(saved.path / FIRST).keys()
    assert "model.tokens.weight" in names and "model.output.weight" not in names


def test_what_fails_in_one_process_fails_in_all_and_leaves_nothing(runs: Path) -> None:
    first, second = (json.loads((runs / f"failure-{rank}.json").read_text()) for rank in range(2))
    assert "step 6 cannot be saved: File too large" in first
    assert f"is intact: {runs / 'adamw' / 'step-00000003'}" in first
    assert "step 6 cannot be saved: File too large" in second
    assert [path.name for path in (runs / "adamw").iterdir()] == ["step-00000003"]


def test_a_missing_part_is_refused_in_all_processes(runs: Path) -> None:
    for rank in range(2):
        said, heard = json.loads((runs / f"damaged-{rank}.json").read_text())
        assert "no checkpoint" in said and f"{SECOND} is missing" in said and not heard


# -- no pickle


def test_nothing_on_disk_is_a_pickle_and_nothing_is_unpickled(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [f for f in (runs / "adamw").rglob("*") if f.is_file()]
    assert {f.suffix for f in files} == {".json", ".safetensors"} and len(files) == 6
    for file in files:
        begin = file.read_bytes()[:9]
        assert begin[:1] == b"{" if file.suffix == ".json" else begin[8:9] == b"{"

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a pickle was read")

    for module, name in (
        (torch, "load"),
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
    ):
        monkeypatch.setattr(module, name, refuse)
    saved = Checkpoints(runs / "adamw").latest()
    assert saved is not None
    load_sharded(saved, *build_pair())


def build_pair() -> tuple[Any, torch.optim.Optimizer]:
    learner, optimizer = build()
    return learner.model, optimizer


# -- what is not whole, or of another model


def cut(path: Path) -> None:
    os.truncate(path / SECOND, (path / SECOND).stat().st_size - 8)


def swap(path: Path) -> None:
    """Both files hold the same half."""
    shutil.copy(path / FIRST, path / SECOND)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda p: (p / SECOND).unlink(), r"parts of model\.tokens\.weight are missing"),
    "cut": (cut, r"shard-00002.* is damaged or cut short"),
    "twice": (swap, r"parts of model\.tokens\.weight are missing"),
    "foreign": (
        lambda p: shutil.copy(p / "memory.safetensors", p / "sharded" / "x.safetensors"),
        r"x\.safetensors is damaged",
    ),
    "scalars": (lambda p: (p / "sharded" / "scalars.json").unlink(), r"has no sharded/scalars"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_headers_show_what_is_missing(runs: Path, tmp_path: Path, kind: str) -> None:
    damage, reason = DAMAGE[kind]
    path = shutil.copytree(runs / "adamw" / "step-00000003", tmp_path / "step-00000003")
    damage(path)
    with pytest.raises(StorageError, match=reason):
        load_sharded(Saved.open(path, verify=False), *build_pair())


def test_another_model_is_refused(runs: Path) -> None:
    saved = Checkpoints(runs / "adamw").latest()
    assert saved is not None
    model, optimizer = build_pair()
    with pytest.raises(StorageError, match=r"'F64'\) in .* and \(.*'F32'\) in the model"):
        load_sharded(saved, model.float(), optimizer)
    model, _ = build_pair()
    other = torch.optim.AdamW(model.parameters())
    with pytest.raises(StorageError, match="other groups of parameters"):
        load_sharded(saved, model, other)
    load_sharded(saved, model)  # the weights alone


def test_boxes_that_fill_a_tensor() -> None:
    halves = [([0, 0], [2, 5]), ([2, 0], [1, 5])]
    assert covers([3, 5], halves) and covers([3, 5], halves[::-1])
    assert not covers([3, 5], halves[:1])
    assert not covers([3, 5], [*halves, halves[0]])
    assert not covers([3, 5], [([0, 0], [2, 5]), ([1, 0], [1, 5])])
    assert not covers([3, 5], [([0, 0], [3, 6])])
    assert not covers([3, 5], [])
    quarters = [([r, c], [1 + r, 2 + c // 2]) for r in (0, 1) for c in (0, 2)]
    assert covers([3, 5], quarters) and not covers([3, 5], quarters[1:])
