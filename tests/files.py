"""Small files written on the spot, and what is read from them."""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
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


def of_all_workers(base: Path) -> Path:
    """The directory of a test session that all of its workers see; `base` is a worker's own."""
    return base.parent if base.name.startswith("popen-") else base


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """One worker after the other."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def script(name: str) -> Any:
    """One of scripts/ as a module."""
    file = Path(__file__).parent.parent / "scripts" / f"{name}.py"
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # a dataclass looks up its module
    spec.loader.exec_module(module)
    return module
