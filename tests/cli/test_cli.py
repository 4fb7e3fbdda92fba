"""The command line: quick, one JSON object when asked, one clear line when refused."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from regard import __version__
from regard.cli import catalog
from regard.cli.main import main
from regard.core.errors import ConfigError
from regard.models import FAMILIES, sizes

PROGRAM = [sys.executable, "-m", "regard"]


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | settings
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, env=environment)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a refusal says: exit code 2, nothing on stdout, one or two lines on stderr."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("regard: ")
    assert len(err.splitlines()) <= 2
    return err


def test_help_is_quick() -> None:
    """In seconds of a processor, which other work on the machine does not stretch."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(7)) < 0.3


def test_alone_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["draw"]):
        assert main(arguments) == 0
        assert "Usage: regard" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"regard {__version__}\n"


def test_the_module_is_the_program() -> None:
    script = Path(sys.executable).with_name("regard")
    if not script.exists():
        pytest.skip("the package is not installed here")
    for arguments in (["--version"], ["models", "--help"], ["nonsense"]):
        one = run(*arguments)
        two = subprocess.run([str(script), *arguments], capture_output=True, text=True)
        assert (one.returncode, one.stdout, one.stderr) == (two.returncode, two.stdout, two.stderr)


def test_models_lists_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "parameters", "context", "year", "paper"]
    assert [line.split()[0] for line in lines] == list(sizes())
    assert "174,604,259,328" in next(line for line in lines if line.startswith("gpt3-175b"))


def test_models_as_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--family", "gpt", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = {row["name"]: row for row in json.loads(out)["models"]}
    assert rows["gpt2"]["parameters"] == 124_439_808
    assert rows["gpt2"]["context"] == 1024
    assert rows.keys() == FAMILIES["gpt"].sizes.keys()


def test_an_unknown_family_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'bert'" in refused(capsys, "models", "--family", "brt")


def test_an_unknown_model_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "draw", "attention", "--model", "gtp2-medium")
    assert "'gpt2-medium'" in message


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["modles"], "modles"),
        (["models", "--jsn"], "--jsn"),
        (["info"], "PATH"),
        (["draw", "attention", "--layer", "one"], "--layer"),
    ],
    ids=str,
)
def test_misuse_is_two_lines(
    capsys: pytest.CaptureFixture[str], arguments: list[str], part: str
) -> None:
    message = refused(capsys, *arguments)
    assert part in message
    assert "--help'" in message


@pytest.mark.parametrize("command", ["info", "convert"])
def test_an_absent_directory_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    absent = str(tmp_path / "absent")
    assert absent in refused(capsys, command, absent)


def test_convert_says_what_it_wrote(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    assert main(["convert", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'model.safetensors'}\n"
    assert "exists already" in refused(capsys, "convert", str(tmp_path))


def test_info_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"model_type": "bert", "size": 1234567, "heads": [], "opens": True}
    lines = list(
        catalog.in_words({**facts, "files": {"a.json": 3}, "parts": [{"name": "x", "n": 1}]})
    )
    assert lines == [
        "model type  bert",
        "size        1,234,567",
        "heads       none",
        "opens       yes",
        "files",
        "  a.json  3",
        "parts",
        "  x  1",
    ]


def test_an_attention_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "attention.svg"
    wanted = ["--model", "bert-tiny", "--head", "1", "--out", str(file)]
    assert main(["draw", "attention", *wanted, "to be or not to be"]) == 0
    out = capsys.readouterr().out
    assert "untrained" in out
    assert out.count("to") >= 2
    assert str(file) in out
    drawing = file.read_text("utf-8")
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    assert all(word in drawing for word in ("to", "be", "or", "not"))


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        (["--model", "bert-tiny", "--layer", "9"], "no layer 9"),
        (["--model", "bert-tiny", "--layer", "0"], "no layer 0"),
        (["--model", "bert-tiny", "--head", "9"], "no head 9"),
        (["--model", "bert-tiny", " "], "no text"),
        (["--model", "bert-tiny", "word " * 200], "200 tokens"),
        (["--model", "gpt3-175b"], "174,604,259,328"),
        (["--model", "lstm-medium"], "no attention"),
        (["--out", "picture.gif"], "picture.gif"),
        (["--model", "bert-tiny", "--out", "absent/picture.svg"], "absent"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_picture_that_cannot_be(
    capsys: pytest.CaptureFixture[str], wanted: list[str], part: str
) -> None:
    assert part in refused(capsys, "draw", "attention", *wanted)


def test_an_error_of_ours_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(families: list[str]) -> None:
        raise ConfigError("width 10 is not divisible by heads 3")

    monkeypatch.setattr(catalog, "catalogue", fail)
    assert refused(capsys, "models") == "regard: width 10 is not divisible by heads 3\n"


def test_an_interrupt_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(families: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog, "catalogue", interrupt)
    assert main(["models"]) == 130
    out, err = capsys.readouterr()
    assert out + err.strip() == ""


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PROGRAM, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.stderr == ""


def test_an_ascii_terminal_is_enough() -> None:
    done = run("models", "--family", "lstm", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
