"""Whatever happens while a checkpoint is written, an intact one is left."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.core.errors import StorageError
from regard.formats import weights
from regard.training import checkpoint
from regard.training.checkpoint import Checkpoints
from tests.refusals import refuses, warns

ROOT = Path(__file__).resolve().parents[2]


def state(step: int, size: int = 1000) -> dict[str, dict[str, Tensor]]:
    """Tensors that follow from the step."""
    generator = torch.Generator().manual_seed(step)
    first = {"a": torch.randn(size, generator=generator), "b": torch.tensor(float(step))}
    return {"weights": first, "optimizer": {"a.exp_avg": torch.full((size,), 1.0 * step)}}


def same(saved: checkpoint.Saved, size: int = 1000) -> bool:
    return saved.facts["step"] == saved.step and all(
        bits_equal(saved.tensors(name)[key], tensor)
        for name, tensors in state(saved.step, size).items()
        for key, tensor in tensors.items()
    )


def bits_equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
    return torch.equal(*raw)


def fill(directory: Path, steps: tuple[int, ...] = (10, 20), keep: int = 2) -> Checkpoints:
    checkpoints = Checkpoints(directory, keep)
    for step in steps:
        checkpoints.save(step, state(step), {"step": step})
    return checkpoints


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# -- what is written comes back


@pytest.mark.parametrize("dtype", list(weights.DTYPES), ids=str)
def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    raw = torch.randint(0, 256, (7, 24), dtype=torch.uint8)
    tensor = raw > 127 if dtype == torch.bool else raw.view(dtype)
    path = Checkpoints(tmp_path).save(1, {"weights": {"x": tensor}}, {})
    assert bits_equal(load_file(path / "weights.safetensors")["x"], tensor)


def test_unusual_tensors_come_back(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.zeros(0, 5),
        "transposed": base.T,
        "strided": base[:, ::2],
        "broadcast": torch.ones(1, 3).expand(4, 3),
        "shared": base,
        "shared again": base,
        "byte between": torch.ones(3, dtype=torch.int8),
        "parameter": torch.nn.Parameter(torch.tensor([float("nan"), -0.0, float("inf")])),
    }
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"weights": tensors, "memory": {}}, {})
    saved = checkpoints.latest()
    assert saved is not None and saved.tensors("memory") == {}
    back = saved.tensors("weights")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert bits_equal(back[name], tensor.detach()), name


def test_facts_come_back(tmp_path: Path) -> None:
    facts = {"losses": [0.1 + 0.2, 1e-300, float("inf")], "recipe": "é", "groups": [{"lr": 3e-4}]}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, {}, facts)
    saved = checkpoints.latest()
    assert saved is not None and saved.facts == facts and saved.step == 3 and not saved.best


def test_facts_that_are_no_json_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        Checkpoints(tmp_path).save(3, state(3), {"bad": object()})
    assert not names(tmp_path)


def test_a_dtype_that_cannot_be_stored_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with refuses(StorageError, "x", "torch.complex128"):
        tensor = torch.zeros(2, dtype=torch.complex128)
        Checkpoints(tmp_path).save(3, {"weights": {"x": tensor}}, {})
    assert not names(tmp_path)


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    saved = fill(tmp_path).latest()
    assert saved is not None
    with refuses(StorageError, "memory.safetensors", "weights"):
        saved.tensors("memory")


def test_a_new_run_has_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").latest() is None
    assert Checkpoints(tmp_path / "none").best() is None
    assert not (tmp_path / "none").exists()


def test_everything_is_flushed_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    renamed = []
    fsync, rename = os.fsync, Path.rename

    def note_fsync(handle: int) -> None:
        fsync(handle)
        flushed.append(os.fstat(handle).st_ino)

    def note_rename(self: Path, target: Path) -> Path:
        marker = flushed.index((self / checkpoint.MARKER).stat().st_ino)
        for path in self.iterdir():
            assert flushed.index(path.stat().st_ino) <= marker
        assert self.stat().st_ino in flushed[marker:]
        renamed.append(target)
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "rename", note_rename)
    path = Checkpoints(tmp_path).save(1, state(1), {})
    assert renamed == [path] and flushed[-1] == tmp_path.stat().st_ino


# -- which ones are kept


def test_old_ones_go_and_the_best_stays(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (10, 20, 30, 40, 50):
        checkpoints.save(step, state(step), {"step": step}, best=step in (10, 20))
    assert names(tmp_path) == ["step-00000020", "step-00000040", "step-00000050"]
    latest, best = checkpoints.latest(), checkpoints.best()
    assert latest is not None and latest.step == 50 and same(latest)
    assert best is not None and best.step == 20 and same(best) and best.best
    checkpoints.save(60, state(60), {"step": 60}, best=True)
    assert names(tmp_path) == ["step-00000050", "step-00000060"]


def test_a_step_written_again_replaces_the_first(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path)
    checkpoints.save(20, state(20), {"step": 20, "finished": True})
    checkpoints.save(20, state(20), {"step": 20, "finished": "twice"})
    assert names(tmp_path) == ["step-00000010", "step-00000020.2"]
    latest = checkpoints.latest()
    assert latest is not None and latest.facts["finished"] == "twice" and same(latest)


def test_after_a_fall_back_the_damaged_future_goes(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path)
    flip(tmp_path / "step-00000020" / "weights.safetensors")
    checkpoints.save(15, state(15), {"step": 15})
    assert names(tmp_path) == ["step-00000010", "step-00000015"]


def test_leftovers_go_when_the_next_one_is_written(tmp_path: Path) -> None:
    checkpoints = fill(tmp_path)
    for name in (".writing-00000030-1", ".removing-step-00000001"):
        shutil.copytree(tmp_path / "step-00000010", tmp_path / name)
    latest = checkpoints.latest()
    assert latest is not None and latest.step == 20  # readers leave them alone
    assert (tmp_path / ".writing-00000030-1").is_dir()
    checkpoints.save(30, state(30), {"step": 30})
    assert names(tmp_path) == ["step-00000020", "step-00000030"]


def test_a_kill_while_an_old_one_is_removed_leaves_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = fill(tmp_path, (10, 20))

    def killed(path: Path, ignore_errors: bool = False) -> None:
        (path / "weights.safetensors").unlink(missing_ok=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        checkpoints.save(30, state(30), {"step": 30})
    assert [path.name for path in checkpoints.entries()] == ["step-00000020", "step-00000030"]
    assert all(same(checkpoint.SavedCheckpoint.open(path)) for path in checkpoints.entries())
    checkpoints.clean()
    assert names(tmp_path) == ["step-00000020", "step-00000030"]


def test_at_least_one_is_kept(tmp_path: Path) -> None:
    with refuses(StorageError, "keep", 0):
        Checkpoints(tmp_path, keep=0)


# -- damage


def flip(file: Path, at: float = 0.9) -> None:
    content = bytearray(file.read_bytes())
    content[int(len(content) * at)] ^= 1
    file.write_bytes(content)


def set_hash(path: Path) -> None:
    marker = json.loads((path / "checkpoint.json").read_text())
    marker["files"]["weights.safetensors"]["sha256"] = "0" * 64
    (path / "checkpoint.json").write_text(json.dumps(marker))


def write_marker(path: Path, **changes: object) -> None:
    marker = json.loads((path / "checkpoint.json").read_text())
    (path / "checkpoint.json").write_text(json.dumps(marker | changes))


def escape(path: Path) -> None:
    marker = json.loads((path / "checkpoint.json").read_text())
    marker["files"]["../../secret"] = marker["files"].pop("weights.safetensors")
    (path / "checkpoint.json").write_text(json.dumps(marker))


DAMAGE: dict[str, tuple[Any, ...]] = {  # what is done, and what the warning mentions
    "flipped bit": (lambda p: flip(p / "weights.safetensors"), "weights.safetensors", "SHA-256"),
    "flipped header": (lambda p: flip(p / "optimizer.safetensors", 0.01), "optimizer", "SHA-256"),
    "flipped fact": (lambda p: flip(p / "facts.json", 0.5), "facts.json", "SHA-256"),
    "cut short": (lambda p: os.truncate(p / "weights.safetensors", 99), "weights", "99 bytes"),
    "missing": (lambda p: (p / "optimizer.safetensors").unlink(), "optimizer.safetensors"),
    "no marker": (lambda p: (p / "checkpoint.json").unlink(), "checkpoint.json"),
    "garbage": (lambda p: (p / "checkpoint.json").write_bytes(b"\xff{"), "checkpoint.json"),
    "deep": (lambda p: (p / "checkpoint.json").write_text("[" * 10**6), "checkpoint.json"),
    "empty": (lambda p: (p / "checkpoint.json").write_text("{}"), "checkpoint.json"),
    "a list": (lambda p: (p / "checkpoint.json").write_text("[]"), "checkpoint.json"),
    "wrong hash": (set_hash, "weights.safetensors", "SHA-256"),
    "other directory": (escape, "checkpoint.json"),
    "other step": (lambda p: write_marker(p, step=21), "checkpoint.json"),
    "other format": (lambda p: write_marker(p, format=2), "checkpoint.json", "format 2"),
    "a file": (lambda p: (shutil.rmtree(p), p.write_text("x")), "checkpoint.json"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_falls_back_to_the_one_before(tmp_path: Path, kind: str) -> None:
    damage, *parts = DAMAGE[kind]
    checkpoints = fill(tmp_path)
    damage(tmp_path / "step-00000020")
    with warns(UserWarning, *parts, "step-00000020", "10"):
        saved = checkpoints.latest()
    assert saved is not None and saved.step == 10 and same(saved)
    damage(tmp_path / "step-00000010")
    with refuses(StorageError, tmp_path, "step-00000010", "step-00000020"):
        checkpoints.latest()


def test_no_single_flipped_bit_of_a_marker_goes_unseen(tmp_path: Path) -> None:
    """It is seen, or it changes nothing that is read."""
    checkpoints = fill(tmp_path, (10, 20))
    file = tmp_path / "step-00000020" / "checkpoint.json"
    content = file.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 7)
        file.write_bytes(changed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saved = checkpoints.latest()
        assert saved is not None and same(saved) and not saved.best


# -- no room, no access


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"mounting is not permitted here: {mount.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_too_little_room_is_seen_before_writing(small_disk: Path) -> None:
    checkpoints = fill(small_disk / "run")
    with pytest.raises(StorageError) as caught:
        checkpoints.save(30, state(30, 200_000), {"step": 30})
    text = str(caught.value)
    assert "No space left" in text and "1.7 MB are needed" in text and "kB are free" in text
    assert f"is intact: {small_disk / 'run' / 'step-00000020'}" in text
    assert names(small_disk / "run") == ["step-00000010", "step-00000020"]


def test_a_disk_that_fills_while_writing(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone else takes the room after it was looked at."""
    checkpoints = fill(small_disk / "run")
    look = shutil.disk_usage

    def look_then_fill(path: Path) -> object:
        usage = look(path)
        if not (small_disk / "other").exists():
            (small_disk / "other").write_bytes(b"x" * (usage.free - 300_000))
        return usage

    monkeypatch.setattr(shutil, "disk_usage", look_then_fill)
    with refuses(StorageError, "No space left", "optimizer.safetensors", "step-00000020"):
        checkpoints.save(30, state(30, 60_000), {"step": 30})
    assert names(small_disk / "run") == ["step-00000010", "step-00000020"]
    (small_disk / "other").unlink()
    checkpoints.save(30, state(30), {"step": 30})
    saved = checkpoints.latest()
    assert saved is not None and saved.step == 30 and same(saved)


def test_a_read_only_disk(small_disk: Path) -> None:
    checkpoints = fill(small_disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with refuses(StorageError, "step 30", "Read-only", "step-00000020"):
        checkpoints.save(30, state(30), {"step": 30})
    latest = checkpoints.latest()
    assert latest is not None and latest.step == 20


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refuses(StorageError, "step 1", "Not a directory"):
        Checkpoints(tmp_path / "file" / "checkpoints").save(1, state(1), {})


LIMITED = """
import resource, sys
from pathlib import Path
from typing import Any
from tests.training.test_checkpoint import fill, state
from regard.core.errors import StorageError
checkpoints = fill(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    checkpoints.save(30, state(30, 50_000), {"step": 30})
except StorageError as error:
    print(error)
"""


def test_a_limit_of_file_sizes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert "cannot be saved: File too large (writing weights.safetensors" in done.stdout, done
    assert names(tmp_path) == ["step-00000010", "step-00000020"]


def test_an_interrupt_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = fill(tmp_path)

    def interrupted(directory: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "flush_directory", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(30, state(30), {"step": 30})
    assert names(tmp_path) == ["step-00000010", "step-00000020"]


# -- killed


ENDLESS = """
import os, sys
from pathlib import Path
from typing import Any
import torch
from tests.training.test_checkpoint import SIZE, state
from regard.training.checkpoint import Checkpoints
torch.set_num_threads(1)
for _ in sys.stdin:  # a process for each line
    child = os.fork()
    if child:
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)
        continue
    checkpoints = Checkpoints(Path(sys.argv[1]))
    saved = checkpoints.latest()
    step = 0 if saved is None else saved.step
    while True:
        step += 1
        checkpoints.save(step, state(step, SIZE), {"step": step}, best=step % 5 == 1)
"""
SIZE = 100_000


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(0)
    reached, half = 0, 0
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, tmp_path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process, warnings.catch_warnings():
        warnings.simplefilter("error")  # a kill must not even leave damage behind
        assert process.stdin is not None and process.stdout is not None
        for kill in range(400):
            if kill >= 40 and reached > 20 and half > 5:
                break  # a busy machine needs more kills to get so far
            print(file=process.stdin, flush=True)
            child = int(process.stdout.readline())
            time.sleep(chance.uniform(0.0, 0.1))
            os.kill(child, signal.SIGKILL)
            assert int(process.stdout.readline()) == signal.SIGKILL
            half += any(name.startswith(".") for name in names(tmp_path))
            saved = Checkpoints(tmp_path).latest()
            if saved is None:
                assert reached == 0
                continue
            assert saved.step >= reached and same(saved, SIZE)
            reached = saved.step
            best = Checkpoints(tmp_path).best()
            assert best is not None and best.step == (reached - 1) // 5 * 5 + 1
        process.stdin.close()
    assert reached > 20 and half > 5  # progress was made, and kills hit writes
