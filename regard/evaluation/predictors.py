"""Finds the right predictor for a model directory, and refuses with a clear message if there is
none.

The code that generates text is imported only when it is needed: a test of labels starts without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from regard.core.errors import ConfigError, UnknownName
from regard.data.examples import Example
from regard.evaluation.options import PRECISIONS
from regard.evaluation.predict import Predictor, facts_of, headed_task, vector_facts
from regard.formats.directory import Checkpoint, load
from regard.objectives import learns_to_write
from regard.tasks import task as find
from regard.tasks.base import Prediction
from regard.tasks.labeled import TASK
from regard.training.run import pick_device


class ExamplePredictor(Protocol):
    """Predicts the answers to examples, with a head or as text."""

    task: str
    labels: list[str]
    length: int  # the number of tokens that it reads at once

    @property
    def cut(self) -> int: ...  # the number of longer texts so far
    @property
    def notes(self) -> list[str]: ...  # on long texts so far
    def __call__(self, examples: Iterable[Example]) -> list[Prediction]: ...
    def stream(self, examples: Iterable[Example]) -> Iterator[Prediction]: ...


def predictor_for(
    loaded: Checkpoint, *, task: str = "", precision: str = "fp32", **decoding: Any
) -> ExamplePredictor:
    """Returns the predictor of a model: with its head, or as text if the task was learned as text.

    `task` names the task of a published model that writes text; other models know their task.
    `decoding` holds options of generation, such as num_beams=4; models with a head refuse them.
    """
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    if writes(loaded, task):
        from regard.evaluation.text_predictor import TextPredictor

        return TextPredictor(loaded, task=task, precision=precision, **decoding)
    predictor = Predictor(loaded, precision)
    if decoding:
        raise ConfigError(
            f"{', '.join(decoding)} is for models that write text, and "
            f"{loaded.path or 'this model'} answers {predictor.task} with a head; leave it out"
        )
    return predictor


def writes(loaded: Checkpoint, task: str = "") -> bool:
    """Returns whether the model answers in text."""
    if has_task_file(loaded):
        return learns_to_write(facts_of(loaded)["objective"].get("name", ""))
    return not has_task_head(loaded) and bool(task_of(loaded, task))


def has_task_file(loaded: Checkpoint) -> bool:
    return loaded.path is not None and (loaded.path / TASK).is_file()


def has_task_head(loaded: Checkpoint) -> bool:
    return headed_task(loaded.model) is not None or vector_facts(loaded) is not None


def task_of(loaded: Checkpoint, task: str = "") -> str:
    """Returns the task that a model was trained for or can do; "" for a pure language model."""
    if has_task_file(loaded) or has_task_head(loaded):
        return str(facts_of(loaded)["task"])
    from regard.evaluation.text_predictor import facts_for

    try:
        return str(facts_for(loaded, task)["task"])
    except ConfigError:
        return ""


def check_task(loaded: Checkpoint, wanted: Collection[str]) -> str:
    """Returns the task of a model, or refuses it if it is not one of `wanted`."""
    for name in wanted:
        find(name)  # refuses an unknown task
    name = next(iter(wanted))
    learned = task_of(loaded, name)
    if learned in wanted or (learned and {*find(learned).asked_as} & {*wanted}):
        return learned
    state = f"was trained for {learned}" if learned else "has learned no task"
    raise ConfigError(
        f"{loaded.path or 'this model'} {state}, so it cannot {name}; models that can learn it: "
        f"{', '.join(learners(name))} ('regard finetune MODEL --task {name} --data FILE')"
    )


def learners(task: str) -> list[str]:
    """Returns the families that can learn a task."""
    from regard.tasks.as_text import writers

    kind = find(task)
    with_head = kind.objective().learners() if kind.has_objective else []
    return [*with_head, *(name for name in writers(kind) if name not in with_head)]


def load_to_device(run: str) -> Checkpoint:
    """Loads a model directory onto the fastest device of this machine."""
    loaded = load(run)
    loaded.model.to(pick_device(None))
    return loaded


def names_of(first: str, second: str) -> tuple[str, str]:
    """Returns the names of two runs: their directory names, or their paths if these are equal."""
    short = Path(first).resolve().name, Path(second).resolve().name
    return short if short[0] != short[1] else (first, second)
