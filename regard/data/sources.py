"""Reads the sources named on the command line as a stream of documents in bounded memory.

A document arrives in pieces of about a mebibyte, so that a line of a gigabyte needs no more memory
than a thousand short ones.
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
from regard.core.options import DOWNLOAD, MAX_BYTES, Option
from regard.data import builtin
from regard.data.files import (
    BROKEN,
    MOST,
    ReadCounts,
    TextFile,
    check_max_bytes,
    opened,
    suffix_of,
)
from regard.data.problems import FileLine
from regard.data.records import (
    HUB,
    SUFFIXES,
    TableColumns,
    check_download,
    check_known,
    hub,
    parallel,
    read_records,
)

PIECE = 2**20  # characters in a piece
TABLE_LINES = 3  # a file is a table if so many lines at its beginning have two columns
SPLIT_BY = ("blank", "line", "file")
FORMATS = {"text": (".txt", ".text", ".md", ".rst"), **SUFFIXES}
BY_SUFFIX = {suffix: form for form, suffixes in FORMATS.items() for suffix in suffixes}
STANDARD_INPUT = "-"

BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")
LEADING = re.compile(r"\A(?:[^\S\n]*\n)+")


class TextPiece(NamedTuple):
    """A piece of a document; `ends` marks its last piece."""

    text: str
    ends: bool


@dataclass(frozen=True)
class SourceOptions:
    """The options of reading sources."""

    split_by: Annotated[
        Literal["blank", "line", "file"],
        Option("What ends a document: a blank line, each line, or the end of the file."),
    ] = "blank"
    field: str = "text"
    source_field: str = "source"  # the field of the source of a pair
    target_field: str = "target"
    form: Annotated[
        str | None,
        Option("Read all files in this format: text, jsonl, csv, tsv or parquet.", "--format",
               "NAME", "by the file name"),
    ] = None  # fmt: skip
    broken: Annotated[
        Literal["replace", "refuse", "skip"], Option("What to do with text that is not UTF-8.")
    ] = "replace"
    max_bytes: Annotated[int, MAX_BYTES] = MOST
    download: Annotated[bool, DOWNLOAD] = False

    def __post_init__(self) -> None:
        check_max_bytes(self.max_bytes)
        for option, choice, known in (
            ("--split-by", self.split_by, SPLIT_BY),
            ("--broken", self.broken, BROKEN),
            ("--format", self.form or "text", FORMATS),
        ):
            if choice not in known:
                raise UnknownName(f"choice for {option}", choice, known)


@dataclass(frozen=True)
class TextSource:
    """A source of text: one file, dataset or built-in text."""

    name: str
    form: str  # a key of FORMATS, "hub" or "builtin"
    path: Path | None = None

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path is not None else 0

    def file(self, reading: SourceOptions, tally: ReadCounts) -> TextFile:
        assert self.path is not None, self.name
        return TextFile(self.path, self.name, None, reading.broken, tally, reading.max_bytes)


def find(names: Sequence[str], reading: SourceOptions, work: Path) -> list[TextSource]:
    """Finds the files that the names stand for. Standard input is read twice, so `work` gets a
    copy."""
    if not names:
        raise InputError(f"there is no source; name files, directories, '-' or {builtin.NAME}")
    return [source for name in names for source in find_one(name, reading, work)]


def find_one(name: str, reading: SourceOptions, work: Path) -> list[TextSource]:
    if name == STANDARD_INPUT:
        copy = work / "standard-input"
        with copy.open("wb") as out:
            shutil.copyfileobj(sys.stdin.buffer, out, PIECE)
        if copy.stat().st_size == 0:
            raise InputError("standard input is empty; pipe text into the command")
        return [TextSource("standard input", reading.form or "text", copy)]
    if name.startswith("builtin:"):
        if name != builtin.NAME:
            raise UnknownName("built-in text", name, [builtin.NAME])
        return [TextSource(name, "builtin")]
    if name.startswith(HUB):
        check_download(name, reading.download)
        return [TextSource(name, "hub")]
    path = Path(name)
    if path.is_dir():
        return in_directory(path, reading)
    if path.is_file():
        files = [path]
    elif glob.has_magic(name):
        matches = [Path(match) for match in sorted(glob.glob(name, recursive=True))]  # noqa: PTH207
        files = [file for file in matches if file.is_file()]
        if not files:
            raise InputError(f"no file matches {name}; give another pattern")
    else:
        raise InputError(
            f"{name} does not exist; give a file, a directory, a glob or {builtin.NAME}"
        )
    for file in files:
        if file.stat().st_size == 0:
            raise InputError(f"{file} is empty; give a file with text")
    return [
        TextSource(str(file), reading.form or BY_SUFFIX.get(suffix_of(file), "text"), file)
        for file in files
    ]


def check_prose(source: TextSource) -> None:
    """Refuses a table of two columns whose name says that it is a text."""
    if source.path is None or source.form != "text":
        return
    try:
        with opened(source.path, source.name) as file:
            lines = file.read(PIECE).decode("utf-8", "replace").splitlines()
    except Exception:  # it cannot be unpacked: whoever reads it whole says why
        return
    first = [line for line in lines if line.strip()][:TABLE_LINES]
    if len(first) == TABLE_LINES and all(line.strip().count("\t") == 1 for line in first):
        raise InputError(
            f"the lines of {source.name} have two columns with a tab between; 'regard prepare' "
            "with --pairs --format tsv reads them as source and target, and --format text reads "
            "them as prose"
        )


def in_directory(path: Path, reading: SourceOptions) -> list[TextSource]:
    """Finds all files with a known suffix below a directory, sorted by name; hidden ones are
    ignored."""
    sources = []
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        form = BY_SUFFIX.get(suffix_of(file))
        if form and not hidden and file.is_file() and file.stat().st_size:
            sources.append(TextSource(str(file), reading.form or form, file))
    if not sources:
        raise InputError(
            f"{path} holds no file with text; known suffixes are {', '.join(BY_SUFFIX)}, "
            "also with .gz or .zst"
        )
    return sources


def documents(
    sources: Sequence[TextSource], reading: SourceOptions, tally: ReadCounts
) -> Iterator[TextPiece]:
    """Yields all documents in order; documents without a visible character are left out."""
    inside = False
    for source in sources:
        for piece in pieces(source, reading, tally):
            if inside or (piece.text and not piece.text.isspace()):
                yield piece
                inside = not piece.ends


def pieces(source: TextSource, reading: SourceOptions, tally: ReadCounts) -> Iterator[TextPiece]:
    if source.form == "builtin":
        for text in builtin.python_docs():
            yield TextPiece(text, True)
    elif source.form == "text":
        content = source.file(reading, tally).texts()
        split = {"blank": by_blank_lines, "line": by_lines, "file": by_file}[reading.split_by]
        yield from split(content)
    else:
        for (text,) in fields_of(source, [reading.field], reading, tally):
            if not text.strip():
                tally.blank += 1
                continue
            for start in range(0, len(text), PIECE):
                yield TextPiece(text[start : start + PIECE], start + PIECE >= len(text))


def fields_of(
    source: TextSource,
    fields: Sequence[str],
    reading: SourceOptions,
    tally: ReadCounts,
    headless: bool = False,
) -> Iterator[tuple[str, ...]]:
    """Yields the fields of each record as text. With `headless`, a table without a header has them
    in order."""

    def first_line(row: list[str], place: FileLine) -> TableColumns:
        if headless and len(row) >= len(fields) and not set(fields) <= set(row):
            return TableColumns(
                {field: number for number, field in enumerate(fields)}, False, False
            )
        check_known(fields, row, f"the header at {place}")
        return TableColumns({field: row.index(field) for field in fields}, True, False)

    if source.form == "hub":
        records = hub(source.name, fields)
    else:
        records = read_records(source.file(reading, tally), source.form, first_line, fields)
    for place, values in records:
        for field, value in values.items():
            if not isinstance(value, str | None):
                raise InputError(
                    f"the field {field!r} of {place} is {type(value).__name__}, not text; "
                    "choose another field with --field"
                )
        yield tuple(values[field] or "" for field in fields)


def by_file(content: Iterator[str]) -> Iterator[TextPiece]:
    for text in content:
        yield TextPiece(text, False)
    yield TextPiece("", True)


def by_lines(content: Iterator[str]) -> Iterator[TextPiece]:
    """Yields each line as a document, without its line end."""
    rest = ""
    for text in content:
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield TextPiece(line.removesuffix("\r"), True)
        if len(rest) > PIECE:
            yield TextPiece(rest[:-1], False)  # the last character may be half a line end
            rest = rest[-1]
    yield TextPiece(rest.removesuffix("\r"), True)


def by_blank_lines(content: Iterator[str]) -> Iterator[TextPiece]:
    """Yields documents cut at blank lines; each is exact, except for blank lines in front of it and
    line breaks at its end."""
    rest, inside = "", False

    def begun(text: str) -> str:  # an indented first line stays indented
        return text if inside else LEADING.sub("", text, count=1)

    for text in content:
        rest += text
        *whole, rest = BLANK.split(rest)
        for document in whole:
            yield TextPiece(begun(document).rstrip("\r\n"), True)
            inside = False
        if len(rest) > PIECE:
            cut = len(rest.rstrip()) or len(rest)  # white space may begin a blank line
            head, rest = rest[:cut], rest[cut:]
            yield TextPiece(begun(head), False)
            inside = True
    yield TextPiece(begun(rest).rstrip("\r\n"), True)


def pairs(
    sources: Sequence[TextSource], reading: SourceOptions, tally: ReadCounts
) -> Iterator[tuple[str, str]]:
    """Yields pairs of texts from records, or from two text files whose lines belong together."""
    for name, a, b in both_sides(sources, reading, tally):
        if max(len(a), len(b)) > PIECE:
            raise InputError(
                f"a pair in {name} has a side of {max(len(a), len(b)):,} characters; "
                f"the limit is {PIECE:,}"
            )
        if a.strip() and b.strip():
            yield a, b
        else:
            tally.blank += 1


def both_sides(
    sources: Sequence[TextSource], reading: SourceOptions, tally: ReadCounts
) -> Iterator[tuple[str, str, str]]:
    """Yields the name of the file and both sides of each pair; a side may be empty."""
    if any(source.form == "text" for source in sources):
        if len(sources) != 2 or any(source.form != "text" for source in sources):
            raise InputError(
                f"--pairs was given {len(sources)} sources with plain text among them; give tables "
                "of two columns (tsv, csv, jsonl, parquet), or exactly two text files, line by line"
            )
        left, right = (source.file(reading, tally) for source in sources)
        for _, a, b in parallel(left, right):
            yield left.name, a.rstrip("\r"), b.rstrip("\r")
        return
    fields = [reading.source_field, reading.target_field]
    for source in sources:
        if source.form == "builtin":
            raise InputError(f"{source.name} is plain text and holds no pairs; leave --pairs out")
        for a, b in fields_of(source, fields, reading, tally, headless=True):
            yield source.name, a, b
