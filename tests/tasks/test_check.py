"""`regard check`: figures, every kind of problem that needs the whole file, lines and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.cli.data import measure_of
from regard.core.errors import FormatError, InputError, UnknownName
from regard.data.examples import fingerprint
from regard.data.readers import ReaderOptions
from regard.tasks.check import CheckReport, check
from tests.command import Result, run
from tests.files import Write, rows
from tests.refusals import refuses


def call(*arguments: object) -> Result:
    return run("check", *arguments)


def kinds(report: CheckReport) -> list[str]:
    return [f"{p.severity} {p.kind} {p.place.line}" for p in report.problems.kept]


def reviews(*pairs: tuple[str, str]) -> str:
    return rows(*({"text": text, "label": label} for text, label in pairs))


@pytest.fixture
def good(write: Write) -> Path:
    return write("good.jsonl", reviews(("a b c", "pos"), ("d", "neg"), ("e f", "pos")))


# -- figures


def test_summary(good: Path) -> None:
    report = check(good, "classify")
    assert report.ok
    summary = report.summary
    assert summary["examples"] == summary["labeled"] == 3
    assert summary["labels"] == {"pos": 2, "neg": 1}
    assert summary["fields"] == {str(good): {"text": "text", "label": "label"}}
    assert summary["lengths"]["text"] == {
        "words": {"median": 2, "95%": 3, "max": 3},
        "characters": {"median": 3, "95%": 5, "max": 5},
    }


def test_quantiles_are_lengths_that_occur(write: Write) -> None:
    file = write("a.jsonl", rows(*({"text": "x" * n} for n in range(1, 101))))
    lengths = check(file, "classify").summary["lengths"]["text"]["characters"]
    assert lengths == {"median": 50, "95%": 95, "max": 100}


def test_scores_are_summed_up(write: Write) -> None:
    file = write("a.tsv", "a\tb\tscore\nx\ty\t1\nu\tv\t4\n")
    report = check(file, "similar")
    assert report.summary["scores"] == {"min": 1.0, "mean": 2.5, "max": 4.0}
    assert report.summary["labels"] == {}


def test_answers_and_choices_are_counted(write: Write) -> None:
    base = {"question": "q", "context": "p q r"}
    file = write(
        "a.jsonl",
        rows({**base, "answers": ["p"]}, {"question": "s", "context": "p", "answers": []}),
    )
    assert check(file, "answer").summary["labels"] == {"answer": 1, "no answer": 1}
    file = write("b.jsonl", rows({"premise": "p", "choices": ["x", "y"], "label": 1}))
    assert check(file, "choose").summary["labels"] == {"1": 1}


# -- what is wrong with the whole

MANY = [(f"text {i}", "pos") for i in range(10)]
CHOICE = {"premise": "p", "choices": ["x", "y"], "label": 0}
BARE = [{"text": "a"}, {"text": "b", "label": "b"}, {"text": "c", "label": "c"}]


@pytest.mark.parametrize(
    ("content", "task", "expected", "named"),
    [
        (reviews(("a", "pos"), ("b", "pos")), "classify", ["error single-class 0"], []),
        (reviews(*MANY[:9], ("b", "neg")), "classify", [], []),
        (reviews(*MANY, ("b", "neg")), "classify", ["note imbalance 0"],
         ["10 of 'pos' but 1 of 'neg'"]),
        (rows(*BARE), "classify", ["error missing-label 0"], ["1 of 3 examples"]),
        ("", "classify", ["error no-examples 0"], []),
        (reviews(("a b", "x"), ("c", "y"), ("a  b ", "x"), ("c", "x")), "classify",
         ["warning duplicate-text 3", "warning duplicate-text 4"],
         ["the same text as FILE:1", "another label (y there, x here)"]),
        (rows(*({**CHOICE, "asks": asks} for asks in ("cause", "effect"))), "choose", [], []),
    ],
)  # fmt: skip
def test_problems_of_a_file(
    content: str, task: str, expected: list[str], named: list[str], write: Write
) -> None:
    file = write("a.jsonl", content)
    report = check(file, task)
    assert kinds(report) == expected and report.ok != any("error" in each for each in expected)
    messages = " ".join(problem.message for problem in report.problems.kept)
    assert all(words.replace("FILE", str(file)) in messages for words in named)


def test_one_class_is_enough_beside_what_was_learned(write: Write) -> None:
    file = write("a.jsonl", reviews(("a", "pos"), ("b", "pos")))
    assert kinds(check(file, "classify", against=file))[-1] == "warning single-class 0"


def test_against_what_was_learned(write: Write) -> None:
    train = write("train.jsonl", reviews(("a", "pos"), ("b", "neg")))
    test = write("test.jsonl", reviews(("c", "pos"), ("b", "neg"), ("d", "mixed")))
    report = check(test, "classify", against=train)
    assert kinds(report) == ["warning leaked-text 2", "error unknown-label 3"]
    messages = [problem.message for problem in report.problems.kept]
    assert messages[0] == f"the text is also at {train}:2"
    assert "'mixed' is never seen" in messages[1] and "(neg, pos)" in messages[1]
    assert report.summary["against"] == {"data": [str(train)], "examples": 2, "errors": 0}


def test_pairs_leak_on_either_side(write: Write) -> None:
    train = write("train.tsv", "source\ttarget\na\t甲\nb\t乙\n")
    test = write("test.tsv", "source\ttarget\na\t丙\nc\t乙\n甲\tb\n")
    messages = [str(p) for p in check(test, "translate", against=train).problems.kept]
    assert messages == [
        f"{test}:2: the source is also at {train}:2",
        f"{test}:3: the target is also at {train}:3",
    ]


def test_unknown_tags(write: Write) -> None:
    train = write("train.conll", "a\tO\nb\tB-x\n")
    test = write("test.conll", "c\tB-y\nd\tB-y\ne\tO\n")
    assert kinds(check(test, "tag", against=train)) == ["error unknown-label 1"]


def test_fingerprints_do_not_see_white_space() -> None:
    assert fingerprint(" a\n b") == fingerprint("a b") != fingerprint("ab")


# -- tags


@pytest.mark.parametrize(
    ("content", "scheme", "expected", "named"),
    [
        ("a\tB-x\nb\tI-x\n\nc\tB-x\nd\tB-x\n\ne\tO\nf\tI-x\ng\tO\n", "bio",
         {"warning tag-sequence 7"}, ["word 2: I-x", "word 2 becomes B-x instead of I-x"]),
        ("a\tS-x\n\nb\tB-x\nc\tE-x\n\nd\tB-x\ne\tO\n", "bioes", {"warning tag-sequence 6"}, []),
        ("a\tDET\nb\tNOUN\n", None, set(), []),  # other tags follow freely
        ("a\tB-x\nb\tQ-x\n", "bio", {"error tag-sequence 1"}, ["cannot be repaired"]),
        ("a\tS-x\nb\tU-x\n", None, {"error tag-sequence 0"}, []),  # of two schemes
    ],
)  # fmt: skip
def test_sequences_of_tags(
    content: str, scheme: str | None, expected: set[str], named: list[str], write: Write
) -> None:
    report = check(write("a.conll", content), "tag")
    assert report.summary.get("scheme") == scheme and {*kinds(report)} == expected
    messages = " ".join(problem.message for problem in report.problems.kept)
    assert all(words in messages for words in named)


# -- tokens of a model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is looked at: a configuration and a tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    config = {
        "model_type": "bert",
        "vocab_size": 8,
        "hidden_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 4,
        "max_position_embeddings": 6,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] a b c".split()))
    return folder


def test_too_long_for_a_model(write: Write, model: Path) -> None:
    pairs = [{"a": "a b", "b": "c", "label": "x"}, {"a": "a b", "b": "c a", "label": "y"}]
    report = check(write("a.jsonl", rows(*pairs)), "entail", measure=measure_of(str(model)))
    assert kinds(report) == ["warning too-long 2"]
    assert "7 tokens; the model reads 6" in report.problems.kept[0].message
    assert report.summary["model"] == {
        "directory": str(model),
        "context": 6,
        "too_long": 1,
        "tokens": {"median": 6, "95%": 7, "max": 7},
    }


@pytest.mark.parametrize(
    ("task", "record", "tokens"),
    [
        ("tag", {"words": ["a", "b", "c"]}, 5),
        ("answer", {"question": "a", "context": "b c a"}, 7),
        ("choose", {"premise": "a", "choices": ["b", "b c"]}, 6),
        ("translate", {"source": "a", "target": "a b c"}, 5),
        ("converse", {"turns": ["a", "b", "c"]}, 5),
    ],
)
def test_what_a_model_reads_at_once(
    write: Write, model: Path, task: str, record: dict[str, Any], tokens: int
) -> None:
    report = check(write("a.jsonl", rows(record)), task, measure=measure_of(str(model)))
    assert report.summary["model"]["tokens"]["max"] == tokens


def test_a_model_needs_a_tokenizer(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    with refuses(FormatError, tmp_path, "tokenizer"):
        measure_of(str(tmp_path))


# -- the command


def test_lines_for_people(good: Path) -> None:
    result = call(good, "--task", "classify")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"{good}: 3 examples (jsonl)"
    assert "text from 'text', label from 'label'" in lines
    assert [line.split() for line in lines if line.startswith(("pos", "neg"))] == [
        ["pos", "2", "66.67%"],
        ["neg", "1", "33.33%"],
    ]
    assert ["text,", "words", "2", "3", "3"] in [line.split() for line in lines]
    assert lines[-1] == "0 errors, 0 warnings, 0 notes"


def test_errors_give_a_code_and_places(write: Write) -> None:
    bad = [{"text": "", "label": "x"}] * 12 + [
        {"text": "a", "label": "x"},
        {"text": "a", "label": "y"},
    ]
    file = write("a.jsonl", rows(*bad))
    result = call(file, "--task", "classify")
    assert result.exit_code == 2
    assert f"  {file}:1: the text ('text') is empty" in result.stdout.splitlines()
    assert f"{file}:10:" in result.stdout
    assert f"{file}:11:" not in result.stdout
    assert "and 2 more; --show-errors 0 shows all" in result.stdout
    assert "error empty-text: texts without a visible character (12)" in result.stdout
    assert "12 errors, 1 warning, 0 notes" in result.stdout
    everything = call(file, "--task", "classify", "--show-errors", 0).stdout
    assert f"{file}:12:" in everything and "more;" not in everything


def test_warnings_alone_are_no_failure(write: Write) -> None:
    result = call(write("a.jsonl", reviews(("a", "x"), ("a", "y"))), "--task", "classify")
    assert result.exit_code == 0
    assert "0 errors, 1 warning," in result.stdout


def test_json(write: Write) -> None:
    file = write("a.jsonl", reviews(("好", "x"), ("b", "y")) + "{\n" * 12)
    result = call(file, "--task", "classify", "--json")
    assert result.exit_code == 2
    output = json.loads(result.stdout)
    assert not output["ok"]
    counts = [output[name] for name in ("examples", "errors", "warnings", "notes")]
    assert counts == [2, 12, 0, 0]
    assert output["kinds"] == [{"severity": "error", "kind": "malformed-record", "count": 12}]
    assert [problem["line"] for problem in output["problems"]] == list(range(3, 15))
    assert {problem["file"] for problem in output["problems"]} == {str(file)}
    fewer = call(file, "--task", "classify", "--json", "--show-errors", 3)
    assert len(json.loads(fewer.stdout)["problems"]) == 3


def test_options_reach_the_reader(write: Write) -> None:
    file = write("a.dat", "grade,words\nx,a\ny,b\n")
    options = ("--format", "csv", "--field", "text=words", "--field", "label=grade")
    result = call(file, "--task", "classify", *options, "--json")
    assert json.loads(result.stdout)["labels"] == {"x": 1, "y": 1}
    result = call(file, "--task", "classify", "--format", "csv", "--no-header", "--json")
    assert json.loads(result.stdout)["examples"] == 3
    scores = write("b.tsv", "a\tb\tscore\nx\ty\tgood\nz\ty\tbad\n")
    assert call(scores, "--task", "similar").exit_code == 2
    assert call(scores, "--task", "similar", "--classes").exit_code == 0


def test_two_files_are_parallel(write: Write) -> None:
    one, two = write("a.en", "a\nb\n"), write("a.zh", "甲\n")
    result = call(one, two, "--task", "translate")
    assert result.exit_code == 2
    assert f"{one}: lines: 2 here but 1 in {two}" in result.stdout


def test_other_data_are_named(good: Path, write: Write) -> None:
    train = write("train.jsonl", reviews(("x", "pos"), ("", "neg"), ("y", "neg")))
    result = call(good, "--task", "classify", "--train-data", train)
    assert result.exit_code == 0, result.output
    assert f"against {train}: 2 examples, 1 error of its own" in result.stdout


def test_many_labels_are_cut(write: Write) -> None:
    file = write("a.jsonl", reviews(*((f"text {i}", f"label{i}") for i in range(25))))
    assert "and 5 more" in call(file, "--task", "classify").stdout


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--task", "clasify"), UnknownName),
        (("--task", "classify", "--field", "text"), InputError),
        (("--task", "classify", "--field", "text=a", "--field", "text=b"), InputError),
        (("--task", "classify", "--field", "words=a"), UnknownName),
        (("--task", "classify", "--format", "xml"), UnknownName),
        (("--task", "classify", "--show-errors", "-1"), InputError),
    ],
)
def test_misuse(good: Path, options: tuple[str, ...], error: type[Exception]) -> None:
    assert isinstance(call(good, *options).exception, error)


def test_python_gives_the_same(good: Path) -> None:
    shown = json.loads(call(good, "--task", "classify", "--json").stdout)
    assert check(good, "classify", ReaderOptions()).as_json() == shown
