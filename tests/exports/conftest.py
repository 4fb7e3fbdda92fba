"""Small models with random weights and a tokenizer that every target can express."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from regard.exports.base import ExportSource

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "exports.py"
# llama-cpp-python is compiled when it is installed, for many minutes: it may be missing.
needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None,
    reason="llama-cpp-python is not installed, and only it proves a GGUF file",
)


@cache
def script() -> ModuleType:
    """scripts/exports.py, which measures the matrix."""
    spec = importlib.util.spec_from_file_location("exports_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def words() -> Any:
    return script().tokenizer()


@cache
def small(name: str) -> Any:
    return script().specimen(name, words())


@cache
def source_of(name: str) -> ExportSource:
    """A source that is traced once for all tests: that takes most of the time."""
    return ExportSource(small(name))
