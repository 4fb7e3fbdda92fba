"""Predicts the answers to examples, in batches of similar length and in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Lock
from typing import Any

from regard.core.errors import ConfigError, FormatError
from regard.core.files import check_kinds, naming
from regard.data.batching import ROWS
from regard.data.examples import Example
from regard.formats.directory import Checkpoint
from regard.formats.sentence import read_pipeline, unit
from regard.objectives import objective as find
from regard.tasks import TASKS, objective_of
from regard.tasks import task as find_task
from regard.tasks.base import Prediction, Task
from regard.tasks.corpus import TaskCorpus
from regard.tasks.data import learners
from regard.tasks.inference import portions, predict_rows
from regard.tasks.labeled import TASK, LabeledObjective, task_facts
from regard.tasks.task_tokens import marked
from regard.training.data import options_of

CHUNK = 1024  # the number of examples that are encoded together
LENGTH = 512  # the length of a row, if a model has no maximum


class Predictor:
    """Predicts with a model that was fine-tuned for a task, which its directory names."""

    def __init__(self, loaded: Checkpoint, precision: str = "fp32", length: int = 0) -> None:
        self.loaded, self.model, self.precision = loaded, loaded.model, precision
        if loaded.tokenizer is None:
            raise FormatError(
                f"{loaded.path} has no tokenizer, so it cannot read text; add its tokenizer.json"
            )
        facts = facts_of(loaded)
        self.task: str = facts["task"]
        self.labels: list[str] = facts["labels"]
        self.length: int = length or facts["length"]
        options = dict(facts["objective"])
        check_kinds(
            options, {"name": str}, f"{loaded.path}/{TASK}: objective", error=FormatError,
            advice="restore it",
        )  # fmt: skip
        family, marks = loaded.model.family.name, bool(options.get("marks", True))
        name = str(loaded.path or "the model")
        self.tokenizer = marked(loaded.tokenizer, family, self.task, marks, name)
        self.kind = find(options.pop("name"), learners())
        self.options = options_of(self.kind, options)
        self.ready, self.opening = False, Lock()
        self.counts: Counter[str] = Counter()  # of examples cut or read in windows so far
        self.last: LabeledObjective | None = None

    def __call__(self, examples: Iterable[Example]) -> list[Prediction]:
        return list(self.stream(examples))

    def stream(self, examples: Iterable[Example]) -> Iterator[Prediction]:
        """Yields predictions in order. Meanwhile a thread encodes the next examples."""
        with ThreadPoolExecutor(1, "regard-encode") as worker:
            waiting = None
            for part in chain(portions(examples, CHUNK), [None]):
                begun = worker.submit(self.encode, part) if part is not None else None
                if waiting is not None:
                    yield from self.answers(waiting.result())
                waiting = begun

    def encode(self, examples: Sequence[Example]) -> LabeledObjective:
        corpus = TaskCorpus(
            self.task, examples, self.tokenizer, self.labels, path=str(self.loaded.path)
        )
        objective = self.kind(
            corpus,  # type: ignore[arg-type]
            self.options,
            seq_len=self.length,
            batch_size=ROWS,
            seed=0,
            learning=False,
        )
        assert isinstance(objective, LabeledObjective)
        self.last = objective
        self.counts += objective.cuts()
        return objective

    @property
    def cut(self) -> int:
        return self.counts["cut"]

    @property
    def notes(self) -> list[str]:
        """Returns notes on the long texts read so far."""
        return [] if self.last is None else self.last.cut_notes(self.counts)

    def answers(self, objective: LabeledObjective) -> list[Prediction]:
        with self.opening:  # several threads may ask at once; one completes the model
            if not self.ready:
                self.model = objective.opened(self.model, self.loaded.path)
                objective.check(self.model)
                self.ready = True
        return objective.merge(predict_rows(objective, self.model, self.precision))


def facts_of(loaded: Checkpoint) -> dict[str, Any]:
    """Returns what a model was trained for: its task.json, or facts from a published config."""
    if loaded.path is not None and (facts := task_facts(loaded.path)):
        with naming(loaded.path / TASK):
            find_task(facts["task"])
        return facts
    task = headed_task(loaded.model, loaded.source)
    if task is None and (vectors := vector_facts(loaded)):
        return vectors
    if task is None:
        able = [name for name in TASKS if objective_of(name)]
        raise ConfigError(
            f"{loaded.path or 'this model'} was not fine-tuned for a task; fine-tune it first "
            f"('regard finetune'), for one of {', '.join(able)}"
        )
    names = loaded.source.get("id2label") or {}
    number = loaded.source.get("num_labels") or len(names)
    if number != len(names):  # transformers forgets the names in this case, too
        names = {i: f"LABEL_{i}" for i in range(number)}
    labels = [str(names[key]) for key in sorted(names, key=int)] if task.names_labels else []
    name, card = task.name, loaded.model.family
    if task.scores_as and len(labels) == 1:
        name, labels = task.scores_as, []
    bare = {"marks": False} if card.task_tokens and task.between_marks else {}  # as published
    return {
        "task": name,
        "objective": {"name": task.objective().name, "family": card.name, **bare},
        "labels": labels,
        "length": getattr(loaded.config, "context", None) or LENGTH,
    }


def vector_facts(loaded: Checkpoint) -> dict[str, Any] | None:
    """Returns the facts of a directory of sentence-transformers, whose task is `embed`; None: it is
    another one, or it does more with a text or a vector than the task does."""
    pipeline = read_pipeline(loaded.path)
    if pipeline is None or pipeline.lower or pipeline.prompt or set(pipeline.steps) - {unit}:
        return None
    # scores of pairs are compared by rank, so they may have any range
    options = {"loss": "contrastive", "pooling": pipeline.pooling}
    context = getattr(loaded.config, "context", None) or LENGTH
    return {
        "task": "embed",
        "objective": {"name": "embed", "family": loaded.model.family.name, **options},
        "labels": [],
        "length": min(pipeline.length or context, context),
    }


def headed_task(model: Any, source: Mapping[str, Any] | None = None) -> Task | None:
    """Returns the task of the first head. If several tasks share it, `problem_type` decides."""
    kind = (source or {}).get("problem_type")
    tasks = [task for task in map(find_task, TASKS) if task.problem_type in ("", kind)]
    for head in getattr(model, "heads", {}):
        able = [task for task in tasks if head in task.heads]
        if able:
            return max(able, key=lambda task: task.problem_type == kind)
    return None
