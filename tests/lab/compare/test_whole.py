"""A comparison from its text to its report: again, stopped and gone on with, and with a failure."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from regard.cli.main import main
from regard.core.errors import RegardError
from regard.lab.compare import costs, measures
from regard.lab.compare.children import Children
from regard.lab.compare.comparison import (
    Comparison,
    ComparisonFailed,
    ComparisonPlan,
    ComparisonStopped,
    again,
    begin,
)
from regard.lab.compare.lineup import ModelBudget, lineup
from regard.lab.compare.report import write_report
from regard.lab.compare.verdict import KEPT
from tests.refusals import refuses

BUDGET = 6000  # tokens


class InThisProcess(Children):
    """Does in this process what is otherwise done in one of its own, to be quick."""

    def run(self, words, look=lambda: None):
        out = io.StringIO()
        with redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", words[1:])
            if words[1] == "regard":
                if main(words[2:]):
                    raise RegardError("it could not be trained")
            elif words[1] == "regard.lab.compare.measures":
                measures.main()
            else:
                print(json.dumps(costs.measure(Path(words[2]), (64, 128))))
        return json.loads(out.getvalue())


class Inside(Comparison):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.children = InThisProcess()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Much too little for a vocabulary of 4,000."""
    file = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [f"Number {i} stands in line {i * 7 % 31}, and number {i % 5} before it.\n"
             f"The {'red' if i % 3 else 'blue'} one is the {'first' if i % 2 else 'last'} of them."
             for i in range(240)]  # fmt: skip
    file.write_text("\n\n".join(lines), encoding="utf-8")
    return str(file)


def plan_of(text: str, *models: str, **changes) -> ComparisonPlan:
    few = {
        "batch_size": 8,
        "seq_len": 32,
        "blanks": 20,
        "pairs": 8,
        "settings": ("shape.width=32",),
    }
    return ComparisonPlan(
        (text,), tuple(lineup(models)), ModelBudget("tokens", BUDGET), **few | changes
    )


@pytest.mark.slow
def test_equal_seeds_give_equal_tables_also_when_one_was_stopped(text, tmp_path, capsys):
    plan = plan_of(text, "gpt", "bert", "lstm")
    begin(plan, tmp_path / "one")
    one = Inside(plan, tmp_path / "one", lambda name, record: None)
    first = write_report(one.go(), one.out)
    assert first["missing"] == [] and {*first["costs"]["curves"]} == {"gpt", "bert", "lstm"}
    for row in first["spent"]:
        assert abs(row["tokens"] / BUDGET - 1) <= KEPT
    assert {row["model"] for row in first["tables"]["bits_per_byte"]} == {"gpt", "lstm"}

    def ask_to_stop(name, record):
        if (name, record["state"]) == ("lstm-1", "measuring"):
            raise KeyboardInterrupt

    begin(plan, tmp_path / "other")
    with refuses(ComparisonStopped, "--resume", tmp_path / "other"):
        Inside(plan, tmp_path / "other", ask_to_stop).go()
    states = {}
    other = Inside(again(tmp_path / "other"), tmp_path / "other", states.__setitem__)
    partial = write_report(other.found(), other.out)
    assert partial["missing"] == ["lstm-1"] and "Not finished: lstm-1" in partial["summary"]
    time = (other.out / "cells" / "gpt-1.json").stat().st_mtime_ns
    second = write_report(other.go(), other.out)
    assert second["tables"] == first["tables"]
    assert (other.out / "cells" / "gpt-1.json").stat().st_mtime_ns == time
    assert states["lstm-1"]["state"] == "done"
    capsys.readouterr()
    assert main(["compare", "--resume", str(other.out), "--json"]) == 0  # nothing is left to do
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((other.out / "report.json").read_text(encoding="utf-8"))
    assert shown["tables"] == first["tables"]
    assert shown["time"]["took"].keys() >= {"preparing", "counting", "training", "measuring"}
    assert shown["time"]["estimate"]["total"] > 0 and len(shown["text"]["tokens"]) == 64
    assert main(["compare", "--resume", str(other.out)]) == 0
    errors = capsys.readouterr().err.strip().splitlines()
    assert errors[0].startswith("Estimated time of the whole command")
    assert errors[-1].startswith(shown["verdict"][0]["en"]) and "report.html" in errors[-1]


def test_what_one_model_cannot_learn_is_no_loss_to_the_others(text, tmp_path):
    """XLNet's samples have two halves. What reading costs is measured of the others, and again
    when there are more of them.
    """
    plan = plan_of(text, "gpt", "xlnet", seq_len=33)
    begin(plan, tmp_path)
    inside = Inside(plan, tmp_path, lambda name, record: None)
    with refuses(ComparisonFailed, "xlnet-1: "):
        inside.go()
    report = write_report(inside.found(), tmp_path)
    assert list(report["costs"]["curves"]) == ["gpt"] and report["missing"] == ["xlnet-1"]
    assert 'id="growth"' in (tmp_path / "report.html").read_text(encoding="utf-8")
    costs_file = tmp_path / "cells" / "costs.json"
    costs_file.write_text('{"lengths": [64], "threads": 1, "curves": {}}', encoding="utf-8")
    with refuses(ComparisonFailed, "xlnet-1: "):
        inside.go()
    assert list(inside.found()["costs"]["curves"]) == ["gpt"]
