"""Every format as records: the layouts in use, and what is said of broken ones."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.core.errors import InputError, UnknownName
from regard.data.examples import LabeledExample
from regard.data.problems import FileLine, Problems
from regard.data.readers import ExampleReader, ReaderOptions
from regard.tasks import read
from regard.tasks import task as task_named
from tests.files import Write, messages, rows, seen
from tests.refusals import mentions, refuses

# -- jsonl and json


def test_jsonl_with_places_and_ids(write: Write) -> None:
    file = write(
        "a.jsonl.gz", rows({"id": "x", "text": "好", "label": "pos"}, {"text": "b", "label": 0})
    )
    assert read(file, "classify") == [
        LabeledExample("好", None, "pos", FileLine(str(file), 1), "x"),
        LabeledExample("b", None, "0", FileLine(str(file), 2), f"{file}:2"),
    ]


@pytest.mark.parametrize(
    "names",
    [("a", "b"), ("premise", "hypothesis"), ("sentence1", "sentence2"), ("#1 String", "#2 String")],
)
def test_names_of_pairs(write: Write, names: tuple[str, str]) -> None:
    one, two = names
    file = write("a.jsonl", rows({one: "x", two: "y", "label": "neutral", "similarity": 3}))
    for task, label in (("entail", "neutral"), ("classify", "neutral"), ("similar", 3.0)):
        (example,) = read(file, task)
        assert (example.text, example.pair, example.label) == ("x", "y", label)
        assert isinstance(example.label, type(label))


def test_a_question_may_be_a_premise(write: Write) -> None:
    file = write("a.jsonl", rows({"question": "who?", "sentence": "he", "label": "entailment"}))
    (example,) = read(file, "entail")
    assert (example.text, example.pair) == ("who?", "he")


def test_fields_may_be_chosen(write: Write) -> None:
    file = write("a.jsonl", rows({"text": "no", "body": "yes", "stars": 5, "label": "no"}))
    (example,) = read(file, "classify", fields={"text": "body", "label": "stars"})
    assert (example.text, example.label) == ("yes", "5")


PHRASES = rows({"phrase": "x", "label": "y"})
GRADES = "phrase\tgrade\na\tx\n"


@pytest.mark.parametrize(
    ("name", "content", "options", "named"),
    [
        ("a.jsonl", PHRASES, {}, "a.jsonl:1: no field, 'phrase', 'label', --field text"),
        ("a.jsonl", PHRASES, {"fields": {"text": "body"}}, "no field 'body'"),
        ("a.tsv", GRADES, {}, "--header"),
        ("a.tsv", GRADES, {"header": True}, "a.tsv:1: no field, 'phrase', 'grade'"),
        ("a.tsv", "w\tx\ty\tz\n", {}, "--field text=NAME"),
        ("a.csv", "text,text\na,b\n", {}, "'text' twice"),
    ],
)
def test_fields_that_are_not_there(
    write: Write, name: str, content: str, options: dict[str, Any], named: str
) -> None:
    message = messages(write(name, content), "classify", **options)
    mentions(message, named.split(", "))


GOOD = '{"text": "a", "label": "x"}'
BROKEN = [GOOD, "{", "", "[1]", '{"text": "  ", "label": "x"}', '{"text": 3, "label": "x"}', GOOD]


@pytest.mark.parametrize(
    ("name", "content", "read_as", "problems"),
    [
        (
            "labels.jsonl",
            rows(*({"text": "a", "label": label} for label in ("x ", 1, True, 0.5, None, "", [1]))),
            [("a", "x", 1), ("a", "1", 2), ("a", "true", 3), ("a", "0.5", 4)],
            ["error missing-label 5", "error missing-label 6", "error wrong-type 7"],
        ),
        (
            "first.jsonl",  # the first record may be the broken one
            rows({"x": 1}, {"text": "a", "label": "p"}, {"label": "p"}),
            [("a", "p", 2)],
            ["error missing-field 1", "error missing-field 3"],
        ),
        (
            "all.jsonl",  # every broken record is told
            "\r\n".join(BROKEN),
            [("a", "x", 1), ("a", "x", 7)],
            [
                "error malformed-record 2",
                "note blank-line 3",
                "error malformed-record 4",
                "error empty-text 5",
                "error wrong-type 6",
            ],
        ),
        (
            "bytes.jsonl",
            '\ufeff{"text": "é"}\n'.encode()
            + b'{"text": "a\xff"}\n'
            + rows({"text": "\ufffd"}).encode(),
            [("é", None, 1), ("a\ufffd", None, 2), ("\ufffd", None, 3)],
            ["warning broken-utf8 2"],
        ),
        (
            "half.jsonl",
            '{"text": "a \\ud83d b"}\n{"text": "\\ud83d\\ude00"}\n',
            [("a \ufffd b", None, 1), ("😀", None, 2)],
            ["warning broken-utf8 1"],
        ),
        (
            "list.json",
            '[\n{"text": "a"},\n {"text":\n "b"}\n,\n{"text": ""}]\n',
            [("a", None, 2), ("b", None, 3)],
            ["error empty-text 6"],
        ),
        ("lines.json", rows({"text": "a"}, {"text": "b"}), [("a", None, 1), ("b", None, 2)], []),
        (
            "quotes.csv",
            'Review,Label\r\n"a, ""b""\nc",pos\r\nd,neg\r\n',
            [('a, "b"\nc', "pos", 2), ("d", "neg", 4)],
            [],
        ),
        (
            "quotes.tsv",  # as they are
            'text\tlabel\n"a\tpos\nb"c\tneg\n',
            [('"a', "pos", 2), ('b"c', "neg", 3)],
            [],
        ),
        (
            "ragged.csv",
            "text,label\na,x\nb\nc,d,x\n\ne,y\n",
            [("a", "x", 2), ("e", "y", 6)],
            ["error ragged-line 3", "error ragged-line 4", "note blank-line 5"],
        ),
        (
            "open.csv",  # told where it opens
            'text,label\na,x\n"b,y\nc,z\n',
            [("a", "x", 2)],
            ["error malformed-record 3"],
        ),
        ("odd.csv", 'text,label\n"a"b,x\nc,z\n', [("c", "z", 3)], ["error malformed-record 2"]),
    ],
)
def test_what_is_read(
    write: Write, name: str, content: str | bytes, read_as: list[Any], problems: list[str]
) -> None:
    examples, told_of = seen(write(name, content), "classify")
    assert [(e.text, e.label, e.place.line) for e in examples] == read_as
    assert told_of == problems


def test_labels_may_be_absent(write: Write) -> None:
    (unlabeled,) = read(write("a.jsonl", rows({"text": "a"})), "classify")
    assert unlabeled.label is None
    file = write("b.jsonl", rows({"text": "a"}, {"text": "b", "label": "x"}, {"text": "c"}))
    examples, problems = seen(file, "classify")
    assert [example.label for example in examples] == [None, "x"]
    assert problems == ["error missing-label 3"]


def test_scores(write: Write) -> None:
    values: list[Any] = [3.5, "4", 2, "high", True, float("nan")]
    file = write("a.jsonl", rows(*({"a": "x", "b": "y", "score": value} for value in values)))
    examples, problems = seen(file, "similar")
    assert [example.label for example in examples] == [3.5, 4.0, 2.0]
    assert problems == [f"error not-a-number {line}" for line in (4, 5, 6)]
    examples, problems = seen(file, "similar", classes=True)
    assert [example.label for example in examples][:4] == ["3.5", "4", "2", "high"]
    assert not problems
    file = write("b.jsonl", rows({"premise": "a", "hypothesis": "b", "gold_label": "-"}))
    assert seen(file, "entail") == ([], ["error missing-label 1"])  # they did not agree


def test_read_raises_them_together(write: Write) -> None:
    file = write("a.jsonl", '{"text": ""}\n{"text": "a"}\n{\n')
    with refuses(InputError, f"{file}:1", f"{file}:3"):
        read(file, "classify")
    with refuses(InputError, "1 error", "malformed-record 1"):
        read(file, "classify", skip=["empty-text"])
    problems = Problems()
    examples = read(file, "classify", skip=["empty-text", "malformed-record"], problems=problems)
    assert [example.place.line for example in examples] == [2]
    assert problems.count("error") == 2


@pytest.mark.parametrize("content", ['[{"text": "a"}\n', '[{"text": "a"}\n{"text": "b"}]', "["])
def test_broken_json_lists(write: Write, content: str) -> None:
    _, problems = seen(write("a.json", content), "classify")
    assert [problem.rsplit(" ", 1)[0] for problem in problems] == ["error malformed-record"]


# -- tables


def test_tables_without_header(write: Write) -> None:
    for task, row, expected in (
        ("classify", "a\tx", ("a", None, "x")),
        ("classify", "a", ("a", None, None)),
        ("entail", "a\tthe\tx", ("a", "the", "x")),
        ("similar", "a\tthe\t2.5", ("a", "the", 2.5)),
    ):
        examples, problems = seen(write("a.tsv", f"{row}\n"), task)
        assert [(e.text, e.pair, e.label) for e in examples] == [expected]
        assert problems == ["note no-header 1"]
        assert seen(write("a.tsv", f"{row}\n"), task, header=False)[1] == []


def test_columns_by_number(write: Write) -> None:
    file = write("a.csv", "3,title,body\n1,title 2,body 2\n")
    examples, _ = seen(file, "classify", fields={"text": "3", "label": "1"}, header=False)
    assert [(e.text, e.label) for e in examples] == [("body", "3"), ("body 2", "1")]
    examples, _ = seen(file, "classify", fields={"text": "2", "label": "1"}, header=True)
    assert [(e.text, e.label) for e in examples] == [("title 2", "1")]
    headed = write("b.csv", "label,text,body\nx,t,b\n")
    examples, problems = seen(headed, "classify", fields={"text": "3"})
    assert ([(e.text, e.label) for e in examples], problems) == ([("b", "x")], [])


def test_a_header_of_chosen_names(write: Write) -> None:
    chosen = {"text": "phrase", "label": "grade"}
    assert seen(write("a.tsv", GRADES), "classify", fields=chosen)[1] == []


@pytest.mark.parametrize("packed", [False, True])
def test_parquet_is_read_like_other_records(tmp_path: Path, packed: bool) -> None:
    pyarrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    file = tmp_path / ("a.parquet.gz" if packed else "a.parquet")

    def written(**columns: list[Any]) -> Path:
        buffer = io.BytesIO()
        parquet.write_table(pyarrow.table(columns), buffer, row_group_size=2)
        content = buffer.getvalue()
        file.write_bytes(gzip.compress(content) if packed else content)
        return file

    examples, problems = seen(written(review=["a", " ", "c"], label=[1, 0, None]), "classify")
    assert examples == [LabeledExample("a", None, "1", FileLine(str(file), 1), f"{file}:1")]
    assert problems == ["error empty-text 2", "error missing-label 3"]
    (example,) = read(written(tokens=[["a", "b"]], ner_tags=[["O", "B-x"]]), "tag")
    assert (example.words, example.tags) == (("a", "b"), ("O", "B-x"))
    (example,) = read(written(turns=[["hi", "ho"]]), "converse")
    assert example.turns == ("hi", "ho")
    answers = [{"text": ["24"], "answer_start": [0]}]
    (example,) = read(written(question=["q"], context=["24 more"], answers=answers), "answer")
    assert example.gold == ["24"]
    assert "no field for the text" in messages(written(phrase=["a"]), "classify")
    file.write_bytes(gzip.compress(b"no parquet") if packed else b"no parquet")
    with refuses(InputError, file, "parquet"):
        read(file, "classify")


def test_plain_lines_have_no_label(write: Write) -> None:
    examples, problems = seen(write("a.txt", "a\r\n\nb"), "classify")
    assert [(e.text, e.label, e.place.line) for e in examples] == [("a", None, 1), ("b", None, 3)]
    assert problems == ["error empty-text 2"]
    with refuses(InputError, "a.txt", "entail"):
        seen(write("a.txt", "a\n"), "entail")


# -- the Hub, and files that are none


class Rows(list[dict[str, Any]]):
    """As much of a dataset as is used: rows, and what their fields mean."""

    def __init__(self, features: dict[str, Any], *values: dict[str, Any]) -> None:
        super().__init__(values)
        self.features = features


def test_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = SimpleNamespace(names=["neg", "pos"])
    stored = Rows(
        {"text": None, "label": classes}, {"text": "a", "label": 1}, {"text": "b", "label": -1}
    )
    calls = []

    def load(*arguments: Any, **more: Any) -> Rows:
        calls.append((arguments, more))
        return stored

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    problems = Problems()
    reader = ExampleReader(
        "hub:some/name@en#test", task_named("classify"), ReaderOptions(download=True), problems
    )
    assert [(e.text, e.label, str(e.place)) for e in reader] == [
        ("a", "pos", "hub:some/name@en#test:1")
    ]
    assert [p.kind for p in problems.kept] == ["missing-label"]
    assert calls == [(("some/name", "en"), {"split": "test"})]
    tags = SimpleNamespace(feature=SimpleNamespace(names=["O", "B-x"]))
    stored = Rows({"tokens": None, "ner_tags": tags}, {"tokens": ["a", "b"], "ner_tags": [0, 1]})
    (example,) = read("hub:some/name", "tag", download=True)
    assert example.tags == ("O", "B-x")


def test_the_hub_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with refuses(InputError, "hub:some/name", "--download"):
        read("hub:some/name", "classify")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refuses(InputError, "'datasets'", "pip install 'regard[hub-data]'"):
        read("hub:some/name", "classify", download=True)


def test_bad_names(write: Write, tmp_path: Path) -> None:
    for path, named in (
        (tmp_path / "nowhere.jsonl", "exist"),
        (tmp_path, "directory"),
        (write("a.xyz", "a"), "--format"),
        (write("a.jsonl", ""), "no example"),
        (write("b.jsonl", b"a\0b"), "binary"),
    ):
        with refuses(InputError, path, named):
            read(path, "classify")
    with refuses(InputError, "no data"):
        read([], "classify")
    with refuses(UnknownName, "task 'clasify'", "'classify'"):
        read(tmp_path, "clasify")
    with refuses(UnknownName, "format 'jsnol'"):
        ReaderOptions(form="jsnol")
    with refuses(UnknownName, "role", "'txt'"):
        read(write("a.jsonl", rows({"text": "a"})), "classify", fields={"txt": "a"})


def test_several_files_are_one(write: Write) -> None:
    files = [write(f"{name}.jsonl", rows({"text": name})) for name in "ab"]
    assert [e.text for e in read(files, "classify")] == ["a", "b"]


def test_a_format_may_be_said(write: Write) -> None:
    (example,) = read(write("a.dat", rows({"text": "a"})), "classify", form="jsonl")
    assert example.text == "a"


def test_a_stream_holds_a_record_at_a_time(write: Write) -> None:
    """An example comes out before a fault further down is met."""
    good = rows(*({"text": "a" * 1000} for _ in range(3000)))
    stream = iter(ExampleReader(write("a.jsonl", good + "\0"), task_named("classify")))
    assert next(stream).place.line == 1
    with refuses(InputError, "a.jsonl", "binary"):
        list(stream)
