"""The processes of a comparison end together, and save themselves before."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.core.errors import RegardError
from regard.lab.compare.children import Children
from tests.refusals import refuses


def test_ctrl_c_reaches_a_run_by_us_alone():
    """From the terminal as well would be twice, which ends a run before it has saved itself."""
    code = "import json, os; print(json.dumps({'alone': os.getpgrp() == os.getpid()}))"
    assert Children().run(["-c", code]) == {"alone": True}


SAVES_ITSELF = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path(sys.argv[1], "saved").write_text("")
    sys.exit(130)
signal.signal(signal.SIGINT, save)
signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1], "begun").write_text("")
time.sleep(60)
"""


def until(file, seconds=30.0):
    end = time.monotonic() + seconds
    while not file.exists():
        assert time.monotonic() < end, f"there is no {file.name}"
        time.sleep(0.02)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_who_is_asked_to_stop_lets_the_run_save_itself(kind, tmp_path):
    def ask():
        if (tmp_path / "begun").exists():
            os.kill(os.getpid(), kind)

    before = signal.getsignal(signal.SIGINT)  # a script's background job would not heed it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            children = Children()
            with children.stopping():
                children.run(["-c", SAVES_ITSELF, str(tmp_path)], ask)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "saved").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_a_run_saves_itself_when_the_comparison_is_killed(tmp_path):
    code = (
        "import sys\n"
        "from regard.lab.compare.children import Children\n"
        "Children().run(['-c', *sys.argv[1:]])"
    )
    killed = subprocess.Popen([sys.executable, "-c", code, SAVES_ITSELF, str(tmp_path)])
    try:
        until(tmp_path / "begun")
    finally:
        killed.kill()
        killed.wait()
    until(tmp_path / "saved")


def test_a_run_that_the_system_ends_says_so():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with refuses(RegardError, "SIGKILL"):
        Children().run(["-c", code])


def test_all_runs_that_learn_at_the_same_time_save_themselves(tmp_path):
    children, places = Children(), [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    with ThreadPoolExecutor(2) as pool, pytest.raises(KeyboardInterrupt), children.stopping():
        words = [["-c", SAVES_ITSELF, str(place)] for place in places]
        tries = [pool.submit(children.run, each) for each in words]
        for place in places:
            until(place / "begun")
        raise KeyboardInterrupt
    assert all((place / "saved").exists() for place in places)
    assert all(isinstance(each.exception(), KeyboardInterrupt) for each in tries)
    with pytest.raises(KeyboardInterrupt):  # none begins after the others were stopped
        children.run(["-c", "print(1)"])
