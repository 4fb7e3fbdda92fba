"""The time that a comparison is said to take counts every part of it."""

import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from regard.data.builtin import NAME, fingerprint, python_docs
from regard.lab.compare.comparison import FORMAT, Comparison, ComparisonPlan, is_outdated
from regard.lab.compare.estimate import BUILTIN, estimated, in_words, text_bytes
from regard.lab.compare.lineup import NGRAM, ModelBudget, lineup
from regard.lab.compare.timing import TOTAL, ComparisonFacts, text_hashes

SPEED = 1e10
PLAN = ComparisonPlan((NAME,), tuple(lineup(["gpt", "bert"])), ModelBudget("minutes", 2.0))


def test_the_estimate_counts_each_part():
    known = estimated(PLAN, SPEED)
    assert all(seconds > 0 for seconds in asdict(known).values())
    assert known.total == pytest.approx(sum(asdict(known).values())) and known.total > 240
    assert known.table()["total"] == known.total
    assert known.training >= 2 * 120  # every model has the budget, beside its start


@pytest.mark.parametrize(
    ("changes", "grows", "stays"),
    [
        ({"seeds": 3}, {"training", "measuring"}, {"preparing", "counting", "costs", "report"}),
        ({"entries": tuple(lineup(["gpt", "bert", "lstm"]))}, {"training", "measuring", "costs"},
         {"preparing", "counting"}),
        ({"budget": ModelBudget("minutes", 4.0)}, {"training"}, {"measuring", "costs"}),
        ({"blanks": 4000}, {"measuring"}, {"training", "costs"}),
        ({"pairs": 2000}, {"measuring"}, {"training", "costs"}),
        ({"size": "small"}, {"measuring", "costs"}, {"training", "preparing"}),
        ({"sources": (NAME, NAME)}, {"preparing", "counting", "measuring"}, {"training", "costs"}),
    ],
)  # fmt: skip
def test_what_makes_a_comparison_longer_makes_its_estimate_longer(changes, grows, stays):
    before, after = (asdict(estimated(p, SPEED)) for p in (PLAN, replace(PLAN, **changes)))
    assert all(after[part] > before[part] for part in grows)
    assert all(after[part] == before[part] for part in stays)


def test_models_that_learn_at_the_same_time_take_less_time():
    alone, beside = estimated(PLAN, SPEED), estimated(replace(PLAN, jobs=2), SPEED)
    assert beside.training == pytest.approx(alone.training / 2)
    operations = replace(PLAN, budget=ModelBudget("flops", 1e13))  # the cores do what they can
    alone, beside = estimated(operations, SPEED), estimated(replace(operations, jobs=2), SPEED)
    assert alone.training > beside.training > alone.training - 2 * 4


def test_the_clock_counts_what_runs_at_the_same_time_once(tmp_path):
    facts = ComparisonFacts(tmp_path)
    with facts.clock("training"), facts.clock("training"):
        with facts.clock("measuring"):
            time.sleep(0.05)
        time.sleep(0.02)
    took = ComparisonFacts(tmp_path).took
    assert took["training"] == facts.took[TOTAL]
    assert 0.05 <= took["measuring"] < took["training"] and list(took)[-1] == TOTAL


def test_a_budget_of_tokens_takes_longer_on_a_slower_machine():
    plan = replace(PLAN, budget=ModelBudget("tokens", 1e6))
    fast, slow = estimated(plan, SPEED), estimated(plan, SPEED / 2)
    assert slow.training > fast.training and slow.measuring > fast.measuring
    more = estimated(replace(plan, budget=ModelBudget("tokens", 2e6)), SPEED)
    assert more.training > fast.training and more.measuring == fast.measuring
    operations = replace(plan, budget=ModelBudget("flops", 1e12))
    assert estimated(operations, SPEED).training == pytest.approx(2 * (100 + 4))


def test_prepared_text_and_a_missing_ngram_take_no_time(where):
    prepared = estimated(replace(PLAN, sources=(str(where),), order=0), SPEED)
    assert prepared.preparing == prepared.counting == 0.0


def test_the_bytes_of_a_text_are_known_before_it_is_read(tmp_path, where):
    (tmp_path / "a.txt").write_bytes(b"x" * 100)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.txt").write_bytes(b"x" * 50)
    assert text_bytes((str(tmp_path / "a.txt"),)) == 100 and text_bytes((str(tmp_path),)) == 150
    assert text_bytes((NAME,)) == BUILTIN and text_bytes((str(where),)) > 0
    size = sum(len(text.encode("utf-8", "replace")) for text in python_docs())
    assert 0.5 < BUILTIN / size < 2  # each Python has a text of its own


def test_the_time_is_told_in_both_languages():
    sentence = in_words(estimated(PLAN, SPEED).table(), "time_estimate")
    assert sentence.en.startswith("Estimated time of the whole command: ")
    for en, zh in (("preparing the text", "准备文本"), ("training all models", "训练全部模型"),
                   ("measuring and probing", "测量与探针"), ("report", "报告")):  # fmt: skip
        assert en in sentence.en and zh in sentence.zh


def test_what_it_took_is_added_up_over_resumes(tmp_path):
    for _ in range(2):
        facts = ComparisonFacts(tmp_path)
        with pytest.raises(KeyboardInterrupt), facts.clock("training"):
            raise KeyboardInterrupt
        with facts.clock("measuring"):
            pass
    again = ComparisonFacts(tmp_path)
    assert again.took.keys() == {"training", "measuring", "total"}
    assert again.took["total"] == again.took["training"] + again.took["measuring"] > 0
    assert again.took["training"] >= facts.took["training"]


def test_the_text_is_known_by_its_hash(tmp_path, where):
    first = text_hashes((str(where),), where)
    assert len(first["tokens"]) == 64 and first == text_hashes((str(where),), where)
    (tmp_path / "train-00000.tokens").write_bytes(b"other")
    assert text_hashes(("a.txt",), tmp_path)["tokens"] != first["tokens"]
    assert text_hashes((NAME,), where)[NAME] == fingerprint() and len(fingerprint()) == 64


def test_cells_of_an_older_version_are_missing_and_measured_again(tmp_path):
    states, names = [], []
    plan = replace(PLAN, sources=("text.txt",))
    comparison = Comparison(plan, tmp_path, lambda name, record: states.append(record["state"]))
    (tmp_path / "cells").mkdir()
    Path(tmp_path, "cells", "gpt-1.json").write_text('{"model": "gpt", "masked_accuracy": 0.1}')
    assert "gpt-1" in comparison.found()["missing"] and comparison.found()["cells"] == {}

    def measure():
        names.append("gpt-1")
        return {"model": "gpt", "format": FORMAT}

    comparison.once("gpt-1", measure)
    comparison.once("gpt-1", measure)
    assert names == ["gpt-1"] and "older version" in states[0]
    assert "gpt-1" not in comparison.found()["missing"]
    assert not is_outdated(NGRAM, {}) and is_outdated("gpt-1", {})
