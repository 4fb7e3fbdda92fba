"""Records of jsonl, csv, tsv, parquet and datasets of the Hub: the fields asked for, as text."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from regard.core.errors import InputError, UnknownName
from regard.data.files import RECORD, Tally, lines, mended, needed, opened

ROWS = 256  # of parquet at a time


def records(
    file: Path,
    name: str,
    form: str,
    fields: Sequence[str],
    broken: str,
    tally: Tally,
    *,
    headless: bool = False,
) -> Iterator[tuple[str, ...]]:
    """The fields of each record. `headless`: a table without these names holds them in order."""
    if form == "jsonl":
        rows = json_lines(file, name, fields, broken, tally)
    elif form == "parquet":
        rows = parquet(file, name, fields)
    else:
        rows = table(file, name, form, fields, broken, tally, headless)
    for values in rows:
        yield tuple(mended(value, name, broken, tally) for value in values)


def json_lines(
    file: Path, name: str, fields: Sequence[str], broken: str, tally: Tally
) -> Iterator[tuple[str, ...]]:
    for number, line in enumerate(lines(file, name, broken, tally), 1):
        if not line.strip():
            continue
        where = f"line {number:,} of {name}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{where} is not valid JSON: {error}; jsonl holds one object a line"
            ) from None
        if not isinstance(record, dict):
            raise InputError(f"{where} is {type(record).__name__}, not an object with fields")
        yield tuple(as_text(chosen(record, field, where), field, where) for field in fields)


def chosen(record: dict[str, Any], field: str, where: str) -> Any:
    if field not in record:
        raise UnknownName("field", field, map(str, record), f"(in {where}; choose with --field)")
    return record[field]


def as_text(value: Any, field: str, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(
            f"the field {field!r} of {where} is {type(value).__name__}, not text; "
            "choose another with --field"
        )
    return value


def table(
    file: Path,
    name: str,
    form: str,
    fields: Sequence[str],
    broken: str,
    tally: Tally,
    headless: bool,
) -> Iterator[tuple[str, ...]]:
    """csv with quotes; in tsv a quotation mark is a character like any other."""
    csv.field_size_limit(RECORD)
    source = lines(file, name, broken, tally)
    if form == "tsv":
        reader = csv.reader(source, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(source)
    places: list[int] | None = None
    try:
        for row in reader:
            if not row:
                continue
            where = f"line {reader.line_num:,} of {name}"
            if places is None:
                places = columns(row, fields, where, headless)
                if places is not None:
                    continue
                places = list(range(len(fields)))
            if len(row) <= max(places):
                raise InputError(
                    f"{where} has {len(row)} columns, expected {max(places) + 1} or more"
                )
            yield tuple(row[place] for place in places)
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num:,} of {name} is no {form}: {error}; is a quote left open?"
        ) from None


def columns(
    header: list[str], fields: Sequence[str], where: str, headless: bool
) -> list[int] | None:
    """Where the fields stand by the first line; None if that line holds values already."""
    if all(field in header for field in fields):
        return [header.index(field) for field in fields]
    if headless and len(header) >= len(fields):
        return None
    missing = next(field for field in fields if field not in header)
    raise UnknownName("field", missing, header, f"({where} names the columns)")


def parquet(file: Path, name: str, fields: Sequence[str]) -> Iterator[tuple[str, ...]]:
    pyarrow = needed("pyarrow.parquet", f"{name} is parquet")
    with whole_file(file, name) as stream:
        try:
            content = pyarrow.ParquetFile(stream)
        except Exception as error:
            raise InputError(f"{name} is not readable as parquet: {error}") from None
        known = content.schema_arrow.names
        for field in fields:
            if field not in known:
                raise UnknownName("field", field, known, f"(in {name}; choose with --field)")
        for batch in content.iter_batches(batch_size=ROWS, columns=list(fields)):
            lists = [batch.column(field).to_pylist() for field in fields]
            for values in zip(*lists, strict=True):
                yield tuple(as_text(v, f, name) for v, f in zip(values, fields, strict=True))


def whole_file(file: Path, name: str) -> IO[bytes]:
    """Parquet is read from its end, so a compressed one is unpacked to the disk first."""
    stream = opened(file, name)
    if not isinstance(stream, gzip.GzipFile) and file.suffix.lower() != ".zst":
        return stream
    unpacked: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    with stream:
        shutil.copyfileobj(stream, unpacked)
    unpacked.seek(0)
    return unpacked


def hub_rows(name: str) -> Any:
    """A dataset of the Hub: NAME, NAME@CONFIGURATION, NAME#SPLIT or NAME@CONFIGURATION#SPLIT."""
    datasets = needed("datasets", f"hub:{name} is a dataset of the Hugging Face Hub", "hub-data")
    rest, _, split = name.partition("#")
    path, _, configuration = rest.partition("@")
    try:
        return datasets.load_dataset(path, configuration or None, split=split or "train")
    except Exception as error:
        raise InputError(f"hub:{name} cannot be had: {error}") from None


def hub(name: str, fields: Sequence[str], broken: str, tally: Tally) -> Iterator[tuple[str, ...]]:
    """The fields of a dataset of the Hub, as texts."""
    rows = hub_rows(name)
    for field in fields:
        if field not in rows.column_names:
            raise UnknownName("field", field, rows.column_names, f"(in hub:{name})")
    for row in rows.select_columns(list(fields)):
        yield tuple(
            mended(as_text(row[field], field, f"hub:{name}"), f"hub:{name}", broken, tally)
            for field in fields
        )
