"""Records of jsonl, json, csv, tsv, plain lines and datasets of the Hub: a name for each value."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import InputError
from regard.data.examples import Place, Problems
from regard.data.files import RECORD
from regard.data.read_fields import Fields
from regard.data.read_lines import content, numbered, whole
from regard.data.records import hub_rows

HUB = "hub:"


class Record(NamedTuple):
    place: Place
    values: dict[str, Any]


def json_lines(path: Path, name: str, problems: Problems) -> Iterator[Record]:
    for number, line in numbered(path, name, problems):
        place = Place(name, number)
        if not line.strip():
            blank(place, problems)
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            column = getattr(error, "colno", 1)
            problems.add(
                place,
                "malformed-record",
                f"not valid JSON at character {column}: {reason}; jsonl holds one object a line",
            )
            continue
        yield from as_record(value, place, problems, "\\u" in line)


def as_record(value: Any, place: Place, problems: Problems, escapes: bool) -> Iterator[Record]:
    if isinstance(value, dict):
        yield Record(place, mended(value, place, problems) if escapes else value)
    else:
        problems.add(
            place,
            "malformed-record",
            f"{type(value).__name__} instead of an object with fields",
        )


def mended(values: dict[str, Any], place: Place, problems: Problems) -> dict[str, Any]:
    """Without halves of characters, which an escape in JSON can bring and UTF-8 cannot hold."""
    try:
        json.dumps(values, ensure_ascii=False).encode()
        return values
    except UnicodeEncodeError as error:
        half = f"{error.object[error.start]!a}"
    problems.add(
        place,
        "broken-utf8",
        f"an escape holds half a character ({half}); it was replaced by \ufffd",
        "warning",
    )
    text = json.dumps(values, ensure_ascii=False)
    repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    result: dict[str, Any] = json.loads(repaired)
    return result


def blank(place: Place, problems: Problems) -> None:
    problems.add(place, "blank-line", "the line is empty", "note")


def json_array(path: Path, name: str, problems: Problems) -> Iterator[Record]:
    """A list of objects; the file is read as one. Objects one after the other are jsonl."""
    text = whole(path, name, problems)
    at = visible(text, 0)
    if text[at : at + 1] != "[":
        yield from json_lines(path, name, problems)
        return
    escapes, decoder = "\\u" in text, json.JSONDecoder()
    line, counted = 1, 0
    at = visible(text, at + 1)
    while text[at : at + 1] != "]":
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
            yield from as_record(value, Place(name, line), problems, escapes)
            at = visible(text, at)
            if text[at : at + 1] == ",":
                at = visible(text, at + 1)
            elif text[at : at + 1] != "]":
                raise json.JSONDecodeError("expected ',' or ']'", text, at)
        except (ValueError, RecursionError) as error:
            place = Place(name, getattr(error, "lineno", line))
            problems.add(place, "malformed-record", f"no JSON: {error}; nothing after it was read")
            return


def visible(text: str, at: int) -> int:
    """Where the next character stands that is no white space."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def plain_lines(path: Path, name: str, field: str, problems: Problems) -> Iterator[Record]:
    """A text a line, without label."""
    for number, line in numbered(path, name, problems):
        yield Record(Place(name, number), {field: content(line)})


def table(
    path: Path, name: str, form: str, header: bool | None, fields: Fields, problems: Problems
) -> Iterator[Record]:
    """Rows under the names of the first line; without such a line the columns are numbers."""
    keys: list[str] = []
    rows = (quoted if form == "csv" else tabbed)(path, name, problems)
    for place, row in rows:
        if not any(cell.strip() for cell in row) and len(row) <= 1:
            blank(place, problems)
            continue
        if not keys:
            keys, names = first_line(row, header, fields, place, problems)
            if not keys:
                return
            if names:
                continue
        if len(row) != len(keys):
            problems.add(
                place,
                "ragged-line",
                f"{len(row)} columns instead of {len(keys)}; "
                + ("is a text with a comma without quotes?" if form == "csv" else "a stray tab?"),
            )
            continue
        yield Record(place, dict(zip(keys, row, strict=True)))


def first_line(
    row: list[str], header: bool | None, fields: Fields, place: Place, problems: Problems
) -> tuple[list[str], bool]:
    """The keys of the columns (none if they cannot be told), and whether the line names them."""
    names = [cell.strip() for cell in row]
    numbers = [str(number) for number in range(1, len(row) + 1)]
    if header or (header is None and fields.fits(names)):
        if len(set(names)) < len(names):
            twice = next(cell for cell in names if names.count(cell) > 1)
            problems.add(place, "malformed-record", f"the header names {twice!r} twice")
            return [], True
        missing = fields.missing(names)
        if missing:
            problems.add(place, "missing-field", missing)
            return [], True
        return names, True
    trouble = fields.number(len(row), names)
    if trouble:
        problems.add(place, "missing-field", trouble)
        return [], False
    if header is None:
        where = ", ".join(f"{role} from column {key}" for role, key in fields.found.items())
        problems.add(
            place,
            "no-header",
            f"no known field is named here, so this is an example ({where}); if it is a header, "
            "say --header and name the fields with --field",
            "note",
        )
    return numbers, False


def tabbed(path: Path, name: str, problems: Problems) -> Iterator[tuple[Place, list[str]]]:
    """In tsv a quotation mark is a character like any other."""
    for number, line in numbered(path, name, problems):
        yield Place(name, number), content(line).split("\t")


def quoted(path: Path, name: str, problems: Problems) -> Iterator[tuple[Place, list[str]]]:
    csv.field_size_limit(RECORD)
    lines = (line for _, line in numbered(path, name, problems))
    reader = csv.reader(lines, strict=True)
    while True:
        place = Place(name, reader.line_num + 1)
        try:
            yield place, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problems.add(
                place,
                "malformed-record",
                f"no csv: {error} (up to line {reader.line_num:,}); is a quote left open? "
                'inside quotes a quote is written twice: ""',
            )


def hub(name: str, download: bool) -> Iterator[Record]:
    """Rows of a dataset of the Hub; numbers of classes become names."""
    if not download:
        raise InputError(
            f"{HUB}{name} is fetched from the network; allow it with --download, or give files"
        )
    rows = hub_rows(name)
    names = {field: class_names(feature) for field, feature in rows.features.items()}
    for number, row in enumerate(rows, 1):
        values = {field: in_words(value, names[field]) for field, value in row.items()}
        yield Record(Place(f"{HUB}{name}", number), values)


def class_names(feature: Any) -> list[str] | None:
    """Of a class, or of a list of classes."""
    inner = getattr(feature, "feature", feature)
    found: list[str] | None = getattr(inner, "names", None)
    return found


def in_words(value: Any, names: list[str] | None) -> Any:
    if names is None:
        return value
    if isinstance(value, list):
        return [in_words(each, names) for each in value]
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None  # -1: the label is kept secret
    return value
