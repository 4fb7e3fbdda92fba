"""Who can be asked what: the right way to ask a model directory, and clear words where none is.

What writes text is imported where it is needed: a test of labels starts without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from regard.core.errors import ConfigError, UnknownName
from regard.data.examples import Example
from regard.evaluation.options import PRECISIONS
from regard.evaluation.predict import Predictor, facts_of, headed_task
from regard.formats.directory import Checkpoint, load
from regard.objectives import learns_to_write
from regard.tasks import task as find
from regard.tasks.base import Prediction
from regard.tasks.labeled import TASK
from regard.training.run import pick_device


class ExamplePredictor(Protocol):
    """What answers examples, whichever way its model has learned them."""

    task: str
    labels: list[str]
    length: int  # tokens that it reads at once

    @property
    def cut(self) -> int: ...  # texts that were longer, so far
    @property
    def notes(self) -> list[str]: ...  # what became of long texts, so far
    def __call__(self, examples: Iterable[Example]) -> list[Prediction]: ...
    def stream(self, examples: Iterable[Example]) -> Iterator[Prediction]: ...


def predictor_for(
    loaded: Checkpoint, *, task: str = "", precision: str = "fp32", **decoding: Any
) -> ExamplePredictor:
    """What asks this model: for labels, or as text where it has learned its task so.

    `task` is what a published model that writes text is asked for; others know theirs. `decoding`
    is how text is written, such as num_beams=4; other models refuse it.
    """
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    if writes(loaded, task):
        from regard.evaluation.text_predictor import TextPredictor

        return TextPredictor(loaded, task=task, precision=precision, **decoding)
    predictor = Predictor(loaded, precision)
    if decoding:
        raise ConfigError(
            f"{', '.join(decoding)}: such is asked of models that write text, and "
            f"{loaded.path or 'this one'} answers {predictor.task} with a label or a place"
        )
    return predictor


def writes(loaded: Checkpoint, task: str = "") -> bool:
    """Does it answer in text?"""
    if kept(loaded):
        return learns_to_write(facts_of(loaded)["objective"].get("name", ""))
    return not headed(loaded) and bool(task_of(loaded, task))


def kept(loaded: Checkpoint) -> bool:
    return loaded.path is not None and (loaded.path / TASK).is_file()


def headed(loaded: Checkpoint) -> bool:
    return headed_task(loaded.model) is not None


def task_of(loaded: Checkpoint, task: str = "") -> str:
    """The task a model has learned, or can do as it is; "" for one that only reads on."""
    if kept(loaded) or headed(loaded):
        return str(facts_of(loaded)["task"])
    from regard.evaluation.text_predictor import facts_for

    try:
        return str(facts_for(loaded, task)["task"])
    except ConfigError:
        return ""


def check_task(loaded: Checkpoint, wanted: Collection[str]) -> str:
    """The task of a model, one of those wanted; else who could learn it."""
    for name in wanted:
        find(name)  # refuses what is no task
    name = next(iter(wanted))
    learned = task_of(loaded, name)
    if learned in wanted or (learned and {*find(learned).asked_as} & {*wanted}):
        return learned
    state = f"has learned {learned}" if learned else "has learned no task"
    raise ConfigError(
        f"{loaded.path or 'this model'} {state}, so it cannot {name}; models that can learn it: "
        f"{', '.join(learners(name))} ('regard finetune MODEL --task {name} --data FILE')"
    )


def learners(task: str) -> list[str]:
    """The families that can learn a task."""
    from regard.tasks.as_text import writers

    kind = find(task)
    headed = kind.objective().learners() if kind.has_objective else []
    return [*headed, *(name for name in writers(kind) if name not in headed)]


def opened(run: str) -> Checkpoint:
    """A model directory, on the fastest device here."""
    loaded = load(run)
    loaded.model.to(pick_device(None))
    return loaded


def names_of(first: str, second: str) -> tuple[str, str]:
    """What two runs are called: their directories' names, or their paths if those are the same."""
    short = Path(first).resolve().name, Path(second).resolve().name
    return short if short[0] != short[1] else (first, second)
