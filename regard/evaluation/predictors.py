"""Who can be asked what: the right way to ask a model directory, and clear words where none is.

What writes text is imported where it is needed: a test of labels starts without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from regard.core.errors import ConfigError, UnknownName
from regard.data.examples import TASKS, Example
from regard.evaluation.predict import HEADS, Predictor, facts_of
from regard.formats.directory import Loaded, load
from regard.objectives import objective
from regard.tasks.labelled import TASK, LabelledObjective, Prediction
from regard.tasks.paper_defaults import OBJECTIVES, TEXT
from regard.training.run import pick_device

ALIKE = ("classify", "entail")  # one thing under two names
PRECISIONS = ("fp32", "bf16")


class Asked(Protocol):
    """What answers examples, whichever way its model has learned them."""

    task: str
    labels: list[str]
    length: int  # tokens that it reads at once
    cut: int  # texts that were longer, so far

    @property
    def notes(self) -> list[str]: ...  # what became of long texts, so far
    def __call__(self, examples: Iterable[Example]) -> list[Prediction]: ...
    def stream(self, examples: Iterable[Example]) -> Iterator[Prediction]: ...


class LabelPredictor(Predictor):
    """Counts what it cuts, and what it reads in windows."""

    cut = long = windows = read = 0
    widest = 0  # tokens of a question

    def encode(self, examples: Sequence[Example]) -> LabelledObjective:
        made: Any = super().encode(examples)
        self.cut += made.cut
        self.read += len(examples)
        if made.name == "answer":
            self.long += made.told["long"]
            self.windows += made.told["windows"]
            self.widest = made.layout.question
        elif made.name == "tag":
            self.long += made.long
        return cast(LabelledObjective, made)

    @property
    def notes(self) -> list[str]:
        """As the objective says it of the data that it learns from, here of all examples."""
        asked, made = self.task == "answer", []
        of = f"{self.long:,} of {self.read:,}"
        if self.long and asked:
            made.append(
                f"{of} questions do not fit {self.length:,} tokens with their passage, which is "
                f"read in {self.windows:,} windows"
            )
        elif self.long:
            made.append(
                f"{of} sentences have more than {self.length:,} tokens and are read in several "
                "windows"
            )
        if self.cut:
            what, most = ("questions", self.widest) if asked else ("texts", self.length)
            made.append(f"{self.cut:,} {what} have more than {most:,} tokens and were cut")
        return made


def predictor_for(
    loaded: Loaded, *, task: str = "", precision: str = "fp32", **decoding: Any
) -> Asked:
    """What asks this model: for labels, or as text where it has learned its task so.

    `task` is what a published model that writes text is asked for; others know theirs. `decoding`
    is how text is written, such as beams=4; other models refuse it.
    """
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    if writes(loaded, task):
        from regard.tasks.as_text import TextPredictor

        return TextPredictor(loaded, task=task, precision=precision, **decoding)
    made = LabelPredictor(loaded, precision)
    if decoding:
        raise ConfigError(
            f"{', '.join(decoding)}: such is asked of models that write text, and "
            f"{loaded.path or 'this one'} answers {made.task} with a label or a place"
        )
    return made


def writes(loaded: Loaded, task: str = "") -> bool:
    """Does it answer in text?"""
    if kept(loaded):
        return bool(facts_of(loaded)["objective"].get("name") == "pairs")
    return not headed(loaded) and bool(task_of(loaded, task))


def kept(loaded: Loaded) -> bool:
    return loaded.path is not None and (loaded.path / TASK).is_file()


def headed(loaded: Loaded) -> bool:
    return any(name in HEADS for name in getattr(loaded.model, "heads", {}))


def task_of(loaded: Loaded, task: str = "") -> str:
    """The task a model has learned, or can do as it is; "" for one that only reads on."""
    if kept(loaded) or headed(loaded):
        return str(facts_of(loaded)["task"])
    from regard.tasks.as_text import facts_for

    try:
        return str(facts_for(loaded, task)["task"])
    except ConfigError:
        return ""


def check_task(loaded: Loaded, wanted: Collection[str]) -> str:
    """The task of a model, one of those wanted; else who could learn it."""
    for name in wanted:
        if name not in TASKS:
            raise UnknownName("task", name, TASKS)
    name = next(iter(wanted))
    found = task_of(loaded, name)
    if found in wanted or (found in ALIKE and not set(ALIKE).isdisjoint(wanted)):
        return found
    state = f"has learned {found}" if found else "has learned no task"
    raise ConfigError(
        f"{loaded.path or 'this model'} {state}, so it cannot {name}; models that can learn it: "
        f"{', '.join(learners(name))} ('regard finetune MODEL --task {name} --data FILE')"
    )


def learners(task: str) -> list[str]:
    """The families that can learn a task."""
    from regard.tasks.as_text import READERS, writers

    if task in TEXT:
        return [*writers(), *READERS]
    found: Any = objective(OBJECTIVES[task])
    return [*found.FAMILIES, *(writers() if task != "tag" else ())]


def opened(run: str) -> Loaded:
    """A model directory, on the fastest device here."""
    loaded = load(run)
    loaded.model.to(pick_device("auto"))
    return loaded


def names_of(first: str, second: str) -> tuple[str, str]:
    """What two runs are called: their directories' names, or their paths if those are the same."""
    short = Path(first).resolve().name, Path(second).resolve().name
    return short if short[0] != short[1] else (first, second)
