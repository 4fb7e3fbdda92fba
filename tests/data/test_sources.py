"""Every form of source gives the same documents, exactly, in bounded memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import InputError, UnknownName
from regard.data import files, sources
from regard.data.builtin import NAME, python_docs
from regard.data.files import ReadCounts
from regard.data.readers import ExampleReader, ReaderOptions
from regard.data.sources import (
    SourceOptions,
    by_blank_lines,
    by_file,
    by_lines,
    documents,
    find,
    pairs,
)
from regard.tasks import task as find_task
from tests.files import Write
from tests.refusals import Refusal, refuses

TEXTS = ["one\ntwo", "  indented\n\tline", "naïve café", "中文。没有空格", 'a "quote", and, commas']


def read(*names: str | Path, work: Path, **reading: object) -> list[str]:
    how = SourceOptions(**reading)  # type: ignore[arg-type]
    texts, whole = [], ""
    for piece in documents(find([str(name) for name in names], how, work), how, ReadCounts()):
        whole += piece.text
        if piece.ends:
            texts.append(whole)
            whole = ""
    assert not whole
    return texts


def write_csv(file: Path, delimiter: str, rows: list[list[str]]) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=delimiter).writerows(rows)
    file.write_bytes(buffer.getvalue().encode())


SPACED = "\n \n" + "\n\n \t\n".join(TEXTS) + "\n\n"
WINDOWS = "\ufeffone\r\ntwo\r\n\r\nthree\r\n"
ODD = "one\n\n two\u2028x\n"


@pytest.mark.parametrize(
    ("content", "split_by", "texts"),
    [
        (SPACED, "blank", TEXTS),
        (WINDOWS, "blank", ["one\r\ntwo", "three"]),
        (WINDOWS, "line", ["one", "two", "three"]),
        (ODD, "line", ["one", " two\u2028x"]),
        (ODD, "file", [ODD]),
    ],
)
def test_plain_text(write: Write, content: str, split_by: str, texts: list[str]) -> None:
    file = write("a.txt", content)
    assert read(file, work=file.parent, split_by=split_by) == texts


@given(st.lists(st.text(st.sampled_from("ab \n\r\t"), max_size=12), max_size=8))
def test_cuts_of_blocks_do_not_matter(parts: list[str]) -> None:
    """However the text arrives, the documents are the same."""

    def joined(pieces: object) -> list[str]:
        texts, whole = [], ""
        for text, ends in pieces:  # type: ignore[attr-defined]
            whole += text
            if ends:
                texts.append(whole)
                whole = ""
        return [text for text in texts if text.strip()]

    for splitter in (by_blank_lines, by_lines, by_file):
        assert joined(splitter(iter(parts))) == joined(splitter(iter(["".join(parts)])))


def test_short_pieces_are_one_document(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "PIECE", 4)
    monkeypatch.setattr(files, "BLOCK", 3)
    file = tmp_path / "a.txt"
    file.write_text("\n\n".join(TEXTS), "utf-8")
    assert read(file, work=tmp_path) == TEXTS
    lines = [line for text in TEXTS for line in text.split("\n")]
    assert read(file, work=tmp_path, split_by="line") == lines
    table = tmp_path / "a.jsonl"
    table.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    assert read(table, work=tmp_path) == TEXTS


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv", "parquet"])
def test_records(tmp_path: Path, form: str, packed: str) -> None:
    texts = [text.replace("\n", " ").replace("\t", " ") for text in TEXTS]
    file = tmp_path / f"a.{form}"
    if form == "jsonl":
        rows = [json.dumps({"id": i, "body": text}) for i, text in enumerate(texts)]
        file.write_text("\n".join([*rows, "", json.dumps({"id": 9, "body": None})]), "utf-8")
    elif form == "csv":
        texts = TEXTS
        write_csv(file, ",", [["id", "body"], *([str(i), t] for i, t in enumerate(texts))])
    elif form == "tsv":
        lines = ["id\tbody", *(f"{i}\t{text}" for i, text in enumerate(texts))]
        file.write_text("\n".join(lines), "utf-8")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        texts = TEXTS
        columns = {"id": list(range(len(texts) + 1)), "body": [*texts, None]}
        parquet.write_table(pyarrow.table(columns), file)
    if packed:
        content = file.read_bytes()
        file = file.with_suffix(file.suffix + packed)
        if packed == ".gz":
            file.write_bytes(gzip.compress(content, mtime=0))
        else:
            zstandard = pytest.importorskip("zstandard")
            half = len(content) // 2  # in two frames, as some programs write
            pack = zstandard.ZstdCompressor().compress
            file.write_bytes(pack(content[:half]) + pack(content[half:]))
    assert read(file, work=tmp_path, field="body") == texts
    with refuses(UnknownName, "'bodi'", "'body'", file):
        read(file, work=tmp_path, field="bodi")


def test_directories_and_globs(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name, text in {
        "b.txt": "b", "a/z.md": "az", "a/.hidden/c.txt": "no", ".d.txt": "no", "e.bin": "no",
        "c.jsonl": '{"text": "c"}', "f.txt": "",
    }.items():  # fmt: skip
        file = work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert read(work, work=tmp_path) == ["az", "b", "c"]
    assert read(f"{work}/**/*.md", f"{work}/b.*", work=tmp_path) == ["az", "b"]
    (tmp_path / "none").mkdir()
    for name in (f"{work}/*.rst", tmp_path / "none"):
        with refuses(InputError, name):
            read(name, work=tmp_path)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"one\n\ntwo\n", gzip.compress(b"one\n\ntwo\n", mtime=0)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert read("-", work=tmp_path) == ["one", "two"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with refuses(InputError, "standard input", "empty"):
        read("-", work=tmp_path)


def test_broken_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("ab\ufffd".encode() + b"\xff\xfe" + "中".encode() + b"c\xe4\xb8")
    for block in (1, 2, 3, 5, 100):
        monkeypatch.setattr(files, "BLOCK", block)
        for how, text in (("replace", "ab\ufffd\ufffd\ufffd中c\ufffd"), ("skip", "ab\ufffd中c")):
            tally, reading = ReadCounts(), SourceOptions(broken=how)
            texts = documents(find([str(file)], reading, tmp_path), reading, tally)
            assert "".join(piece.text for piece in texts) == text
            assert tally.broken == 3
        with refuses(InputError, "a.txt: byte 5", "UTF-8"):
            read(file, work=tmp_path, broken="refuse")


def test_half_a_character_in_json(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a\\ud800b \\ud83d\\ude00"}')
    other = tmp_path / "b.jsonl"  # broken where nobody looks
    other.write_text('{"text": "a", "id": "\\ud800"}')
    assert read(other, work=tmp_path, broken="refuse") == ["a"]
    assert read(file, work=tmp_path) == ["a\ufffdb 😀"]
    assert read(file, work=tmp_path, broken="skip") == ["ab 😀"]
    with refuses(InputError, "a.jsonl:1", "half a character"):
        read(file, work=tmp_path, broken="refuse")


@pytest.mark.parametrize(
    ("name", "content", "refusal"),
    [
        ("a.txt", b"", (InputError, "a.txt", "empty")),
        ("a.txt", b"PNG\x00\x01", (InputError, "a.txt", "binary", "byte 3")),
        ("a.txt.gz", b"plain text", (InputError, "a.txt.gz", "not compressed")),
        (
            "a.txt.gz",
            gzip.compress(b"text" * 99, mtime=0)[:-9],
            (InputError, "a.txt.gz", "damaged"),
        ),
        ("a.jsonl", b'{"text": "a"}\n{"text": ', (InputError, "a.jsonl:2", "JSON")),
        ("a.jsonl", b"[1]", (InputError, "a.jsonl:1", "list")),
        ("a.jsonl", b'{"text": 3}', (InputError, "'text'", "a.jsonl:1", "int")),
        ("a.jsonl", b'{"text": "a"}\n{"text": "' + b"b" * 60, (InputError, "a.jsonl:2", "50")),
        ("a.csv", b"id,body\n1,x\n", (UnknownName, "'text'", "body, id", "a.csv:1")),
        ("a.csv", b"id,text\n1\n", (InputError, "a.csv:2", "1 columns")),
        ("a.csv", b'id,text\n1,"' + b"x,\n" * 50, (InputError, "a.csv:2", "quote")),
        ("a.tsv", b"id\ttext\n1\ta\rb\n", (InputError, "a.tsv:2", "no tsv")),
        ("a.parquet", b"no parquet", (InputError, "a.parquet", "not readable")),
        ("a.txt.zst", files.ZSTD + b"rest", (InputError, "a.txt.zst", "'zstandard'")),
    ],
)
def test_bad_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, refusal: Refusal
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(files, "RECORD", 50)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    file = tmp_path / name
    file.write_bytes(content)
    with refuses(*refusal):
        read(file, work=tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "refusal"),
    [
        ("nowhere.txt", {}, (InputError, "nowhere.txt", "does not exist")),
        ("builtin:pyton-docs", {}, (UnknownName, "'builtin:python-docs'")),
        ("hub:some/name", {}, (InputError, "hub:some/name", "--download")),
        ("hub:some/name", {"download": True}, (InputError, "'datasets'", "pip install")),
        ("a.txt", {"split_by": "lines"}, (UnknownName, "--split-by", "'lines'", "'line'")),
        ("a.txt", {"broken": "refus"}, (UnknownName, "--broken", "'refus'", "'refuse'")),
        ("a.txt", {"form": "json"}, (UnknownName, "--format", "'json'", "'jsonl'")),
    ],
)
def test_bad_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: Any, refusal: Refusal
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refuses(*refusal):
        read(name, work=tmp_path, **options)


def test_pairs(tmp_path: Path) -> None:
    reading = SourceOptions()

    def read_pairs(*names: str) -> list[tuple[str, str]]:
        located = find([str(tmp_path / name) for name in names], reading, tmp_path)
        return list(pairs(located, reading, ReadCounts()))

    expected = [('He said "hi', "他说"), ("yes", "是")]
    (tmp_path / "plain.tsv").write_text('He said "hi\t他说\nyes\t是\n\t空\n', "utf-8")
    (tmp_path / "named.tsv").write_text('target\tsource\n他说\tHe said "hi\n是\tyes\n', "utf-8")
    lines = [json.dumps({"target": b, "source": a}) for a, b in expected]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "a.txt").write_text('He said "hi\nyes\n')
    (tmp_path / "b.txt").write_text("他说\n是\n", "utf-8")
    for names in (["plain.tsv"], ["named.tsv"], ["a.jsonl"], ["a.txt", "b.txt"]):
        assert read_pairs(*names) == expected
    (tmp_path / "b.txt").write_text("他说\n", "utf-8")
    for names, parts in {
        ("a.txt", "b.txt"): ("a.txt: lines: 2", "1 in", "b.txt"),
        ("a.txt",): ("--pairs", "1 sources"),
        ("a.txt", "a.jsonl"): ("--pairs", "2 sources"),
    }.items():
        with refuses(InputError, *parts):
            read_pairs(*names)


def test_a_long_line_stays_small(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    with file.open("wb") as out:
        for _ in range(64):
            out.write(b"no end and no blank line " * 41944)
    tracemalloc.start()
    try:
        for split_by in ("blank", "line", "file"):
            reading = SourceOptions(split_by=split_by)
            length = ends = 0
            for piece in documents(find([str(file)], reading, tmp_path), reading, ReadCounts()):
                length += len(piece.text)
                ends += piece.ends
            assert (length, ends) == (file.stat().st_size, 1)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_python_docs(tmp_path: Path) -> None:
    texts = read(NAME, work=tmp_path)
    assert tuple(texts) == python_docs()
    assert len(set(texts)) == len(texts) > 300
    total = sum(len(text.encode()) for text in texts)
    assert 1.5e6 < total < 4e6
    assert any('The "assert" statement' in text for text in texts)
    assert any("JSON (JavaScript Object Notation)" in text for text in texts)
    assert sum(text.isascii() for text in texts) > 0.8 * len(texts)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.zst", "a.json.gz", "a.parquet", "b.parquet"])
def test_a_compressed_file_unpacks_to_a_stated_number_of_bytes(tmp_path: Path, name: str) -> None:
    """Small on disk, large in memory; the option that allows more is named."""
    file, text = tmp_path / name, "a" * 1000 + "\n"
    rows = [{"text": text}] * 1000
    if name.endswith("parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(
            pyarrow.Table.from_pylist(rows), file, compression="zstd",
            use_dictionary=name == "b.parquet",
        )  # fmt: skip
    else:
        content = (
            text * 1000 if "txt" in name
            else json.dumps(rows) if ".json." in name
            else "\n".join(json.dumps(row) for row in rows)
        ).encode()  # fmt: skip
        pack = gzip.compress if name.endswith("gz") else pytest.importorskip("zstandard").compress
        file.write_bytes(pack(content))
    assert file.stat().st_size < 20_000
    if ".json." in name:
        schema = find_task("classify")
        with refuses(InputError, name, "--max-bytes", "500,000"):
            list(ExampleReader(file, schema, ReaderOptions(max_bytes=500_000)))
        return
    with refuses(InputError, name, "--max-bytes", "500,000"):
        read(file, work=tmp_path, max_bytes=500_000)
    assert len("".join(read(file, work=tmp_path, max_bytes=2_000_000))) > 900_000


def test_a_plain_file_has_no_limit(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a" * 1000, "utf-8")
    assert read(file, work=tmp_path, max_bytes=10) == ["a" * 1000]
    with refuses(InputError, "--max-bytes", "0"):
        SourceOptions(max_bytes=0)
