"""Examples are values; problems are counted exactly, kept within a limit, and raised together."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from regard.core.errors import InputError, UnknownName
from regard.data.examples import LabeledExample, Question
from regard.data.problems import KINDS, FileLine, Problem, Problems


def test_places_read_like_a_compilers() -> None:
    assert str(FileLine("a.jsonl", 3)) == "a.jsonl:3"
    assert str(FileLine("a.jsonl")) == "a.jsonl"
    assert (
        str(Problem(FileLine("a", 3), "empty-text", "the text is empty"))
        == "a:3: the text is empty"
    )


def test_examples_are_frozen_values() -> None:
    assert LabeledExample("a", None, "x") == LabeledExample("a", label="x")
    assert len({LabeledExample("a"), LabeledExample("a"), LabeledExample("b")}) == 2
    with pytest.raises(FrozenInstanceError):
        LabeledExample("a").text = "b"  # type: ignore[misc]
    assert not Question("q", "p").impossible


def test_counts_are_exact_beyond_what_is_kept() -> None:
    problems = Problems(keep=2)
    for line in range(1, 6):
        problems.add(FileLine("f", line), "empty-text", "empty")
    problems.add(FileLine("f", 9), "imbalance", "uneven", "note")
    assert problems.count("error") == 5
    assert problems.count("note") == 1
    assert problems.count("warning") == 0
    assert [p.place.line for p in problems.of("error", "empty-text")] == [1, 2]
    assert len(problems.kept) == 3
    everything = Problems(keep=None)
    for line in range(2000):
        everything.add(FileLine("f", line), "empty-text", "empty")
    assert len(everything.kept) == 2000


def test_refusal_shows_places_and_counts() -> None:
    problems = Problems()
    for line in range(1, 13):
        problems.add(FileLine("f", line), "empty-text", f"empty {line}")
    problems.add(FileLine("f", 20), "missing-label", "no label")
    problems.add(FileLine("f", 21), "imbalance", "uneven", "note")
    problems.add(FileLine("f", 22), "duplicate-text", "twice", "warning")
    with pytest.raises(InputError) as caught:
        problems.refuse()
    message = str(caught.value)
    assert "13 errors (empty-text 12, missing-label 1)" in message
    assert "f:1: empty 1" in message
    assert "and 3 more" in message
    assert "uneven" not in message and "twice" not in message
    with pytest.raises(InputError, match=r"1 error \(missing-label 1\)") as caught:
        problems.refuse(skip={"empty-text"})
    assert "empty 1" not in str(caught.value)
    problems.refuse(skip=["empty-text", "missing-label"])  # notes and warnings are not refused


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'empty-text'"):
        Problems().refuse(skip=["empty-texts"])
    with pytest.raises(AssertionError):
        Problems().add(FileLine("f"), "no-such-kind", "")
    assert all(kind == kind.lower() and " " not in kind for kind in KINDS)
