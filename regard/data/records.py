"""The reader of all record formats: jsonl, json, SQuAD, csv, tsv, parquet, lines, Hub datasets.

Text for pretraining (`sources`) and examples of tasks (`readers`) are both read here. A record has
its file and line, and a name for each value. If `fields` are given, a record holds only these.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NamedTuple

from regard.core.errors import InputError, UnknownName
from regard.core.files import storing
from regard.data import files
from regard.data.files import TextFile, is_packed, needed, opened
from regard.data.problems import FileLine

ROWS = 256  # rows of parquet that are read at a time
HUB = "hub:"
SUFFIXES = {  # the suffixes of files with records of named fields
    "jsonl": (".jsonl", ".ndjson"),
    "csv": (".csv",),
    "tsv": (".tsv",),
    "parquet": (".parquet",),
}


class Record(NamedTuple):
    place: FileLine
    values: dict[str, Any]


class TableColumns(NamedTuple):
    """The meaning of a table's first line: the index of each field's column, counted from 0."""

    places: Mapping[str, int]
    named: bool  # whether the line is a header, and not a record itself
    exact: bool = True  # whether a line must have no further columns


FirstLine = Callable[[list[str], FileLine], TableColumns | None]  # None: the table cannot be read


def check_known(fields: Sequence[str] | None, known: Iterable[str], where: object) -> None:
    names = list(map(str, known))
    for field in fields or ():
        if field not in names:
            pairs = ", or read two columns as pairs with --pairs" * (len(names) == 2)
            raise UnknownName("field", field, names, f"(in {where}; choose with --field{pairs})")


def read_records(
    file: TextFile, form: str, first_line: FirstLine, fields: Sequence[str] | None = None
) -> Iterator[Record]:
    """Returns the records of a file in one of the formats of SUFFIXES."""
    if form == "jsonl":
        return json_lines(file, fields)
    if form == "parquet":
        return parquet(file, fields)
    return table(file, form, first_line)


def parallel(left: TextFile, right: TextFile) -> Iterator[tuple[int, str, str]]:
    """Yields the line number and both lines of two files whose lines belong together."""
    counts = [0, 0]
    for number, both in enumerate(zip_longest(left.lines(), right.lines()), 1):
        counts = [count + (side is not None) for count, side in zip(counts, both, strict=True)]
        if both[0] is not None and both[1] is not None:
            yield number, both[0][1], both[1][1]
    if counts[0] != counts[1]:
        left.wrong(
            0,
            "unequal-files",
            f"lines: {counts[0]:,} here but {counts[1]:,} in {right.name}; line n of one file must "
            "belong to line n of the other",
        )


# -- JSON


def json_lines(file: TextFile, fields: Sequence[str] | None = None) -> Iterator[Record]:
    for number, line in file.lines():
        if not line.strip():
            blank(file, number)
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            column = getattr(error, "colno", 1)
            file.wrong(
                number,
                "malformed-record",
                f"not valid JSON at character {column}: {reason}; jsonl holds one object per line",
            )
            continue
        yield from as_record(file, number, value, "\\u" in line, fields)


def as_record(
    file: TextFile, line: int, value: Any, escapes: bool, fields: Sequence[str] | None = None
) -> Iterator[Record]:
    place = FileLine(file.name, line)
    if not isinstance(value, dict):
        kind = type(value).__name__
        file.wrong(line, "malformed-record", f"this is {kind}, not an object with fields")
        return
    if fields is not None:
        check_known(fields, value, place)
        value = {field: value[field] for field in fields}
    yield Record(place, file.mended(value, line) if escapes else value)


def blank(file: TextFile, line: int) -> None:
    file.wrong(line, "blank-line", "the line is empty", "note")


def json_file(file: TextFile, in_squad: bool = False) -> Iterator[Record]:
    """Yields the records of a list of objects, of objects one after the other, or of SQuAD's layout
    (1.1 and 2.0). A list and SQuAD's layout are read as a whole."""
    text = file.whole()
    escapes = "\\u" in text
    if text.lstrip().startswith("["):
        yield from json_array(file, text, escapes)
        return
    content: Any = None
    if in_squad:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            if not str(error).startswith("Extra data"):
                message = f"not valid JSON: {error}; nothing of the file was read"
                file.wrong(getattr(error, "lineno", 1), "malformed-record", message)
                return
            content = None
    if isinstance(content, dict) and "data" in content:
        yield from questions(file.mended(content, 1) if escapes else content, file, text)
    elif content is not None:
        yield from as_record(file, 1, content, escapes)
    else:
        yield from json_lines(file)


def json_array(file: TextFile, text: str, escapes: bool) -> Iterator[Record]:
    """Yields the objects of a list with their lines, up to the first broken object."""
    decoder = json.JSONDecoder()
    line, counted = 1, 0
    at = visible(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
            yield from as_record(file, line, value, escapes)
            at = visible(text, at)
            if text[at : at + 1] == ",":
                at = visible(text, at + 1)
            elif text[at : at + 1] != "]":
                raise json.JSONDecodeError("expected ',' or ']'", text, at)
        except (ValueError, RecursionError) as error:
            message = f"not valid JSON: {error}; nothing after it was read"
            file.wrong(getattr(error, "lineno", line), "malformed-record", message)
            return


def visible(text: str, at: int) -> int:
    """Returns the index of the next character that is not white space."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def questions(content: dict[str, Any], file: TextFile, text: str) -> Iterator[Record]:
    """Yields a record for each question of SQuAD: id, question, context, answers and, in 2.0,
    is_impossible. Its line is where its id next occurs in the file."""
    number, line, at = 0, 1, 0
    for article in entries(content, "data", 1, file):
        for paragraph in entries(article, "paragraphs", line, file):
            context = paragraph.get("context")
            for question in entries(paragraph, "qas", line, file):
                number += 1
                name = question.get("id")
                name = name if isinstance(name, str) else question.get("question")
                for written in (json.dumps(name, ensure_ascii=False), json.dumps(name)):
                    place = text.find(written, at)
                    if place >= 0:
                        line, at = line + text.count("\n", at, place), place + 1
                        break
                defaults = {"id": f"{file.name}#{number}", "context": context}
                yield Record(FileLine(file.name, line), defaults | question)


def entries(
    value: dict[str, Any], field: str, line: int, file: TextFile
) -> Iterator[dict[str, Any]]:
    """Yields the objects of the list in a field."""
    objects = value.get(field)
    if not isinstance(objects, list):
        there = ", ".join(map(repr, value)) or "none"
        file.wrong(line, "missing-field", f"there is no list {field!r}; the fields are: {there}")
        return
    for each in objects:
        if isinstance(each, dict):
            yield each
        else:
            kind = type(each).__name__
            file.wrong(line, "malformed-record", f"{field!r} holds {kind} among its objects")


# -- tables


def table(file: TextFile, form: str, first_line: FirstLine) -> Iterator[Record]:
    """Yields the rows of csv or tsv; `first_line` says what the first row means."""
    columns: TableColumns | None = None
    width = 0
    for line, row in (quoted if form == "csv" else tabbed)(file):
        place = FileLine(file.name, line)
        if not row or (file.problems is not None and len(row) == 1 and not row[0].strip()):
            blank(file, line)
            continue
        if columns is None:
            columns = first_line(row, place)
            if columns is None:
                return
            width = max(columns.places.values()) + 1
            if columns.named:
                continue
        if len(row) < width or (columns.exact and len(row) > width):
            what = f"{width}" if columns.exact else f"{width} or more"
            advice = "does a text with a comma lack quotes?" if form == "csv" else "a stray tab?"
            message = f"there are {len(row)} columns instead of {what}; {advice}"
            file.wrong(line, "ragged-line", message)
            continue
        yield Record(place, {name: row[number] for name, number in columns.places.items()})


def tabbed(file: TextFile) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of tsv, in which a quotation mark is an ordinary character."""
    for number, line in file.lines():
        if file.problems is None and "\r" in (line := line.rstrip("\r")):
            file.wrong(number, "malformed-record", "no tsv: a line break (\\r) is inside the line")
        yield number, line.split("\t") if line else []


def quoted(file: TextFile) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of csv with the number of their first line. Without `file.problems`, quotes
    at odd places are accepted."""
    csv.field_size_limit(files.RECORD)
    lines = (line for _, line in file.lines(ends=True))
    reader = csv.reader(lines, strict=file.problems is not None)
    while True:
        begin = reader.line_num + 1
        try:
            yield begin, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            file.wrong(
                begin,
                "malformed-record",
                f"not valid csv: {error} (up to line {reader.line_num:,}); is a quote left open? "
                'inside quotes, write a quote twice: ""',
            )


def parquet(file: TextFile, fields: Sequence[str] | None) -> Iterator[Record]:
    pyarrow = needed("pyarrow.parquet", f"{file.name} is parquet")
    with on_disk(file) as stream:
        try:
            content = pyarrow.ParquetFile(stream)
        except Exception as error:
            raise InputError(f"{file.name} is not readable as parquet: {error}") from None
        check_known(fields, content.schema_arrow.names, file.name)
        groups = (content.metadata.row_group(i) for i in range(content.num_row_groups))
        file.unpacked(sum(group.total_byte_size for group in groups))
        number = size = 0
        columns = None if fields is None else list(fields)
        for batch in content.iter_batches(batch_size=ROWS, columns=columns):
            size += batch.nbytes  # more than the file says, where values are repeated
            file.unpacked(size)
            for values in batch.to_pylist():
                number += 1
                yield Record(FileLine(file.name, number), values)


def on_disk(file: TextFile) -> IO[bytes]:
    """Opens parquet. It is read from its end, so a compressed file is first unpacked to disk."""
    stream = opened(file.path, file.name)
    if not is_packed(stream):
        return stream
    unpacked: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    with stream, storing(Path(tempfile.gettempdir())):
        while block := stream.read(files.BLOCK):
            unpacked.write(block)
            file.unpacked(unpacked.tell())
        unpacked.seek(0)
    return unpacked


# -- the Hub


def check_download(name: str, download: bool) -> None:
    if not download:
        raise InputError(
            f"{name} is fetched from the network; allow it with --download, or give files"
        )


def hub(name: str, fields: Sequence[str] | None = None) -> Iterator[Record]:
    """Yields the rows of a dataset: hub:NAME, hub:NAME@CONFIGURATION, hub:NAME@CONFIGURATION#SPLIT.

    Class numbers are replaced by class names, unless `fields` are given.
    """
    datasets = needed("datasets", f"{name} is a dataset of the Hugging Face Hub", "hub-data")
    rest, _, split = name.removeprefix(HUB).partition("#")
    path, _, configuration = rest.partition("@")
    try:
        rows = datasets.load_dataset(path, configuration or None, split=split or "train")
    except Exception as error:
        raise InputError(f"{name} cannot be loaded: {error}") from None
    classes: dict[str, list[str]] = {}
    if fields is None:
        for field, feature in rows.features.items():
            inner = getattr(feature, "feature", feature)  # a class, or a list of classes
            classes[field] = getattr(inner, "names", None) or []
    else:
        check_known(fields, rows.column_names, name)
        rows = rows.select_columns(list(fields))
    for number, row in enumerate(rows, 1):
        values = {field: in_words(value, classes.get(field, [])) for field, value in row.items()}
        yield Record(FileLine(name, number), values)


def in_words(value: Any, names: list[str]) -> Any:
    """Replaces class numbers by class names; -1 stands for a hidden label and becomes None."""
    if names and isinstance(value, list):
        return [in_words(each, names) for each in value]
    if names and isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None
    return value
