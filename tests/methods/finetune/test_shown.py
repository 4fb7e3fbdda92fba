"""What `regard finetune` prints of a cross-validation."""

from __future__ import annotations

import pytest

from regard.cli.learn import COMMANDS
from regard.cli.output import show


def test_figures_go_to_stdout_and_the_rest_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    figure = {"mean": 0.75, "deviation": 0.1, "values": [0.7, 0.8]}
    result = {"out": "run", "folds": 2, "figures": {"accuracy": figure}}
    assert show(COMMANDS["finetune"], result, as_json=False, quiet=False) == 0
    shown = capsys.readouterr()
    assert (
        len(shown.out.splitlines()) == 2 and "0.75" in shown.out and "folds.json" not in shown.out
    )
    assert shown.err == "the figures are in run/folds.json, the models in run/fold-1 and so on\n"
