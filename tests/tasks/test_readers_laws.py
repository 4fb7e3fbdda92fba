"""What is written comes back; noise gives a named error; real files open as they are."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.core.errors import RegardError
from regard.data.problems import Problems
from regard.data.readers import ExampleReader
from regard.tasks import read
from regard.tasks import task as task_named

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=8)
TEXTS = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30
).filter(lambda text: text.strip() != "")
LINES = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=20
).filter(lambda text: text.strip() != "" and not text.startswith("\ufeff"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXTS, WORDS), min_size=1, max_size=6), st.booleans())
def test_jsonl_comes_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str, str]], ascii_only: bool
) -> None:
    file = tmp_path_factory.mktemp("a") / "a.jsonl"
    lines = [json.dumps({"text": t, "label": w}, ensure_ascii=ascii_only) for t, w in values]
    file.write_bytes("\n".join(lines).encode())
    examples = read(file, "classify")
    assert [(e.text, e.label) for e in examples] == [(t, w.strip()) for t, w in values]
    assert [e.place.line for e in examples] == list(range(1, len(values) + 1))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXTS, WORDS), min_size=1, max_size=6))
def test_csv_comes_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str, str]]
) -> None:
    file = tmp_path_factory.mktemp("a") / "a.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerows([("text", "label"), *values])
    examples = read(file, "classify")
    assert [(e.text, e.label) for e in examples] == values


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LINES, LINES), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_parallel_files_come_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str, str]], end: str
) -> None:
    folder = tmp_path_factory.mktemp("a")
    for side, name in enumerate(("a.x", "a.y")):
        (folder / name).write_bytes("".join(value[side] + end for value in values).encode())
    examples = read([folder / "a.x", folder / "a.y"], "translate")
    assert [(e.source, e.target) for e in examples] == values


TAGS = st.sampled_from(["O", "B-x", "I-x", "B-creative-work"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(WORDS, TAGS), min_size=1, max_size=5), min_size=1, max_size=5),
    st.sampled_from(["\t", " "]),
)
def test_conll_comes_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[list[tuple[str, str]]], gap: str
) -> None:
    file = tmp_path_factory.mktemp("a") / "a.conll"
    text = "\n\n".join("\n".join(f"{w}{gap}{t}" for w, t in sentence) for sentence in values)
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    examples = read(file, "tag")
    pairs = [list(zip(e.words, e.tags or (), strict=True)) for e in examples]
    assert pairs == values


@settings(max_examples=200, deadline=None)
@example(b"{}", "a.jsonl")
@example(b"[{}]", "a.json")
@example(b"{}\n{}\n", "a.jsonl")
@example(b'{"data": [{}]}', "a.json")
@example(b"\n,\n", "a.csv")
@given(st.binary(max_size=200), st.sampled_from(["a.jsonl", "a.csv", "a.tsv", "a.json", "a.txt"]))
def test_nothing_but_a_named_error_comes_out_of_noise(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    file = tmp_path_factory.mktemp("a") / name
    file.write_bytes(content)
    for task in ("classify", "answer", "tag", "choose", "translate", "converse"):
        try:
            for item in ExampleReader(file, task_named(task)):
                assert item.place.line > 0
        except RegardError as error:
            assert str(error)


# -- real files

REAL = {
    "classify/movie-reviews.jsonl.gz": ("classify", 2000),
    "tagging/wnut17.train.conll.gz": ("tag", 3394),
    "tagging/wnut17.dev.conll.gz": ("tag", 1009),
    "tagging/wnut17.test.conll.gz": ("tag", 1287),
    "answer/xquad.en.json.gz": ("answer", 1190),
    "answer/xquad.zh.json.gz": ("answer", 1190),
    "choose/copa.dev.jsonl.gz": ("choose", 500),
    "choose/copa.test.jsonl.gz": ("choose", 500),
    "converse/chatterbot.english.jsonl.gz": ("converse", 2026),  # one is a text in letters
    "converse/chatterbot.chinese.jsonl.gz": ("converse", 467),
    "translation/tatoeba.en-zh.tsv.gz": ("translate", 22075),
    "translation/python-docs.en-zh.tsv.gz": ("translate", 49168),
}


@pytest.mark.data
@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA names no directory")
@pytest.mark.parametrize("name", REAL)
def test_real_files_open_without_options(name: str) -> None:
    file = Path(os.environ["REGARD_DATA"]) / name
    if not file.is_file():
        pytest.skip(f"{file} is not there")
    task, count = REAL[name]
    problems = Problems()
    assert (
        len(list(ExampleReader(file, task_named(task), None, problems))) + problems.count("error")
        == count
    )
    broken = ["turn 3 of 88 is empty"] if "chatterbot.english" in name else []
    assert [p.message for p in problems.kept if p.severity == "error"] == broken


@pytest.mark.data
@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA names no directory")
def test_real_pairs_serve_two_tasks() -> None:
    file = Path(os.environ["REGARD_DATA"]) / "pairs" / "sick.train.jsonl.gz"
    if not file.is_file():
        pytest.skip(f"{file} is not there")
    entail, similar = read(file, "entail"), read(file, "similar")
    assert len(entail) == len(similar) == 4500
    assert {e.label for e in entail} == {"entailment", "neutral", "contradiction"}
    assert all(isinstance(e.label, float) and 1 <= e.label <= 5 for e in similar)
