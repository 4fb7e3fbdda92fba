"""What holds of every task: it reads what it writes, and its right answers are all right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import UnknownName
from regard.data.examples import (
    AnswerSpan,
    DialogueExample,
    Example,
    LabeledExample,
    MultipleChoice,
    Preference,
    Question,
    TaggedExample,
    TextPair,
)
from regard.tasks import TASKS, read, task
from regard.tasks.check import check
from regard.tasks.embed import EmbedExample
from regard.tasks.link import EntityCandidate, Mention
from regard.tasks.multilabel import MultiLabelExample
from regard.tasks.rerank import RankedExample
from tests.refusals import refuses

PARIS = (EntityCandidate("Paris", "a city"), EntityCandidate("Paris Hilton", "a person"))
EXAMPLES: dict[str, list[Example]] = {
    "classify": [LabeledExample("a fine film", None, "good"), LabeledExample("a dull plot", None,
     "bad")],
    "entail": [LabeledExample("He ran.", "He moved.", "yes"), LabeledExample("He ran.", "He sat.",
     "no")],
    "similar": [LabeledExample("He ran.", "He fled.", 4.0), LabeledExample("He ran.", "It rains.",
     0.4)],
    "tag": [TaggedExample(("Tom", "ran"), ("B-PER", "O")), TaggedExample(("It", "rains"), ("O",
     "O"))],
    "answer": [
        Question("Who?", "Tom ran.", (AnswerSpan("Tom", 0),)),
        Question("Why?", "Tom ran home.", (), True),
    ],
    "choose": [
        MultipleChoice("It rained.", ("wet", "dry"), None, 0),
        MultipleChoice("Sun.", ("wet", "dry"), "effect", 1),
    ],
    "translate": [TextPair("the cat", "le chat"), TextPair("the dog ran home",
     "le chien est rentré")],
    "summarize": [TextPair("a long story", "a story"), TextPair("much ado about it", "much ado")],
    "converse": [DialogueExample(("Hi.", "Hello there.")), DialogueExample(("Bye.",
     "See you soon."))],
    "prefer": [Preference("Hi", "Hello.", "What?"), Preference("Bye", "See you.", "No.")],
    "multilabel": [MultiLabelExample("a fine film", None, ("fun", "short")),
     MultiLabelExample("a dull plot", None, ())],
    "link": [
        Mention("Paris is large.", "Paris", PARIS, "Paris"),
        Mention("Paris sang.", "Paris", PARIS, "Paris Hilton"),
    ],
    "embed": [EmbedExample("He ran.", "He fled.", (), 0.9), EmbedExample("He ran.", "It rains.",
     (), 0.1)],
    "rerank": [RankedExample("Who ran?", ("Tom ran.", "It rains."), (1.0, 0.0)),
     RankedExample("Why?", ("Rain.",), (0.5,))],
}  # fmt: skip


def written(name: str, place: Path) -> Path:
    file = place / f"{name}.jsonl"
    lines = [json.dumps(dict(example.record()), ensure_ascii=False) for example in EXAMPLES[name]]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def values(example: Any) -> Any:
    return {
        k: getattr(example, k) for k in example.__dataclass_fields__ if k not in ("place", "id")
    }


def test_every_task_has_examples_here() -> None:
    assert set(EXAMPLES) == set(TASKS)
    with refuses(UnknownName, "'clasify'", "'classify'"):
        task("clasify")


@pytest.mark.parametrize("name", TASKS)
class TestTask:
    def test_what_it_says_of_itself(self, name: str) -> None:
        kind = task(name)
        assert kind.name == name
        assert {*kind.needed} <= {*kind.roles} and {*kind.answers} <= {*kind.roles, "label"}
        assert all({*roles} <= {*kind.roles} for roles in kind.columns.values())
        assert {"place", "id"} <= set(kind.example.__dataclass_fields__)
        assert kind.writable or kind.has_objective or name == "prefer"

    def test_it_reads_what_it_writes(self, name: str, tmp_path: Path) -> None:
        examples = read(str(written(name, tmp_path)), name)
        assert [values(example) for example in examples] == [values(e) for e in EXAMPLES[name]]
        assert str(examples[1].place).endswith(f"{name}.jsonl:2")
        report = check(str(written(name, tmp_path)), name)
        assert report.ok, report.problems.kept
        assert report.summary["examples"] == report.summary["labeled"] == 2

    def test_a_missing_field_is_named(self, name: str, tmp_path: Path) -> None:
        file = tmp_path / "other.jsonl"
        file.write_text('{"unknown": 1}\n', encoding="utf-8")
        report = check(str(file), name)
        (problem,) = report.problems.of("error", "missing-field")
        assert f"--field {task(name).needed[0]}=NAME" in problem.message

    def test_right_answers_are_right(self, name: str) -> None:
        kind, examples = task(name), EXAMPLES[name]
        labels = kind.labels_in(examples)
        gold = [kind.gold(example, labels) for example in examples]
        metric = kind.metric(labels)
        for library in metric.libraries:
            pytest.importorskip(library.partition(".")[0])
        answers = [row[0] if name == "answer" and row else row for row in gold]
        answers = [answer or "" for answer in answers] if name == "answer" else answers
        measured = metric(kind.readable(gold, labels), kind.readable(answers, labels))
        assert all(value >= measured.flawless - 1e-6 for value in measured.each)
        assert measured.figures[next(iter(measured.figures))] > 0.99

    def test_without_its_answer_it_has_none(self, name: str) -> None:
        for example in EXAMPLES[name]:
            assert example.labeled
            bare = example.without_gold()
            assert bare.labeled == (name in ("converse", "prefer", "embed"))
            assert list(bare.inputs()) and bare.asked() == example.asked()

    def test_text_is_written_or_refused(self, name: str) -> None:
        kind = task(name)
        for example in EXAMPLES[name] if kind.writable and not kind.in_turns else ():
            labels = kind.labels_in(EXAMPLES[name])
            text = kind.target(example)
            word = text if text in kind.closed(EXAMPLES[name], labels) else None
            gold = kind.gold(example, labels)
            right = gold[0] if name == "answer" and gold else gold or ""
            assert kind.value(example, word, text, labels) == (right if name == "answer" else gold)
