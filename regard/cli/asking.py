"""Reads the inputs of `regard predict` and `embed`: words, lines of standard input, or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.core.errors import FormatError, InputError
from regard.core.files import read_json
from regard.data import readers
from regard.data.examples import Example
from regard.data.files import TextFile, suffix_of
from regard.data.problems import FileLine, Problems
from regard.data.read_fields import Fields, parsed
from regard.tasks.base import Task

STDIN = "standard input"
Asked = tuple[FileLine, list[str] | dict[str, Any]]  # texts, or a record


def learned(model: str) -> str:
    """Returns the task in a run's task.json, or "" if it has none. The model is not opened."""
    from regard.tasks.task_file import TASK, TASK_KINDS

    file = Path(model, TASK)
    facts = read_json(file, error=FormatError, advice="restore it", kinds=TASK_KINDS) or {}
    return str(facts.get("task", ""))


def examples_of(
    task: Task,
    texts: Sequence[str],
    file: Path | None,
    reading: dict[str, Any],  # form, fields, max_bytes
    pair: str | None = None,
    question: str | None = None,
    whole: bool = False,  # is a line one text, whatever the task?
) -> tuple[list[Any], list[str]]:
    """Returns all examples without their gold answers, and notes for the user."""
    if file is not None and texts:
        raise InputError("give texts or --file, not both")
    if file is not None and not file.is_file():
        raise InputError(f"--file is {file}, and there is no file with this name; give its path")
    if pair is not None and len(texts) != 1:
        raise InputError(f"--pair needs exactly one TEXT, and {len(texts)} were given")
    problems, fields = Problems(), reading.get("fields", {})
    form = reading.get("form") or readers.BY_SUFFIX.get(suffix_of(file), "lines") if file else None
    examples: list[Example] = []
    if file is not None and form != "lines":
        examples = readers.read(
            str(file), task, problems=problems, classes=True, offsets=False, **reading
        )
    else:
        roles, options = Fields(task, fields), readers.ReaderOptions(classes=True, offsets=False)
        limit = reading.get("max_bytes", readers.MOST)
        source = TextFile(
            file or Path(STDIN), STDIN if file is None else str(file), problems, max_bytes=limit
        )
        rows = words_asked(task, texts, pair) if texts else lines_asked(
            whole or task.whole_lines, source, file is None
        )  # fmt: skip
        for place, row in rows:
            if isinstance(row, list):  # --field, or else the task, names the texts
                values = task.from_texts(row, place)
                row = {fields.get(role, role): value for role, value in values.items()}
            example = parsed(place, row, roles, problems, options)
            examples += [] if example is None else [example]
        problems.refuse()
    if question is not None:
        if not hasattr(examples[0] if examples else None, "asks"):
            raise InputError(f"--question is for the task choose, and this model does {task.name}")
        examples = [replace(one, asks=question) for one in examples]  # type: ignore[call-arg]
    return [example.without_gold() for example in examples], problems.notes()


def words_asked(task: Task, texts: Sequence[str], pair: str | None) -> Iterator[Asked]:
    """Yields the texts of each example. Some tasks take a single example."""
    from regard.decoding.prompts import readable

    texts = [readable(text) for text in texts]
    if task.one_at_a_time:
        yield FileLine("the command line"), [*texts, *([] if pair is None else [pair])]
        return
    for number, text in enumerate(texts, 1):
        yield FileLine(f"text {number}"), [text] if pair is None else [text, pair]


def lines_asked(whole: bool, source: TextFile, piped: bool) -> Iterator[Asked]:
    """Yields the texts of each line, or its JSON record."""
    for number, line in standard_input(source) if piped else source.lines():
        values, place = json_record(line), FileLine(source.name, number)
        if values is not None:
            yield place, source.mended(values, number)
        else:
            yield place, [line] if whole else line.split("\t")


def standard_input(source: TextFile) -> Iterator[tuple[int, str]]:
    if sys.stdin.isatty():
        raise InputError("TEXT is missing; give texts, --file, or lines on standard input")
    data = sys.stdin.buffer.read()  # it is UTF-8, whatever the encoding of the terminal
    if not data.strip():
        raise InputError(f"{STDIN} is empty; give one text per line")
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        yield number, source.line(raw, number)


def json_record(line: str) -> dict[str, Any] | None:
    """Returns the record of a line, or None if the line is a plain text."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def described(task: Task, example: Any, answer: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Returns a prediction for programs. Values that the model does not give are left out."""
    from regard.metrics.figures import jsonable

    row: dict[str, Any] = {} if example.id == str(example.place) else {"id": example.id}
    result: dict[str, Any] = jsonable(row | task.described(example, answer, labels))
    return result
