"""What `regard quantize` and `regard prune` share."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli.main import main

COMMANDS = {"quantize": [], "prune": ["--ffn-units", "0.5"]}
OPTIONS = [
    ["--limit", "5"], ["--task", "classify"], ["--split", "valid"], ["--skip", "no-label"],
    ["--field", "text=body"], ["--format", "csv"], ["--no-header"],
]  # fmt: skip
SAMPLES = ["--importance-examples", "9"]
BY = ["--by", "magnitude", "--data", __file__]
ABOUT = "is about the data that a model is tested on"


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        *((c, words, f"{words[0].replace('--no-', '--')} {ABOUT}") for c in COMMANDS
          for words in OPTIONS),
        ("prune", SAMPLES, f"--importance-examples {ABOUT}"),
        ("prune", [*SAMPLES, *BY], "--importance-examples says how much"),
    ],
)  # fmt: skip
def test_options_of_data_without_data(
    command: str,
    words: list[str],
    message: str,
    bert: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert main([command, str(bert), *COMMANDS[command], "--out", str(out), *words]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
