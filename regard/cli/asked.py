"""What the commands that ask a model are given, and how its answers are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.cli.check import chosen
from regard.core.errors import InputError
from regard.data import readers
from regard.data.examples import Example
from regard.data.files import TextFile, suffix_of
from regard.data.problems import Place, Problems
from regard.data.read_fields import Fields, parsed
from regard.tasks import task as find
from regard.tasks.base import Task

STDIN = "standard input"


def examples_given(
    command: str,
    texts: Sequence[str],
    file: Path | None,
    field: list[str],
    form: str | None,
    pair: str | None = None,
    asks: str | None = None,
) -> tuple[list[Any], list[str]]:
    """All examples without their right answers, and what a user should know of them."""
    if file is not None and texts:
        raise InputError("give texts or --file, not both")
    if pair is not None and len(texts) != 1:
        raise InputError(f"--pair belongs to one TEXT, and {len(texts)} were given")
    problems, fields = Problems(), chosen(field)
    task = find("classify" if command == "embed" else command)
    whole = task.whole_lines or command == "embed"  # is a line one text?
    found: list[Example]
    if file is not None and (form or readers.BY_SUFFIX.get(suffix_of(file), "lines")) != "lines":
        found = readers.read(
            str(file), task, problems=problems, fields=fields, form=form, classes=True,
            offsets=False,
        )  # fmt: skip
    else:
        roles, options = Fields(task, fields), readers.Options(classes=True, offsets=False)
        given: Iterator[tuple[Place, list[str] | dict[str, Any]]]
        given = arguments(task, texts, pair) if texts else lines_given(whole, file, problems)
        made = [
            parsed(place, as_record(task, one, place, fields), roles, problems, options)
            for place, one in given
        ]
        problems.refuse()
        found = [example for example in made if example is not None]
    if asks is not None:
        found = [replace(one, asks=asks) for one in found]  # type: ignore[call-arg]
    return [example.without_gold() for example in found], problems.notes()


def arguments(
    task: Task, texts: Sequence[str], pair: str | None
) -> Iterator[tuple[Place, list[str] | dict[str, Any]]]:
    """The texts of each example; some tasks take one example alone."""
    from regard.decoding.prompts import readable

    texts = [readable(text) for text in texts]
    if task.one_at_a_time:
        yield Place("the command line"), list(texts)
        return
    for number, text in enumerate(texts, 1):
        yield Place(f"text {number}"), [text] if pair is None else [text, pair]


def lines_given(
    whole: bool, file: Path | None, problems: Problems
) -> Iterator[tuple[Place, list[str] | dict[str, Any]]]:
    """The texts of each line, or the record that it holds."""
    if file is not None and not file.is_file():
        raise InputError(f"--file is {file}, which is no file")
    source = TextFile(file or Path(STDIN), STDIN if file is None else str(file), problems)
    for number, line in source.lines() if file is not None else standard_input(source):
        values, place = json_record(line), Place(source.name, number)
        if values is not None:
            yield place, source.mended(values, number)
        else:
            yield place, [line] if whole else line.split("\t")


def standard_input(source: TextFile) -> Iterator[tuple[int, str]]:
    if sys.stdin.isatty():
        raise InputError("TEXT is missing; give texts, --file, or lines on standard input")
    data = sys.stdin.buffer.read()  # as UTF-8, whatever the terminal speaks
    if not data.strip():
        raise InputError(f"{STDIN} is empty; give a text a line")
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        yield number, source.line(raw, number)


def json_record(line: str) -> dict[str, Any] | None:
    """None where a line is a text."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def as_record(
    task: Task, given: list[str] | dict[str, Any], place: Place, fields: dict[str, str]
) -> dict[str, Any]:
    """Texts get the names of their roles, or those that --field has for them."""
    if isinstance(given, dict):
        return given
    values = task.from_texts(given, place)
    return {fields.get(role, role): value for role, value in values.items()}


def check_pairs(examples: Sequence[Example], task: str, model: str) -> None:
    """Refuses examples that a model of this task cannot be asked about."""
    for example in examples:
        find(task).check_asked(example, model)


# -- answers


def in_line(task: str, example: Any, said: Any, labels: Sequence[str]) -> str:
    """For people: one line, whatever the answer holds."""
    return find(task).line(example, said, labels)


def described(task: str, example: Any, said: Any, labels: Sequence[str]) -> dict[str, Any]:
    """For programs; what the model does not say is left out."""
    from regard.metrics.figures import jsonable

    row: dict[str, Any] = {} if example.id == str(example.place) else {"id": example.id}
    result: dict[str, Any] = jsonable(row | find(task).described(example, said, labels))
    return result
