"""Two processes never write one run."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from regard.core.errors import StorageError
from regard.core.processes import RunLock
from tests.refusals import refuses, warns

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """
import os, sys
from pathlib import Path
from regard.core.processes import RunLock
forks, (there, here) = sys.argv[2] == "fork", os.pipe()
with RunLock(Path(sys.argv[1])):
    if forks and os.fork() == 0:
        os.close(1)
        os.write(here, b"!")
    else:
        if forks:
            os.read(there, 1)  # until the child runs code of its own
        print("held", flush=True)
    sys.stdin.read()
"""


def holder(run: Path, kind: str = "alone") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, run, kind],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        owner = f"process {process.pid} on {socket.gethostname()}"
        with refuses(StorageError, tmp_path, owner), RunLock(tmp_path):
            pass
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
    assert not list(tmp_path.iterdir())
    with RunLock(tmp_path):
        pass


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / ".lock").is_file()
    with RunLock(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_worker_that_outlives_a_killed_holder_does_not_hold_it(tmp_path: Path) -> None:
    with holder(tmp_path, "fork") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with RunLock(tmp_path):  # its child still waits for the end of the input
            assert process.stdin is not None
            process.stdin.close()
    with RunLock(tmp_path):
        pass


def test_a_forked_child_that_ends_first_does_not_free_it(tmp_path: Path) -> None:
    with RunLock(tmp_path) as lock:
        child = os.fork()
        if child == 0:
            lock.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        assert (tmp_path / ".lock").is_file()
        with refuses(StorageError, tmp_path, f"process {os.getpid()} on "), RunLock(tmp_path):
            pass


def test_a_file_of_garbage_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_bytes(b"\xff" * 1000)
    with RunLock(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()


def test_an_unreadable_holder_is_another_process(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / ".lock").write_text("")
        with refuses(StorageError, tmp_path, "another process"), RunLock(tmp_path):
            pass


def test_an_error_inside_frees_it(tmp_path: Path) -> None:
    with pytest.raises(KeyError), RunLock(tmp_path):
        raise KeyError
    with RunLock(tmp_path / "made" / "too"):
        assert (tmp_path / "made" / "too").is_dir()
    with RunLock(tmp_path):
        pass


def test_a_lock_removed_while_it_is_taken_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder leaves, and removes the file, between our opening and locking it."""
    flock, times = fcntl.flock, []

    def leave_first(handle: int, how: int) -> None:
        times.append(how)
        if len(times) == 1:
            (tmp_path / ".lock").unlink()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", leave_first)
    with RunLock(tmp_path):
        assert len(times) == 2
        with refuses(StorageError, tmp_path, "in use"), RunLock(tmp_path):
            pass


def test_a_run_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refuses(StorageError, tmp_path / "file"), RunLock(tmp_path / "file"):
        pass


def test_a_file_system_without_locks_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with warns(UserWarning, "locks"), RunLock(tmp_path):
        pass
