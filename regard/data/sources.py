"""What is named on the command line, as a stream of documents in bounded memory.

A document comes in pieces of about a mebibyte, so that a line of a gigabyte is no more work than
a thousand short ones.
"""

from __future__ import annotations

import glob
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from regard.core.errors import InputError, UnknownName
from regard.core.options import DOWNLOAD, Option
from regard.data import builtin
from regard.data.files import BROKEN, Tally, TextFile, suffix_of
from regard.data.problems import Place
from regard.data.records import (
    HUB,
    Columns,
    check_download,
    check_known,
    hub,
    json_lines,
    parallel,
    parquet,
    table,
)

PIECE = 2**20  # characters
SPLIT_BY = ("blank", "line", "file")
FORMATS = {
    "text": (".txt", ".text", ".md", ".rst"),
    "jsonl": (".jsonl", ".ndjson"),
    "csv": (".csv",),
    "tsv": (".tsv",),
    "parquet": (".parquet",),
}
BY_SUFFIX = {suffix: form for form, suffixes in FORMATS.items() for suffix in suffixes}
STANDARD_INPUT = "-"

BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")
LEADING = re.compile(r"(?:[^\S\n]*\n)+")


class Piece(NamedTuple):
    """A stretch of a document; `ends`: it is the last."""

    text: str
    ends: bool


@dataclass(frozen=True)
class Reading:
    """How sources are read."""

    split_by: Annotated[
        Literal["blank", "line", "file"],
        Option("What ends a document of text: a blank line, a line, or the file."),
    ] = "blank"
    field: str = "text"
    source_field: str = "source"  # of pairs
    target_field: str = "target"
    form: Annotated[
        str | None,
        Option("The format, whatever the name: text, jsonl, csv, tsv or parquet.", "--format",
               "NAME"),
    ] = None  # fmt: skip
    broken: Annotated[
        Literal["replace", "refuse", "skip"], Option("What to do with text that is not UTF-8.")
    ] = "replace"
    download: Annotated[bool, DOWNLOAD] = False

    def __post_init__(self) -> None:
        for name, given, known in (
            ("--split-by", self.split_by, SPLIT_BY),
            ("--broken", self.broken, BROKEN),
            ("--format", self.form or "text", FORMATS),
        ):
            if given not in known:
                raise UnknownName(f"choice for {name}", given, known)


@dataclass(frozen=True)
class Source:
    """One file, dataset or built-in text."""

    name: str
    form: str  # a key of FORMATS, "hub" or "builtin"
    path: Path | None = None

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path is not None else 0

    def file(self, reading: Reading, tally: Tally) -> TextFile:
        assert self.path is not None, self.name
        return TextFile(self.path, self.name, None, reading.broken, tally)


def find(given: Sequence[str], reading: Reading, work: Path) -> list[Source]:
    """The files that the names stand for. Standard input is read twice, so `work` gets a copy."""
    if not given:
        raise InputError(f"no source given; name files, directories, '-' or {builtin.NAME}")
    found: list[Source] = []
    for name in given:
        found.extend(find_one(name, reading, work))
    return found


def find_one(name: str, reading: Reading, work: Path) -> list[Source]:
    if name == STANDARD_INPUT:
        return [Source("standard input", reading.form or "text", copied_input(work))]
    if name.startswith("builtin:"):
        if name != builtin.NAME:
            raise UnknownName("built-in text", name, [builtin.NAME])
        return [Source(name, "builtin")]
    if name.startswith(HUB):
        check_download(name, reading.download)
        return [Source(name, "hub")]
    path = Path(name)
    if path.is_dir():
        return in_directory(path, reading)
    if path.is_file():
        return [named(path, reading)]
    if glob.has_magic(name):
        files = [Path(match) for match in sorted(glob.glob(name, recursive=True))]  # noqa: PTH207
        files = [file for file in files if file.is_file()]
        if files:
            return [named(file, reading) for file in files]
        raise InputError(f"no file matches {name}")
    raise InputError(f"{name} does not exist; give a file, a directory, a glob or {builtin.NAME}")


def named(path: Path, reading: Reading) -> Source:
    """A file that was asked for by its name: whatever it is called, it is read."""
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty; give a file with text")
    return Source(str(path), reading.form or BY_SUFFIX.get(suffix_of(path), "text"), path)


def in_directory(path: Path, reading: Reading) -> list[Source]:
    """All files of known names below it, hidden ones left out, in the order of their names."""
    found = []
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        form = BY_SUFFIX.get(suffix_of(file))
        if form and not hidden and file.is_file() and file.stat().st_size:
            found.append(Source(str(file), reading.form or form, file))
    if not found:
        raise InputError(
            f"{path} holds no file with text; known names end in {', '.join(BY_SUFFIX)}, "
            "also with .gz or .zst"
        )
    return found


def copied_input(work: Path) -> Path:
    copy = work / "standard-input"
    with copy.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, PIECE)
    if copy.stat().st_size == 0:
        raise InputError("standard input is empty; pipe text into the command")
    return copy


def documents(sources: Sequence[Source], reading: Reading, tally: Tally) -> Iterator[Piece]:
    """All documents of all sources, in order; those without a visible character are left out."""
    for source in sources:
        yield from visible(pieces(source, reading, tally))


def pieces(source: Source, reading: Reading, tally: Tally) -> Iterator[Piece]:
    if source.form == "builtin":
        for text in builtin.python_docs():
            yield Piece(text, True)
    elif source.form == "text":
        content = source.file(reading, tally).texts()
        split = {"blank": by_blank_lines, "line": by_lines, "file": by_file}[reading.split_by]
        yield from split(content)
    else:
        for (text,) in fields_of(source, [reading.field], reading, tally):
            yield from in_pieces(text, tally)


def fields_of(
    source: Source, fields: Sequence[str], reading: Reading, tally: Tally, headless: bool = False
) -> Iterator[tuple[str, ...]]:
    """The fields of each record, as text. `headless`: a table may hold them in order, unnamed."""

    def first_line(row: list[str], place: Place) -> Columns:
        if headless and len(row) >= len(fields) and not set(fields) <= set(row):
            return Columns({field: number for number, field in enumerate(fields)}, False, False)
        check_known(fields, row, f"the header at {place}")
        return Columns({field: row.index(field) for field in fields}, True, False)

    if source.form == "hub":
        records = hub(source.name, fields)
    elif source.form == "jsonl":
        records = json_lines(source.file(reading, tally), fields)
    elif source.form == "parquet":
        records = parquet(source.file(reading, tally), fields)
    else:
        records = table(source.file(reading, tally), source.form, first_line)
    for place, values in records:
        for field, value in values.items():
            if not isinstance(value, str | None):
                raise InputError(
                    f"the field {field!r} of {place} is {type(value).__name__}, not text; "
                    "choose another with --field"
                )
        yield tuple(values[field] or "" for field in fields)


def visible(given: Iterator[Piece]) -> Iterator[Piece]:
    inside = False
    for piece in given:
        if inside or (piece.text and not piece.text.isspace()):
            yield piece
            inside = not piece.ends


def in_pieces(text: str, tally: Tally) -> Iterator[Piece]:
    """A field's text."""
    if not text.strip():
        tally.blank += 1
        return
    for start in range(0, len(text), PIECE):
        yield Piece(text[start : start + PIECE], start + PIECE >= len(text))


def by_file(content: Iterator[str]) -> Iterator[Piece]:
    for text in content:
        yield Piece(text, False)
    yield Piece("", True)


def by_lines(content: Iterator[str]) -> Iterator[Piece]:
    """A document a line; the line's end belongs to none."""
    rest = ""
    for text in content:
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield Piece(line.removesuffix("\r"), True)
        if len(rest) > PIECE:
            yield Piece(rest[:-1], False)  # the last one may be half a line's end
            rest = rest[-1]
    yield Piece(rest.removesuffix("\r"), True)


def by_blank_lines(content: Iterator[str]) -> Iterator[Piece]:
    """Documents between blank lines, each exact but for the line breaks at its end."""
    rest, inside = "", False
    for text in content:
        rest += text
        *whole, rest = BLANK.split(rest)
        for document in whole:
            yield Piece(ended(document if inside else begun(document)), True)
            inside = False
        if len(rest) > PIECE:
            cut = len(rest.rstrip()) or len(rest)  # white space may begin a blank line
            head, rest = rest[:cut], rest[cut:]
            yield Piece(head if inside else begun(head), False)
            inside = True
    yield Piece(ended(rest if inside else begun(rest)), True)


def begun(text: str) -> str:
    """Without blank lines in front; an indented first line stays indented."""
    match = LEADING.match(text)
    return text[match.end() :] if match else text


def ended(text: str) -> str:
    return text.rstrip("\r\n")


def pairs(sources: Sequence[Source], reading: Reading, tally: Tally) -> Iterator[tuple[str, str]]:
    """Sources and targets: from records, or from two text files whose lines belong together."""
    if any(source.form == "text" for source in sources):
        yield from aligned(sources, reading, tally)
        return
    fields = [reading.source_field, reading.target_field]
    for source in sources:
        if source.form == "builtin":
            raise InputError(f"{source.name} is plain text and holds no pairs")
        for left, right in fields_of(source, fields, reading, tally, headless=True):
            yield from checked(left, right, source.name, tally)


def aligned(sources: Sequence[Source], reading: Reading, tally: Tally) -> Iterator[tuple[str, str]]:
    if len(sources) != 2 or any(source.form != "text" for source in sources):
        raise InputError(
            f"--pairs was given {len(sources)} sources with plain text among them; give tables of "
            "two columns (tsv, csv, jsonl, parquet), or exactly two text files, line by line"
        )
    left, right = (source.file(reading, tally) for source in sources)
    for _, a, b in parallel(left, right):
        yield from checked(a.rstrip("\r"), b.rstrip("\r"), left.name, tally)


def checked(a: str, b: str, name: str, tally: Tally) -> Iterator[tuple[str, str]]:
    if max(len(a), len(b)) > PIECE:
        raise InputError(
            f"a pair in {name} has a side of {max(len(a), len(b)):,} characters; "
            f"a side may have {PIECE:,}"
        )
    if a.strip() and b.strip():
        yield a, b
    else:
        tally.blank += 1
