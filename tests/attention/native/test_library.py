"""The library is optional: whatever goes wrong with it, plain torch serves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import regard.attention.native as module
from regard.attention.dropout import Dropout
from regard.attention.native import build, library


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
    assert library() is None
    still_works()
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where a directory should be")
    assert library() is None
    still_works()


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
