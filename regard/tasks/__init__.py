"""The registry of tasks. TASKS is the only one: everything about a task stands in its own file,
which is imported when the task is asked for. Importing this package imports no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.core.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Collection

    from regard.data.examples import Example
    from regard.data.problems import Problems
    from regard.data.readers import Given
    from regard.tasks.base import Task
    from regard.tasks.labeled import LabeledObjective

TASKS = {  # name: the module whose last line defines TASK
    "classify": "classify",
    "entail": "entail",
    "similar": "similar",
    "tag": "tag",
    "answer": "answer",
    "choose": "choose",
    "translate": "translate",
    "summarize": "summarize",
    "converse": "converse",
    "prefer": "prefer",
    "multilabel": "multilabel",
    "link": "link",
    "embed": "embed",
    "rerank": "rerank",
}


def task(name: str) -> Task:
    if name not in TASKS:
        raise UnknownName("task", name, TASKS)
    task_object: Task = import_module(f"regard.tasks.{TASKS[name]}").TASK
    return task_object


def objectives() -> dict[str, type[LabeledObjective]]:
    """Returns the objectives that train a head, by objective name. Several tasks may share one."""
    classes = [task(name).objective() for name in TASKS if task(name).has_objective]
    return {kind.name: kind for kind in classes}


def objective_of(name: str) -> str:
    """Returns the name of the objective that fine-tunes a head for the task, or ""."""
    known = name in TASKS and task(name).has_objective and task(name).finetuned
    return task(name).objective().name if known else ""


def read(
    data: Given,
    name: str,
    *,
    skip: Collection[str] = (),
    problems: Problems | None = None,
    **options: Any,
) -> list[Example]:
    """Reads all examples for a task: `regard.data.readers.read` with the task given by name."""
    from regard.data import readers

    return readers.read(data, task(name), skip=skip, problems=problems, **options)
