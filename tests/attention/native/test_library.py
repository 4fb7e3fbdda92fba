"""The library is optional: whatever goes wrong with it, plain torch serves."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import regard.attention.native as module
from regard.attention.dropout import Dropout
from regard.attention.native import build, library
from tests.refusals import warns


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache on disk, and nothing loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library.cache_clear()
    yield
    library.cache_clear()


def compiler(directory: Path, script: str) -> Path:
    path = directory / "g++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def still_works() -> None:
    assert Dropout(0.5)(torch.ones(100)).unique().tolist() == [0.0, 2.0]


def test_it_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_NATIVE", "0")
    assert library() is None
    still_works()


@pytest.mark.parametrize("script", [None, "exit 1", "echo nothing made"])
def test_without_a_compiler_that_works(
    script: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is not None:
        compiler(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path))
    with warns(UserWarning, "native kernels", "g++", "REGARD_NATIVE=0"):
        assert library() is None
    with warnings.catch_warnings():  # it is said once
        warnings.simplefilter("error")
        assert library() is None
        still_works()
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where a directory should be")
    with warns(UserWarning, "native kernels", "could not build"):
        assert library() is None
    still_works()


def test_a_changed_compiler_builds_another_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library of the old compiler stays beside it, and is loaded again if it comes back."""
    quick = '[ "$1" = --version ] && echo NUMBER && exit; for out; do :; done; echo NUMBER > "$out"'
    paths, times = [], []
    for number in ("12.2", "13.1", "12.2"):
        command = str(compiler(tmp_path, quick.replace("NUMBER", number)))
        paths.append(build(command))
        times.append(paths[-1].stat().st_mtime_ns)
        assert paths[-1].read_text() == f"{number}\n"
    assert paths[0] == paths[2] != paths[1] and times[0] == times[2]
    monkeypatch.setenv("REGARD_NATIVE", "avx2")
    assert build(command) not in paths


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
def test_it_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("g++")
    assert compiler is not None
    path = build(compiler)
    when = path.stat().st_mtime_ns
    assert build(compiler) == path and path.stat().st_mtime_ns == when
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    monkeypatch.setattr(module, "processor", lambda: b"another")
    assert module.build(compiler) != path


def test_only_a_library_that_nobody_else_could_write_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = '[ "$1" = --version ] && exit; for out; do :; done; echo ours > "$out"'
    command = str(compiler(tmp_path, quick))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    before = os.umask(0o002)
    try:
        path = build(command)
    finally:
        os.umask(before)
    own = path.read_bytes()
    assert path.stat().st_mode & 0o022 == 0 and path.parent.stat().st_mode & 0o022 == 0

    def planted(change: Callable[[], object]) -> None:
        """A cached file that another could have written is compiled again."""
        path.write_bytes(b"not our code")
        change()
        assert build(command) == path and path.read_bytes() == own and not path.is_symlink()

    planted(lambda: path.chmod(0o777))
    planted(lambda: path.chmod(0o720))
    planted(lambda: link(path))
    if os.geteuid() == 0:
        planted(lambda: os.chown(path, 12345, -1))
    path.parent.chmod(0o777)
    with warns(UserWarning, str(path.parent), "chmod go-w"):
        assert library() is None
    still_works()


def link(path: Path) -> None:
    path.unlink()
    other = path.with_name("other.so")
    other.write_bytes(b"not our code")
    path.symlink_to(other)
