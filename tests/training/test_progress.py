"""The live view, plain lines, and metrics.jsonl."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest

from regard.core.errors import StorageError, UnknownName
from regard.training import progress as watching
from regard.training.progress import (
    LiveProgress,
    Metrics,
    PlainProgress,
    RunningMean,
    SilentProgress,
    duration,
    number,
    read_metrics,
    size,
    spark,
    watch,
)
from tests.refusals import refuses

FACTS = {
    "model": {"name": "gpt2", "parameters": 1234567},
    "objective": "causal",
    "steps": 100,
    "tokens_per_step": 8192,
    "memory_needed": 2_100_000_000,
}


def record(step, **more):
    return {
        "step": step, "loss": 3.0 + 1 / step, "lr": 2.5e-4, "norm": 0.5, "tokens": 8192 * step,
        "seconds": 2.0 * step, "tokens_per_second": 4096.0, "steps": 100, "left": 125.0,
        "peak_share": 0.625, "memory": 1_500_000_000,
    } | more  # fmt: skip


def play(view):
    view.start(FACTS)
    view.note("compiled [bold]once[/bold]")
    for step in range(1, 101):
        view.step(record(step))
        if step % 50 == 0:
            view.valid({"step": step, "best": step == 50, "bits_per_byte": 2.0 + step / 1000})
    view.stop("done: the model is in RUN")


def test_plain_lines_are_few_and_say_everything(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(
        watching.time, "monotonic", lambda: now.__setitem__(0, now[0] + 1) or now[0]
    )
    out = io.StringIO()
    play(PlainProgress(every=10.0, out=out))
    lines = out.getvalue().splitlines()
    steps = [line for line in lines if line.startswith("step") and "loss" in line]
    assert len(steps) == 11 and steps[0].startswith("step 1 of 100")
    assert steps[-1].startswith("step 100 of 100")
    for word in ("lr 2.50e-04", "4,096 tokens/s", "62% of peak", "1.5 GB", "2 min 05 s left"):
        assert word in steps[0]
    assert lines[0] == "gpt2 · 1,234,567 parameters · objective causal"
    assert lines[1] == "100 steps · 8,192 tokens a step · about 2.1 GB of memory"
    assert lines[2] == "note: compiled [bold]once[/bold]"
    assert "step 50 · validation: bits per byte 2.05 (best)" in lines
    assert "step 100 · validation: bits per byte 2.1" in lines
    assert lines[-1] == "done: the model is in RUN"


def test_plain_goes_to_standard_error(capsys):
    play(PlainProgress())
    captured = capsys.readouterr()
    assert captured.out == "" and "step 1 of 100" in captured.err


def test_silent_says_nothing(capsys):
    play(SilentProgress())
    assert capsys.readouterr() == ("", "")


def test_the_live_view_shows_where_the_run_stands():
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    out = Terminal()
    view = LiveProgress(out=out)
    play(view)
    text = out.getvalue()
    for word in ("gpt2", "100 / 100", "loss", "mean", "4,096 tokens/s", "62% of peak", "1.5 GB"):
        assert word in text
    assert "bits per byte 2.1  at step 100" in text and "bits per byte 2.05  at step 50" in text
    assert "compiled [bold]once[/bold]" in text  # text of others is no markup
    assert text.rstrip().endswith("done: the model is in RUN")
    assert not view.screen.is_started


def test_the_live_view_draws_before_the_first_step():
    view = LiveProgress(out=io.StringIO())
    assert view.draw() is not None
    view.step({"step": 1, "loss": math.nan})
    assert view.rows() == [("loss", "nan  mean nan  ")]
    assert view.draw() is not None


def test_auto_chooses_by_the_terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(watch(), PlainProgress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(watch(), LiveProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(watch(), PlainProgress)
    assert isinstance(watch("silent"), SilentProgress)
    with refuses(UnknownName, "'plain'"):
        watch("plane")


# -- metrics.jsonl


def write(path, start, steps, stop_in_line=False):
    metrics = Metrics(path)
    metrics.begin(start)
    for step in range(start + 1, steps + 1):
        metrics.write({"step": step, "loss": 1 / step})
        if step % 4 == 0:
            metrics.write({"step": step, "valid": {"perplexity": 10.0 / step}})
    metrics.close()


def test_a_resumed_file_is_that_of_a_run_that_never_stopped(tmp_path):
    whole, part = tmp_path / "whole.jsonl", tmp_path / "run" / "part.jsonl"
    write(whole, 0, 20)
    write(part, 0, 11)
    part.open("ab").write(b'{"step": 12, "lo')
    write(part, 8, 13)
    write(part, 13, 20)
    assert part.read_bytes() == whole.read_bytes()


def test_a_new_run_drops_what_was_there(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("rubbish\n")
    write(path, 0, 3)
    assert [r["step"] for r in read_metrics(path)] == [1, 2, 3]


def test_every_line_is_on_disk_at_once_and_is_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path)
    metrics.begin()
    metrics.write({"step": 1, "loss": math.nan, "parts": {"mask": math.inf, "next": 0.5}})
    line = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert line == {"step": 1, "loss": None, "parts": {"mask": None, "next": 0.5}}
    metrics.close()


def test_other_processes_write_nothing(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl", enabled=False)
    metrics.begin()
    metrics.write({"step": 1})
    metrics.close()
    assert not list(tmp_path.iterdir())


def test_reading_skips_an_unfinished_line_and_refuses_a_damaged_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]
    assert read_metrics(tmp_path / "none") == []
    for line in (b"[1]", b'{"loss": 2}', b"\xff", b'{"step": 2, "loss": "x"}', b"[" * 10**5, b""):
        path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
        with refuses(StorageError, f"{path}:2"):
            read_metrics(path)
        with refuses(StorageError, f"{path}:2"):  # and the steps behind it are not cut off
            Metrics(path).begin(3)
        assert path.read_bytes().endswith(b'{"step": 3}\n')


def test_tensorboard_gets_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def run(start, steps, shift):
        metrics = Metrics(tmp_path / "metrics.jsonl", log=None)
        metrics.begin(start)
        for step in range(start + 1, steps + 1):
            metrics.write({"step": step, "loss": step + shift, "valid": {"perplexity": 7.0}})
        metrics.close()

    run(0, 5, 0.0)
    run(3, 4, 0.5)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 1), (2, 2), (3, 3), (4, 4.5)]
    assert events.Scalars("valid/perplexity")[0].value == 7.0


# -- words


def test_smoothing_is_right_from_the_first_value():
    smooth = RunningMean(0.9)
    assert smooth(5.0) == pytest.approx(5.0)
    assert smooth(5.0) == pytest.approx(5.0)
    assert smooth(math.nan) == pytest.approx(5.0)
    assert 5.0 < smooth(10.0) < 7.5


def test_numbers_for_people():
    assert [number(x) for x in (3, 12345, 3.14159, 2.5e-4, 0.0, None, True)] == [
        "3", "12,345", "3.142", "2.50e-04", "0", "–", "–",
    ]  # fmt: skip
    assert [duration(x) for x in (5, 65, 3700, 90_000, math.inf)] == [
        "5 s", "1 min 05 s", "1 h 01 min", "1 d 1 h", "?",
    ]  # fmt: skip
    assert [size(x) for x in (12, 2048, 1.5e9, 3e13)] == ["12 bytes", "2.05 kB", "1.5 GB", "30 TB"]


def test_a_curve_in_one_line():
    assert spark([1.0, 2.0, 3.0], 8, "abc") == "abc"
    assert spark([2.0, 2.0], 8, "abc") == "aa"
    assert len(spark(list(range(1000)), 32)) == 32
    assert spark([math.nan, 1.0], 8) == ""
