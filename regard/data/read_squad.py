"""SQuAD's own layout, 1.1 and 2.0: articles, paragraphs, questions. The file is read as one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.examples import Place, Problems
from regard.data.read_lines import whole
from regard.data.read_records import Record, as_record, json_array, json_lines, mended


class Lines:
    """The line of a text in a file, for texts asked for in their order."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1

    def find(self, value: Any) -> int:
        """The line where it stands next; the line before if it is written in another way."""
        for written in (json.dumps(value, ensure_ascii=False), json.dumps(value)):
            found = self.text.find(written, self.at)
            if found >= 0:
                self.line += self.text.count("\n", self.at, found)
                self.at = found + 1
                break
        return self.line


def squad(path: Path, name: str, problems: Problems) -> Iterator[Record]:
    """A record a question: id, question, context, answers and, in 2.0, is_impossible.

    A list of questions, or questions line by line, are read as such.
    """
    text = whole(path, name, problems)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data"):
            yield from json_lines(path, name, problems)
            return
        place = Place(name, getattr(error, "lineno", 1))
        problems.add(place, "malformed-record", f"no JSON: {error}; nothing of the file was read")
        return
    if isinstance(content, list):
        yield from json_array(path, name, problems)
    elif isinstance(content, dict) and "data" in content:
        if "\\u" in text:
            content = mended(content, Place(name, 1), problems)
        yield from questions(content, name, Lines(text), problems)
    else:
        yield from as_record(content, Place(name, 1), problems, "\\u" in text)


def questions(
    content: dict[str, Any], name: str, lines: Lines, problems: Problems
) -> Iterator[Record]:
    number = 0
    for article in entries(content, "data", Place(name, 1), problems):
        for paragraph in entries(article, "paragraphs", Place(name, lines.line), problems):
            context = paragraph.get("context")
            for question in entries(paragraph, "qas", Place(name, lines.line), problems):
                number += 1
                given = question.get("id")
                line = lines.find(given if isinstance(given, str) else question.get("question"))
                same = {"id": f"{name}#{number}", "context": context}
                yield Record(Place(name, line), same | question)


def entries(
    value: dict[str, Any], field: str, place: Place, problems: Problems
) -> Iterator[dict[str, Any]]:
    """The objects of a list in a field."""
    found = value.get(field)
    if not isinstance(found, list):
        there = ", ".join(map(repr, value)) or "none"
        problems.add(place, "missing-field", f"no list {field!r}; there are: {there}")
        return
    for each in found:
        if isinstance(each, dict):
            yield each
        else:
            kind = type(each).__name__
            problems.add(place, "malformed-record", f"{field!r} holds {kind} among its objects")
