"""What steers a terminal is shown on it, and stays exact in files and pipes."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli.main import main
from regard.core.progress import Progress
from regard.core.text import json_visible, shown, visible
from regard.training.progress import LiveProgress, PlainProgress

BAD = "\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\r\b\u202e"
SEEN = r"\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\r\x08\u202e"
ALL = ">&- 2>&- <&-"
PROGRAM = [sys.executable, "-m", "regard"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_written_out() -> None:
    assert visible(BAD) == SEEN
    ordinary = "a\tb\nc é 中文 🙂 العربية \\x1b"
    assert visible(ordinary) == ordinary
    assert shown(BAD, Terminal()) == SEEN and shown(BAD, io.StringIO()) == BAD
    written = json.dumps({"a": BAD + ordinary}, ensure_ascii=False)
    assert json.loads(json_visible(written)) == {"a": BAD + ordinary}
    assert visible(json_visible(written)) == json_visible(written)


def on_a_terminal(*words: str) -> str:
    """Everything that the program prints while its output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*PROGRAM, *words], stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux: nobody writes there any more
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    process.wait()
    return b"".join(parts).decode()


def test_texts_of_data(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(
        "".join(json.dumps({"text": f"a{i}", "label": BAD}) + "\n" for i in range(3)), "utf-8"
    )
    words = ["check", str(file), "--task", "classify"]
    assert "\x1b" not in (seen := on_a_terminal(*words)) and SEEN in seen
    piped = subprocess.run([*PROGRAM, *words], capture_output=True)
    assert BAD.encode() in piped.stdout


def test_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["info", f"no{BAD}where"]) == 2
    assert SEEN in capsys.readouterr().err
    Progress().say(BAD)
    assert SEEN in capsys.readouterr().err
    for kind in (PlainProgress, LiveProgress):
        out = Terminal()
        kind(out=out).note(BAD)
        assert SEEN in out.getvalue() and "\x1b]" not in out.getvalue()


@pytest.mark.parametrize(
    "words", ["models --family lstm", "recipes", "recipes --json", "--help", "recipes none"]
)
def test_closed_output_is_no_traceback(words: str) -> None:
    """A reader that has seen enough, and no output at all."""
    reader, writer = os.pipe()
    os.close(reader)
    slow = "models" in words  # it imports torch
    for stream in ("stdout",) if slow else ("stdout", "stderr"):
        other = "stderr" if stream == "stdout" else "stdout"
        done = subprocess.run(
            [*PROGRAM, *words.split()], **{stream: writer, other: subprocess.PIPE}
        )  # type: ignore[call-overload]
        assert b"Traceback" not in getattr(done, other) and done.returncode in (0, 1, 2)
        assert b"Exception ignored" not in getattr(done, other)
    os.close(writer)
    command = " ".join([*PROGRAM, words])
    for closing in (">&-", ALL) if slow else (">&-", "2>&-", "<&-", ALL):
        done = subprocess.run(f"{command} {closing}", shell=True, capture_output=True)
        assert done.returncode == (2 if "none" in words else 0)
        assert b"Traceback" not in done.stdout + done.stderr
        if closing == "2>&-" and "none" in words:
            assert done.stdout == b""
