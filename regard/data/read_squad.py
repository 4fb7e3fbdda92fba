"""SQuAD's own layout, 1.1 and 2.0: articles, paragraphs, questions. The file is read as one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from regard.data.files import TextFile
from regard.data.problems import Place
from regard.data.records import Record, as_record, json_array, json_lines


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


def squad(file: TextFile) -> Iterator[Record]:
    """A record a question: id, question, context, answers and, in 2.0, is_impossible.

    A list of questions, or questions line by line, are read as such.
    """
    text = file.whole()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data"):
            yield from json_lines(file)
            return
        message = f"no JSON: {error}; nothing of the file was read"
        file.wrong(getattr(error, "lineno", 1), "malformed-record", message)
        return
    if isinstance(content, list):
        yield from json_array(file)
    elif isinstance(content, dict) and "data" in content:
        if "\\u" in text:
            content = file.mended(content, 1)
        yield from questions(content, file, Lines(text))
    else:
        yield from as_record(file, 1, content, "\\u" in text)


def questions(content: dict[str, Any], file: TextFile, lines: Lines) -> Iterator[Record]:
    number = 0
    for article in entries(content, "data", 1, file):
        for paragraph in entries(article, "paragraphs", lines.line, file):
            context = paragraph.get("context")
            for question in entries(paragraph, "qas", lines.line, file):
                number += 1
                name = question.get("id")
                line = lines.find(name if isinstance(name, str) else question.get("question"))
                same = {"id": f"{file.name}#{number}", "context": context}
                yield Record(Place(file.name, line), same | question)


def entries(
    value: dict[str, Any], field: str, line: int, file: TextFile
) -> Iterator[dict[str, Any]]:
    """The objects of a list in a field."""
    objects = value.get(field)
    if not isinstance(objects, list):
        there = ", ".join(map(repr, value)) or "none"
        file.wrong(line, "missing-field", f"no list {field!r}; there are: {there}")
        return
    for each in objects:
        if isinstance(each, dict):
            yield each
        else:
            kind = type(each).__name__
            file.wrong(line, "malformed-record", f"{field!r} holds {kind} among its objects")
