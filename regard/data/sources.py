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
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from regard.core.errors import InputError, UnknownName
from regard.data import builtin
from regard.data.files import BROKEN, Tally, lines, texts
from regard.data.records import hub, records

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
HUB = "hub:"

BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")
LEADING = re.compile(r"(?:[^\S\n]*\n)+")


class Piece(NamedTuple):
    """A stretch of a document; `ends`: it is the last."""

    text: str
    ends: bool


@dataclass(frozen=True)
class Reading:
    """How sources are read."""

    split_by: str = "blank"
    field: str = "text"
    source_field: str = "source"  # of pairs
    target_field: str = "target"
    form: str | None = None  # None: by the name of the file
    broken: str = "replace"
    download: bool = False

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

    @property
    def file(self) -> Path:
        assert self.path is not None, self.name
        return self.path


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
        if not reading.download:
            raise InputError(
                f"{name} is fetched from the network; allow it with --download, or give files"
            )
        return [Source(name.removeprefix(HUB), "hub")]
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
    return Source(str(path), reading.form or form_of(path) or "text", path)


def in_directory(path: Path, reading: Reading) -> list[Source]:
    """All files of known names below it, hidden ones left out, in the order of their names."""
    found = []
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        form = form_of(file)
        if form and not hidden and file.is_file() and file.stat().st_size:
            found.append(Source(str(file), reading.form or form, file))
    if not found:
        raise InputError(
            f"{path} holds no file with text; known names end in {', '.join(BY_SUFFIX)}, "
            "also with .gz or .zst"
        )
    return found


def form_of(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    return BY_SUFFIX.get(suffixes[-1]) if suffixes else None


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
    elif source.form == "hub":
        for (text,) in hub(source.name, [reading.field], reading.broken, tally):
            yield from in_pieces(text, tally)
    elif source.form == "text":
        content = texts(source.file, source.name, reading.broken, tally)
        yield from {"blank": by_blank_lines, "line": by_lines, "file": by_file}[reading.split_by](
            content
        )
    else:
        rows = records(
            source.file, source.name, source.form, [reading.field], reading.broken, tally
        )
        for (text,) in rows:
            yield from in_pieces(text, tally)


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
        if source.form == "hub":
            rows = hub(source.name, fields, reading.broken, tally)
        elif source.form == "builtin":
            raise InputError(f"{source.name} is plain text and holds no pairs")
        else:
            rows = records(
                source.file, source.name, source.form, fields, reading.broken, tally, headless=True
            )
        for row in rows:
            yield from checked(row[0], row[1], source.name, tally)


def aligned(sources: Sequence[Source], reading: Reading, tally: Tally) -> Iterator[tuple[str, str]]:
    if len(sources) != 2 or any(source.form != "text" for source in sources):
        raise InputError(
            f"--pairs was given {len(sources)} sources with plain text among them; give tables of "
            "two columns (tsv, csv, jsonl, parquet), or exactly two text files, line by line"
        )
    left, right = (lines(source.file, source.name, reading.broken, tally) for source in sources)
    for number, (a, b) in enumerate(zip_longest(left, right), 1):
        if a is None or b is None:
            short, long = (sources[0], sources[1]) if a is None else (sources[1], sources[0])
            raise InputError(
                f"{short.name} has {number - 1:,} lines and {long.name} has more; "
                "line n of one must belong to line n of the other"
            )
        yield from checked(a.rstrip("\r\n"), b.rstrip("\r\n"), sources[0].name, tally)


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
