"""Reads and writes the files of `regard augment`: examples are written in the format that they came
in.

The fields of the task keep their names. Other fields of a record are unknown here and are left out.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from regard.core.errors import ConfigError, InputError, StorageError, UnknownName
from regard.core.files import replacing
from regard.data.examples import Example, LabeledExample, TaggedExample
from regard.data.files import PACKED, TextFile, suffix_of
from regard.data.problems import FileLine, Problems
from regard.data.readers import BY_SUFFIX, ExampleReader, ReaderOptions
from regard.data.tags import detect, of_entities
from regard.tasks import TASKS
from regard.tasks import task as find

TEXT = "text"  # one text a line, for continued pre-training


@dataclass
class ExampleSource:
    """The examples of a file, and what is needed to write them in the same way."""

    task: str
    examples: list[Example]
    form: str
    fields: dict[str, str] = field(default_factory=dict)  # role -> name
    blanks: list[int] = field(default_factory=list)  # empty lines before each text
    scheme: str = ""  # of tags that name entities


def read_source(
    name: str, task: str, options: ReaderOptions, skip: Sequence[str], problems: Problems
) -> ExampleSource:
    if task == TEXT:
        return read_text(name, problems)
    if task not in TASKS or not find(task).varied:
        able = [TEXT, *(each for each in TASKS if find(each).varied)]
        if task not in TASKS:
            raise UnknownName("task", task, able)
        raise ConfigError(
            f"--task is {task!r}; variants are made for {', '.join(able)}; in other tasks the "
            "answer would change with the text"
        )
    reader = ExampleReader(name, find(task), options, problems)
    examples = list(reader)
    problems.refuse(skip)
    if not examples:
        raise InputError(f"{name} holds no example for {task}")
    source = ExampleSource(task, examples, reader.forms[name], reader.fields.get(name, {}))
    if reader.schema.in_columns:
        rows = [e.tags for e in examples if isinstance(e, TaggedExample) and e.tags is not None]
        tags = {tag for row in rows for tag in row}
        source.scheme = detect(rows) if tags and of_entities(tags) else ""
    return source


def read_text(name: str, problems: Problems) -> ExampleSource:
    path, blank = Path(name), 0
    if not path.is_file():
        raise InputError(f"{name} is no file; give a text file, or --task for labeled examples")
    form = BY_SUFFIX.get(suffix_of(path), "lines")
    if form != "lines":
        able = ", ".join(each for each in TASKS if find(each).varied)
        raise InputError(
            f"{name} holds records ({form}), and without --task every line is read as a text; give "
            f"--task with one of {able}, or a file of plain text"
        )
    source = ExampleSource(TEXT, [], "lines")
    for number, line in TextFile(path, name, problems).lines():
        place = FileLine(name, number)
        if line.strip():
            source.examples.append(LabeledExample(line, place=place, id=str(place)))
            source.blanks.append(blank)
        blank = 0 if line.strip() else blank + 1
    if not source.examples:
        raise InputError(f"{name} holds no text")
    return source


# -- writing


def form_for(out: Path, source: ExampleSource) -> str:
    """Returns the output format: by the suffix of the file, else the format of the source."""
    suffix = out.suffix.lower()
    if suffix in PACKED:
        raise ConfigError(f"--out is {out}; the file is not compressed, so leave {suffix} out")
    own = "jsonl" if source.form in ("json", "hub", "parquet") else source.form
    form = BY_SUFFIX.get(suffix, own)
    if form == "parquet":
        raise ConfigError(f"--out is {out}; parquet cannot be written: use .jsonl")
    if source.task == TEXT:
        return "lines"
    task = find(source.task)
    if task.in_columns and form in ("tsv", "lines"):
        form = "conll"
    if form == "lines" and any(getattr(e, "label", None) is not None for e in source.examples):
        raise ConfigError(f"--out is {out}, which has one text a line and no labels; use .jsonl")
    if form == "lines" and task.needed != ("text",):
        raise ConfigError(f"--out is {out}; {source.task} needs records with fields: use .jsonl")
    if form == "conll" and not task.in_columns:
        raise ConfigError(f"--out is {out}, which is a format for tagged words; use .jsonl")
    if form in ("csv", "tsv") and task.needs_records and not numbered_choices(source.fields):
        raise ConfigError(f"--out is {out}; a table cannot hold lists: use .jsonl")
    if form in ("tsv", "conll"):  # raises errors before any variant is made
        writer = ExampleWriter(io.StringIO(), form, source)
        for example in source.examples:
            writer.text(example)
    return form


def numbered_choices(fields: Mapping[str, str]) -> list[str]:
    """Returns the fields of the choices if each choice has its own field, such as choice1 and
    choice2."""
    names = fields.get("choices", "").split(", ")
    return names if len(names) > 1 else []


def check_out(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise StorageError(f"{out} exists, and nothing is overwritten; choose another --out")
    if not out.parent.is_dir():
        raise StorageError(f"{out.parent} is no directory; create it, or choose another --out")


@contextmanager
def open_new_file(out: Path) -> Iterator[IO[str]]:
    """Opens a file for writing. Afterwards it is either complete or does not exist."""
    check_out(out)
    with replacing(out) as part:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        check_out(out)


class ExampleWriter:
    """Writes examples one by one in one format."""

    def __init__(self, file: IO[str], form: str, source: ExampleSource) -> None:
        self.file, self.fields, self.count = file, source.fields, 0
        self.as_read = source.form == "conll"
        records = (record(e, source.fields) for e in source.examples if form in ("csv", "tsv"))
        self.names = list(dict.fromkeys(name for each in records for name in each))  # columns
        kinds: dict[str, Callable[[Example], str]] = {
            "jsonl": self.object,
            "json": self.object,
            "csv": self.quoted,
            "tsv": self.tabbed,
            "conll": self.columns,
            "lines": self.line,
        }
        self.text, self.array = kinds[form], form == "json"
        if form == "csv":
            file.write(in_csv(self.names))
        elif form == "tsv":
            file.write("\t".join(self.names) + "\n")

    def add(self, example: Example) -> None:
        if self.array:
            self.file.write(",\n" if self.count else "[\n")
            self.file.write(self.text(example).rstrip("\n"))
        else:
            self.file.write(self.text(example))
        self.count += 1

    def close(self) -> None:
        if self.array:
            self.file.write("\n]\n")

    def object(self, example: Example) -> str:
        return json.dumps(record(example, self.fields), ensure_ascii=False) + "\n"

    def row(self, example: Example) -> list[str]:
        values = record(example, self.fields)
        return ["" if values.get(name) is None else str(values[name]) for name in self.names]

    def quoted(self, example: Example) -> str:
        return in_csv(self.row(example))

    def tabbed(self, example: Example) -> str:
        row = self.row(example)
        if any(character in cell for cell in row for character in "\t\r\n"):
            raise InputError(
                f"{example.place}: a text with a tab or a line break does not fit into tsv; give "
                "--out a name that ends in .csv or .jsonl"
            )
        return "\t".join(row) + "\n"

    def columns(self, example: Example) -> str:
        assert isinstance(example, TaggedExample)
        tags = example.tags or [""] * len(example.words)
        for cell in (*example.words, *(example.tags or ())):
            if not (is_cell(cell) if self.as_read else cell.split() == [cell]):
                raise InputError(
                    f"{example.place}: {cell!r} does not fit into CoNLL, where white space "
                    "separates columns; give --out a name that ends in .jsonl"
                )
        lines = (f"{w}\t{t}".rstrip("\t") for w, t in zip(example.words, tags, strict=True))
        return "\n".join([*lines, "", ""])

    def line(self, example: Example) -> str:
        assert isinstance(example, LabeledExample)
        return " ".join(example.text.splitlines()) + "\n"


def is_cell(text: str) -> bool:
    """Returns whether a text may stand between tabs. Files with tabs contain words such as '10
    000'."""
    return bool(text.strip()) and not any(character in text for character in "\t\r\n")


def in_csv(row: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue()


def record(example: Example, fields: Mapping[str, str]) -> dict[str, Any]:
    """Returns the example as a record with the field names of its file, or, for a table without a
    header, with the names of the roles."""
    own = [("id", example.id)] if example.id not in ("", str(example.place)) else []
    values: dict[str, Any] = {}
    for role, value in (*own, *example.record()):
        name = fields.get(role, role)
        if role == "choices" and (several := numbered_choices(fields)):
            values |= dict(zip(several, value, strict=False))
        else:
            values[role if name.isdecimal() else name] = value
    return values
