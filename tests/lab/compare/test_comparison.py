"""A comparison as a whole: what is kept, what is refused, and what one model cannot spoil."""

import json
from dataclasses import replace

import pytest

from regard.cli.main import main
from regard.core.errors import ConfigError, InputError
from regard.data.corpus import read_marker
from regard.data.prepare import PreparePlan as Prepare
from regard.data.prepare import prepare
from regard.data.splits import SplitShares
from regard.lab.compare.comparison import (
    Comparison,
    ComparisonFailed,
    ComparisonPlan,
    begin,
    curve_of,
)
from regard.lab.compare.display import cells
from regard.lab.compare.lineup import ModelBudget, lineup
from regard.lab.compare.report import write_report
from tests.refusals import mentions, refuses


def plan(*sources: str, **changes) -> ComparisonPlan:
    entries = tuple(lineup(["gpt", "lstm"]))
    return ComparisonPlan(sources, entries, ModelBudget("tokens", 1e5), vocab_size=400, **changes)


def comparison(chosen: ComparisonPlan, out) -> Comparison:
    return Comparison(chosen, out, lambda name, record: None)


def write_text(file) -> None:
    lines = [f"Number {i} stands in line {i * 7 % 31}." for i in range(60)]
    file.write_text("\n\n".join(lines), encoding="utf-8")


def test_a_plan_whose_text_was_never_read_may_be_replaced(tmp_path):
    begin(plan("bok.txt"), tmp_path)
    begin(plan("book.txt"), tmp_path)
    (tmp_path / "data").mkdir()
    with refuses(ConfigError, "--resume", tmp_path):
        begin(plan("other.txt"), tmp_path)


def test_a_comparison_that_was_stopped_before_its_text_was_ready_has_a_report(tmp_path):
    facts = comparison(plan("book.txt"), tmp_path).found()
    assert facts["data"] == {} and facts["missing"] == ["gpt-1", "lstm-1"]
    assert "Not finished" in write_report(facts, tmp_path)["summary"]


def test_a_text_without_anything_to_test_with_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("aaa", encoding="utf-8")
    chosen = replace(plan(str(tmp_path / "text.txt")), vocab_size=363)  # bytes, marks, roles
    with refuses(ConfigError, "text.txt", "--out"):
        comparison(chosen, tmp_path / "out").prepare()


@pytest.mark.slow
def test_a_model_that_fails_does_not_keep_the_others_from_their_turn(tmp_path):
    write_text(tmp_path / "text.txt")
    comparing = comparison(plan(str(tmp_path / "text.txt"), seq_len=10**6), tmp_path / "out")
    with refuses(ComparisonFailed, "gpt-1: ", "lstm-1: ", "1000000"):
        comparing.go()
    facts = comparing.found()
    assert list(facts["cells"]) == ["ngram"] and facts["missing"] == ["gpt-1", "lstm-1"]
    assert facts["costs"] is None


def test_a_finished_run_keeps_no_lock_of_a_killed_process(tmp_path):
    comparing = comparison(plan("book.txt"), tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").write_text("{}")
    facts = {"outcome": "done", "progress": {}, "model": {}}
    (run / "run.json").write_text(json.dumps(facts))
    assert comparing.train(comparing.cells[0], run) == facts
    assert not (run / ".lock").exists()


def test_text_that_is_prepared_is_taken_as_it_was_cut(tmp_path):
    write_text(tmp_path / "text.txt")
    prepared = tmp_path / "prepared"
    prepare(Prepare((str(tmp_path / "text.txt"),), prepared, shares=SplitShares(0.2, 0.2)))
    for n, change in enumerate(({"vocab_size": 500}, {"reading": {"split_by": "line"}})):
        chosen = replace(plan(str(prepared)), **{"vocab_size": ComparisonPlan.vocab_size} | change)
        with refuses(ConfigError, prepared, "--vocab-size"):
            comparison(chosen, tmp_path / str(n)).prepare()
    comparing = comparison(
        replace(plan(str(prepared)), vocab_size=ComparisonPlan.vocab_size), tmp_path / "out"
    )
    comparing.out.mkdir()
    comparing.prepare()
    assert (comparing.out / "data").resolve() == prepared.resolve()


def test_only_who_asks_for_a_vocabulary_must_have_it(tmp_path):
    write_text(tmp_path / "text.txt")
    chosen = replace(plan(str(tmp_path / "text.txt")), vocab_size=3999)
    with refuses(InputError, "--vocab-size 3,999"):
        comparison(chosen, tmp_path / "asked").prepare()
    comparing = comparison(replace(chosen, vocab_size=ComparisonPlan.vocab_size), tmp_path / "out")
    comparing.prepare()
    assert read_marker(comparing.out / "data")["vocab_size"] < 3999


def test_every_validation_has_a_time():
    """A long run writes down only some of its steps."""
    lines = [
        {"step": 2, "tokens": 20, "loss": 1.0, "seconds": 0.5},
        {"step": 3, "tokens": 30, "valid": {"bits_per_byte": 4.0}},
    ]
    assert curve_of(lines) == [{"step": 3, "tokens": 30, "bits_per_byte": 4.0, "seconds": 0.5}]


def test_bits_that_follow_a_prefix_are_not_among_exact_ones_while_it_runs():
    valid = {"bits_per_byte": 2.0}
    assert "2.000" in cells({"state": "training", "objective": "causal", "valid": valid})
    assert "2.000" not in cells({"state": "training", "objective": "prefix", "valid": valid})
    assert "1.500" in cells({"state": "done", "bits_per_byte": 1.5})


@pytest.mark.parametrize("words", [["--seeds", "3"], ["--budget", "3m"], ["--prompt", "A"]])
def test_a_comparison_goes_on_by_its_own_plan(words, tmp_path, capsys):
    begin(plan("book.txt"), tmp_path)
    assert main(["compare", "--resume", str(tmp_path), *words]) == 2
    mentions(capsys.readouterr().err, [words[0], "--resume"])


def test_one_comparison_goes_on_at_a_time(tmp_path, capsys):
    begin(plan("book.txt"), tmp_path / "one")
    begin(plan("book.txt"), tmp_path / "two")
    assert main(["compare", "--resume", str(tmp_path / "one"), str(tmp_path / "two")]) == 2
    assert "2 are given" in capsys.readouterr().err
