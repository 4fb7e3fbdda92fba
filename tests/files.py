"""Small files written on the spot, and what is read from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.data.examples import Example
from regard.data.problems import Problems
from regard.data.readers import ExampleReader, ReaderOptions
from regard.tasks import task as task_named

Write = Callable[[str, str | bytes], Path]


def seen(path: Path | Sequence[Path], task: str, **options: Any) -> tuple[list[Any], list[str]]:
    """The examples, and the problems as `severity kind line`."""
    problems = Problems(keep=None)
    examples: list[Example] = list(
        ExampleReader(path, task_named(task), ReaderOptions(**options), problems)
    )
    return examples, [f"{p.severity} {p.kind} {p.place.line}" for p in problems.kept]


def messages(path: Path | Sequence[Path], task: str, **options: Any) -> str:
    """What is said of them."""
    problems = Problems(keep=None)
    list(ExampleReader(path, task_named(task), ReaderOptions(**options), problems))
    return "\n".join(str(problem) for problem in problems.kept)


def rows(*values: Any) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
