"""The package opens quickly and holds what it promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

import regard


def test_importing_imports_no_torch() -> None:
    code = "import sys, regard; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", regard.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(regard, name) is not None
    assert name in dir(regard)


def test_every_home_is_public() -> None:
    assert {*regard.HOMES, "__version__"} == set(regard.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'attend'"):
        _ = regard.attend
