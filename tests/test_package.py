"""The package opens quickly and holds what it promises."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import regard
from regard.core.errors import ConfigError, InputError, UnknownName
from tests.refusals import refuses


@pytest.mark.parametrize("name", ["regard", "regard.api"])
def test_importing_imports_nothing_heavy(name: str) -> None:
    heavy = {"torch", "numpy", "sklearn", "transformers"}
    code = f"import sys, {name}; sys.exit(str({heavy} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "", done.stderr


@pytest.mark.parametrize("name", regard.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(regard, name) is not None
    assert name in dir(regard)


def test_every_home_is_public() -> None:
    assert {*regard.HOMES, "__version__"} == set(regard.__all__)


@pytest.mark.parametrize("name", regard.VERBS)
def test_commands_are_functions_too(name: str) -> None:
    verb = getattr(regard, name)
    assert name in dir(regard) and "Example" in verb.__doc__


def test_python_refuses_what_the_command_line_refuses() -> None:
    with refuses(UnknownName, "'lr'"):
        regard.train("gpt", "data", out="run", learning_rate=1e-3)
    with refuses(ConfigError, "--out"):
        regard.train("gpt", "data", lr=1e-3)
    with refuses(InputError, "path"):
        regard.info("one", "two")
    names = [row["name"] for row in regard.recipes()["recipes"]]
    assert "bert-ner" in names


def test_an_unknown_name_is_an_attribute_error() -> None:
    with refuses(AttributeError, "'attend'"):
        _ = regard.attend


@pytest.mark.parametrize(
    ("chosen", "count"),
    [({}, "2000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_waiting_threads_sleep_soon_unless_the_user_decides(chosen, count) -> None:
    free = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    env = {name: value for name, value in os.environ.items() if name not in free} | chosen
    code = "import os, sys, regard; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.split() == [count, "False"]
