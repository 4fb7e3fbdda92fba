"""Every form of source gives the same documents, exactly, in bounded memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import InputError, RegardError
from regard.data import files, sources
from regard.data.builtin import NAME, python_docs
from regard.data.files import ReadCounts
from regard.data.sources import (
    SourceOptions,
    by_blank_lines,
    by_file,
    by_lines,
    documents,
    find,
    pairs,
)

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


def test_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("\n \n" + "\n\n \t\n".join(TEXTS) + "\n\n", "utf-8")
    assert read(file, work=tmp_path) == TEXTS


def test_blank_lines_of_windows(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthree\r\n")
    assert read(file, work=tmp_path) == ["one\r\ntwo", "three"]
    assert read(file, work=tmp_path, split_by="line") == ["one", "two", "three"]


def test_lines_and_files(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n\n two\u2028x\n", "utf-8")
    assert read(file, work=tmp_path, split_by="line") == ["one", " two\u2028x"]
    assert read(file, work=tmp_path, split_by="file") == ["one\n\n two\u2028x\n"]


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
    with pytest.raises(RegardError, match="'body'"):
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
    with pytest.raises(InputError, match="no file matches"):
        read(f"{work}/*.rst", work=tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no file"):
        read(tmp_path / "none", work=tmp_path)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"one\n\ntwo\n", gzip.compress(b"one\n\ntwo\n", mtime=0)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert read("-", work=tmp_path) == ["one", "two"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InputError, match="standard input is empty"):
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
        with pytest.raises(InputError, match=r"a\.txt: byte 5 is no UTF-8"):
            read(file, work=tmp_path, broken="refuse")


def test_half_a_character_in_json(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a\\ud800b \\ud83d\\ude00"}')
    other = tmp_path / "b.jsonl"  # broken where nobody looks
    other.write_text('{"text": "a", "id": "\\ud800"}')
    assert read(other, work=tmp_path, broken="refuse") == ["a"]
    assert read(file, work=tmp_path) == ["a\ufffdb 😀"]
    assert read(file, work=tmp_path, broken="skip") == ["ab 😀"]
    with pytest.raises(InputError, match="half a character"):
        read(file, work=tmp_path, broken="refuse")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "a.txt is empty"),
        ("a.txt", b"PNG\x00\x01", "a.txt is a binary file: byte 3"),
        ("a.txt.gz", b"plain text", "named .gz but is not compressed"),
        ("a.txt.gz", gzip.compress(b"text" * 99, mtime=0)[:-9], "a.txt.gz is damaged"),
        ("a.jsonl", b'{"text": "a"}\n{"text": ', r"a\.jsonl:2: not valid JSON"),
        ("a.jsonl", b"[1]", r"a\.jsonl:1: list instead of an object"),
        ("a.jsonl", b'{"text": 3}', "is int, not text"),
        ("a.csv", b"id,body\n1,x\n", "unknown field 'text'"),
        ("a.csv", b"id,text\n1\n", r"a\.csv:2: 1 columns instead of 2 or more"),
        ("a.csv", b'id,text\n1,"' + b"x,\n" * 50, "is a quote left open"),
        ("a.tsv", b"id\ttext\n1\ta\rb\n", r"a\.tsv:2: no tsv"),
        ("a.parquet", b"no parquet", "not readable as parquet"),
    ],
)
def test_bad_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, message: str
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    if "quote" in message:
        monkeypatch.setattr(files, "RECORD", 40)
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(RegardError, match=message):
        read(file, work=tmp_path)


def test_bad_names(tmp_path: Path) -> None:
    for name, message in {
        "nowhere.txt": "nowhere.txt does not exist",
        "builtin:pyton-docs": "did you mean 'builtin:python-docs'",
        "hub:some/name": "allow it with --download",
    }.items():
        with pytest.raises(RegardError, match=message):
            read(name, work=tmp_path)
    for option in ({"split_by": "lines"}, {"broken": "refus"}, {"form": "json"}):
        with pytest.raises(RegardError, match="did you mean"):
            SourceOptions(**option)


def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"needs the library 'datasets' .*pip install"):
        read("hub:some/name", work=tmp_path, download=True)
    file = tmp_path / "a.txt.zst"
    file.write_bytes(files.ZSTD + b"rest")
    with pytest.raises(InputError, match="needs the library 'zstandard'"):
        read(file, work=tmp_path)


def test_pairs(tmp_path: Path) -> None:
    reading = SourceOptions()

    def found(*names: str) -> list[tuple[str, str]]:
        named = find([str(tmp_path / name) for name in names], reading, tmp_path)
        return list(pairs(named, reading, ReadCounts()))

    expected = [('He said "hi', "他说"), ("yes", "是")]
    (tmp_path / "plain.tsv").write_text('He said "hi\t他说\nyes\t是\n\t空\n', "utf-8")
    (tmp_path / "named.tsv").write_text('target\tsource\n他说\tHe said "hi\n是\tyes\n', "utf-8")
    lines = [json.dumps({"target": b, "source": a}) for a, b in expected]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "a.txt").write_text('He said "hi\nyes\n')
    (tmp_path / "b.txt").write_text("他说\n是\n", "utf-8")
    for names in (["plain.tsv"], ["named.tsv"], ["a.jsonl"], ["a.txt", "b.txt"]):
        assert found(*names) == expected
    (tmp_path / "b.txt").write_text("他说\n", "utf-8")
    for names, message in {
        ("a.txt", "b.txt"): r"a\.txt: lines: 2 here but 1 in .*b\.txt",
        ("a.txt",): "exactly two text files",
        ("a.txt", "a.jsonl"): "exactly two text files",
    }.items():
        with pytest.raises(InputError, match=message):
            found(*names)


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


def test_too_long_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "RECORD", 50)
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n{"text": "' + "b" * 60)
    with pytest.raises(InputError, match=r"a\.jsonl:2: the line is longer than 50"):
        read(file, work=tmp_path)


def test_python_docs(tmp_path: Path) -> None:
    texts = read(NAME, work=tmp_path)
    assert tuple(texts) == python_docs()
    assert len(set(texts)) == len(texts) > 300
    total = sum(len(text.encode()) for text in texts)
    assert 1.5e6 < total < 4e6
    assert any('The "assert" statement' in text for text in texts)
    assert any("JSON (JavaScript Object Notation)" in text for text in texts)
    assert sum(text.isascii() for text in texts) > 0.8 * len(texts)
