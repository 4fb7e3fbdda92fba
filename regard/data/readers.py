"""Reads labeled data of every format as examples: `read` returns a list, `ExampleReader` streams.

| format | what it is | file suffixes |
| --- | --- | --- |
| jsonl | an object per line | .jsonl .ndjson |
| json | a list of objects; SQuAD's layout for `answer` | .json |
| csv, tsv | a table, with or without a header | .csv .tsv |
| parquet | a table with names and types | .parquet |
| conll | a word and its tag per line, a blank line after a sentence | .conll .bio .iob .txt … |
| lines | a text per line; two such files for `translate` and `summarize` | .txt and others |
| hub | hub:NAME, hub:NAME@CONFIGURATION#SPLIT, through `datasets` | |

All formats may be compressed (.gz, .zst). A stream holds one record in memory at a time, and the
ids of the file to report those that occur twice; only json is read as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from regard.core.errors import InputError, UnknownName
from regard.core.options import CLASSES, DOWNLOAD, FIELD, FORMAT, HEADER, MAX_BYTES
from regard.data.examples import Example, TextPair
from regard.data.files import PACKED, TextFile, check_max_bytes, suffix_of
from regard.data.problems import FileLine, Problems
from regard.data.read_conll import conll
from regard.data.read_fields import Fields, Schema, parsed
from regard.data.records import (
    HUB,
    SUFFIXES,
    Record,
    TableColumns,
    check_download,
    hub,
    json_file,
    parallel,
    read_records,
)

FORMATS = {
    **SUFFIXES,
    "json": (".json",),
    "conll": (".conll", ".conll03", ".conllu", ".bio", ".bioes", ".iob", ".iob2", ".iobes"),
    "lines": (".txt", ".text"),
}
MOST = 2**32  # bytes that a compressed file may unpack to: its examples are all in memory
BY_SUFFIX = {suffix: form for form, suffixes in FORMATS.items() for suffix in suffixes}

Given: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class ReaderOptions:
    """The options of reading examples.

    `fields` names the field of a role ({"text": "review"}); in tables and CoNLL a number names a
    column, counted from 1. `header` says whether the first line of a table names the columns; None
    means that it does if it names what the task needs. `classes` says that the labels of `similar`
    are classes, not scores. `offsets` requires that answers stand at their offsets; a test that
    uses only their texts does not need it.
    """

    form: Annotated[str | None, FORMAT] = None  # None: by the name of the file
    fields: Annotated[Mapping[str, str], FIELD] = field(default_factory=dict)
    header: Annotated[bool | None, HEADER] = None
    classes: Annotated[bool, CLASSES] = False
    offsets: bool = True
    max_bytes: Annotated[int, MAX_BYTES] = MOST
    download: Annotated[bool, DOWNLOAD] = False

    def __post_init__(self) -> None:
        check_max_bytes(self.max_bytes)
        if self.form is not None and self.form not in FORMATS:
            raise UnknownName("format", self.form, FORMATS)


class ExampleReader:
    """Iterates over the examples; all problems go to `problems` and nowhere else."""

    def __init__(
        self,
        source: Given,
        schema: Schema,
        options: ReaderOptions | None = None,
        problems: Problems | None = None,
    ) -> None:
        names = [source] if isinstance(source, str | os.PathLike) else list(source)
        self.names = [os.fspath(name) for name in names]
        if not self.names:
            raise InputError("there is no data; name a file, or hub:NAME")
        self.schema, self.options = schema, options or ReaderOptions()
        self.problems = problems if problems is not None else Problems()
        self.forms = {name: self.form_of(name) for name in self.names}
        self.fields: dict[str, dict[str, str]] = {}  # for each file: the field of each role
        Fields(schema, self.options.fields)  # refuses unknown roles before anything is read

    def form_of(self, name: str) -> str:
        if name.startswith(HUB):
            return "hub"
        path = Path(name)
        if not path.exists():
            raise InputError(f"{name} does not exist; give a file, or {HUB}NAME")
        if path.is_dir():
            raise InputError(f"{name} is a directory; name the files in it")
        if self.options.form is not None:
            return self.options.form
        form = BY_SUFFIX.get(suffix_of(path), "")
        if self.schema.in_columns and form in ("", "tsv", "lines"):
            return "conll"
        if not form and not self.schema.in_two_files:
            raise InputError(
                f"the format of {name} is unknown; known suffixes are {', '.join(BY_SUFFIX)}, also "
                f"with {' or '.join(PACKED)}; or give --format, one of {', '.join(FORMATS)}"
            )
        return form or "lines"

    def __iter__(self) -> Iterator[Example]:
        """Yields the examples. An id that occurs twice is reported; if the ids of a task must be
        unique, the second example is left out."""
        ids: dict[str, FileLine] = {}
        fatal = self.schema.unique_ids
        for example in self.examples():
            if example.id != str(example.place):
                first = ids.setdefault(example.id, example.place)
                if first is not example.place:
                    message = f"the id {example.id!r} was seen at {first}"
                    severity = "error" if fatal else "warning"
                    self.problems.add(example.place, "duplicate-id", message, severity)
                    if fatal:
                        continue
            yield example

    def examples(self) -> Iterator[Example]:
        if self.schema.in_two_files and "lines" in self.forms.values() and len(self.names) > 1:
            if len(self.names) != 2 or set(self.forms.values()) != {"lines"}:
                raise InputError(
                    f"there are {len(self.names)} files with plain text among them; give one "
                    "table, or exactly two text files whose lines belong together"
                )
            yield from self.pairs(*(self.opened(name) for name in self.names))
            return
        for name in self.names:
            if self.forms[name] == "conll":
                if not self.schema.in_columns:
                    raise InputError(f"{name}: conll holds words with tags; use --task tag")
                yield from conll(self.opened(name), self.options.fields)
                continue
            fields = Fields(self.schema, self.options.fields)
            for place, values in self.records(name, self.forms[name], fields):
                example = parsed(place, values, fields, self.problems, self.options)
                if example is not None:
                    yield example
            self.fields[name] = fields.names

    def opened(self, name: str) -> TextFile:
        return TextFile(Path(name), name, self.problems, max_bytes=self.options.max_bytes)

    def pairs(self, left: TextFile, right: TextFile) -> Iterator[TextPair]:
        """Yields the pairs of two files whose lines belong together."""
        for number, source, target in parallel(left, right):
            if source.strip() and target.strip():
                yield TextPair(source, target, FileLine(left.name, number), f"{left.name}:{number}")
            elif source.strip() or target.strip():
                empty, other = (left, right) if target.strip() else (right, left)
                message = f"the line is empty, but the same line of {other.name} is not"
                empty.wrong(number, "empty-text", message)
            else:
                left.wrong(number, "blank-line", "the line is empty in both files", "note")

    def records(self, name: str, form: str, fields: Fields) -> Iterator[Record]:
        if form == "hub":
            check_download(name, self.options.download)
            return hub(name)
        file = self.opened(name)
        if form == "json":
            return json_file(file, self.schema.in_squad)
        if form in ("csv", "tsv", "lines") and not self.schema.in_tables:
            raise InputError(f"{name} is a table, but dialogues need jsonl with a list 'turns'")
        if form == "lines":
            role, *others = self.schema.needed
            if others:
                raise InputError(
                    f"{name}: one text per line is not enough for {self.schema.name}; give jsonl, "
                    "csv or tsv"
                )
            return (Record(FileLine(name, number), {role: line}) for number, line in file.lines())
        return read_records(file, form, lambda row, place: self.first_line(row, place, fields))

    def first_line(self, row: list[str], place: FileLine, fields: Fields) -> TableColumns | None:
        """Reads the first line of a table. If it names no columns, the names are numbers."""
        header = self.options.header
        names = [cell.strip() for cell in row]
        named = fields.is_header(names) if header is None else header
        if named and len(set(names)) < len(names):
            twice = next(cell for cell in names if names.count(cell) > 1)
            self.problems.add(place, "malformed-record", f"the header names {twice!r} twice")
            return None
        trouble = fields.take_header(names) if named else fields.take_numbers(names)
        if trouble:
            self.problems.add(place, "missing-field", trouble)
            return None
        if header is None and not named:
            where = ", ".join(f"{role} from column {key}" for role, key in fields.names.items())
            self.problems.add(
                place,
                "no-header",
                f"no known field is named here, so this is an example ({where}); if it is a "
                "header, say --header and name the fields with --field",
                "note",
            )
        return TableColumns({name: number for number, name in enumerate(fields.seen)}, named)


def read(
    source: Given,
    schema: Schema,
    *,
    skip: Collection[str] = (),
    problems: Problems | None = None,
    **options: Any,
) -> list[Example]:
    """Reads all examples of one file, of several files, or of two parallel files.

    Errors are raised together, except for the kinds in `skip`: those records are left out and
    counted in `problems`. Pass `problems` to see them, and to see warnings and notes.
    """
    reader = ExampleReader(source, schema, ReaderOptions(**options), problems)
    examples = list(reader)
    reader.problems.refuse(skip)
    if not examples:
        raise InputError(
            f"{', '.join(reader.names)} holds no example for {schema.name}; give another file"
        )
    return examples
