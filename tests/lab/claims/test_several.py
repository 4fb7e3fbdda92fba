"""Several claims at once: what they share is made once, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from regard.cli.main import main
from regard.lab.claims import claim, library, names
from regard.lab.claims.engine.cache import once
from regard.lab.claims.engine.parallel import ParallelClaims

ROOT = Path(__file__).parents[3]


def test_what_is_shared_is_made_once(tmp_path: Path) -> None:
    calls: list[int] = []
    out = tmp_path / "below" / "text"

    def make() -> None:
        calls.append(1)
        out.mkdir()
        time.sleep(0.2)
        (out / "mark").touch()

    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: once(out, "mark", make), range(4)))
    assert paths == [out] * 4 and calls == [1]


@pytest.mark.parametrize("name", names())
def test_claims_that_measure_time_say_so(name: str) -> None:
    code = Path(library.__file__).with_name(f"{name.replace('-', '_')}.py")
    clock = code.is_file() and hasattr(import_module(f"{library.__name__}.{code.stem}"), "seconds")
    assert claim(name).timed == (clock or "seconds" in claim(name).rule.words)


def test_two_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["claims", "run", "shift", "word-order", "--jobs", "2", "--json"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    captured = capfd.readouterr()
    rows = json.loads(captured.out)["claims"]
    assert [row["name"] for row in rows] == ["shift", "word-order"]
    assert {row["verdict"] for row in rows} == {"reproduced"}
    assert "shift: " in captured.err and (tmp_path / "gallery.html").is_file()


def test_what_fails_is_named() -> None:
    assert "0 seeds" in ParallelClaims(["--seeds", "0"], 1).run(["shift"])["shift"]


@pytest.mark.slow
def test_a_stop_reaches_every_process_and_keeps_cells(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "claims", "run", "tying", "norm-kinds", "--jobs",
               "2", "--effort", "0.02", "--out", str(tmp_path)]  # fmt: skip
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what tests may not, in a script
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=env, preexec_fn=heeds
    )
    end = time.monotonic() + 120
    while not (cells := list(tmp_path.glob("*/cells/*.json"))) and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert cells and process.returncode == 130
    assert "regard claims run tying norm-kinds --effort 0.02 --jobs 2" in errors
    every = sum(len(claim(name).cells()) for name in ("tying", "norm-kinds"))
    assert len(list(tmp_path.glob("*/cells/*.json"))) < every  # it did stop
    assert not list(tmp_path.glob("texts/claim-*"))  # and cleaned up
