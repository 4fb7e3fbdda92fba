"""A model's answers to examples: in batches of similar length, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.core.errors import ConfigError, FormatError
from regard.data.examples import Example
from regard.data.labelled import Examples
from regard.evaluation.parallel_inference import side_by_side
from regard.formats.directory import Loaded
from regard.objectives import LABELLED
from regard.objectives import objective as find
from regard.tasks.labelled import TASK, LabelledObjective, Prediction
from regard.tasks.task_tokens import MARKED, marked
from regard.training.build import options_of
from regard.training.train_module import autocast, evaluating, moved

CHUNK = 1024  # examples that are encoded together
TOKENS = 8192  # of a batch, padding included
FEW = 2048  # of a batch on a CPU, where what is still in its caches is fast
ROWS = 256  # of a batch
LENGTH = 512  # tokens of a row, where a model has no last position
HEADS = {"classify": "classify", "tag": "tag", "answer": "answer", "span": "answer",
         "choose": "choose"}  # fmt: skip


class Predictor:
    """Asks a model that has learned a task; its directory says which, and how."""

    def __init__(self, loaded: Loaded, precision: str = "fp32", length: int = 0) -> None:
        self.loaded, self.model, self.precision = loaded, loaded.model, precision
        if loaded.tokenizer is None:
            raise FormatError(f"{loaded.path} has no tokenizer, so no text can be given to it")
        facts = facts_of(loaded)
        self.task: str = facts["task"]
        self.labels: list[str] = facts["labels"]
        self.length: int = length or facts["length"]
        options = dict(facts["objective"])
        family, marks = loaded.model.family.name, bool(options.get("marks", True))
        name = str(loaded.path or "the model")
        self.tokenizer = marked(loaded.tokenizer, family, self.task, marks, name)
        self.kind = find(str(options.pop("name")))
        self.options = options_of(self.kind, options)
        self.ready = False

    def __call__(self, examples: Iterable[Example]) -> list[Prediction]:
        return list(self.stream(examples))

    def stream(self, examples: Iterable[Example]) -> Iterator[Prediction]:
        """Answers in the order of the examples; the next ones are encoded meanwhile."""
        with ThreadPoolExecutor(1, "regard-encode") as worker:
            waiting = None
            for part in chain(portions(examples, CHUNK), [None]):
                begun = worker.submit(self.encode, part) if part is not None else None
                if waiting is not None:
                    yield from self.answers(waiting.result())
                waiting = begun

    def encode(self, examples: Sequence[Example]) -> LabelledObjective:
        held = Examples(
            self.task, examples, self.tokenizer, self.labels, path=str(self.loaded.path)
        )
        made = self.kind(
            held,  # type: ignore[arg-type]
            self.options,
            length=self.length,
            batch=ROWS,
            seed=0,
            learning=False,
        )
        assert isinstance(made, LabelledObjective)
        return made

    def answers(self, objective: LabelledObjective) -> list[Prediction]:
        if not self.ready:
            self.model = objective.opened(self.model, self.loaded.path)
            objective.check(self.model)
            self.ready = True
        return objective.merge(said_of(objective, self.model, self.precision))


def said_of(objective: LabelledObjective, model: Any, precision: str = "fp32") -> list[Any]:
    """What a model says of each row of an objective."""
    like = next(model.parameters())

    def ask(places: list[int]) -> list[Any]:
        batch = objective.collate([objective.sample(0, place) for place in places])
        with torch.no_grad(), autocast(like.device, precision):
            return objective.predict(model, moved(batch, like.device, like.dtype))

    found: list[Any] = [None] * len(objective)
    batches = list(by_tokens(objective.rows.sizes, fitting(like.device)))
    with evaluating(model):
        for places, said in zip(batches, side_by_side(ask, batches, like.device), strict=True):
            for place, one in zip(places, said, strict=True):
                found[place] = one
    return found


def fitting(device: torch.device) -> int:
    """Tokens of a batch with which a device is fast."""
    return FEW if device.type == "cpu" else TOKENS


def portions(examples: Iterable[Example], size: int) -> Iterator[list[Example]]:
    rest = iter(examples)
    while part := list(islice(rest, size)):
        yield part


def by_tokens(sizes: np.ndarray, tokens: int = TOKENS) -> Iterator[list[int]]:
    """Rows of similar size, as many as fit a batch."""
    batch: list[int] = []
    for place in np.argsort(-sizes, kind="stable").tolist():  # the widest first: it sets the memory
        if batch and (len(batch) == ROWS or (len(batch) + 1) * sizes[batch[0]] > tokens):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def facts_of(loaded: Loaded) -> dict[str, Any]:
    """What a model has learned: task.json, or what the configuration of others says."""
    file = Path(loaded.path or "") / TASK
    if loaded.path is not None and file.is_file():
        try:
            facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            known = {"task", "objective", "labels", "length"} <= set(facts)
        except (ValueError, TypeError) as error:
            raise FormatError(f"{file} is not valid JSON: {error}") from None
        if not known:
            raise FormatError(f"{file} must name task, objective, labels and length")
        return facts
    held = [HEADS[name] for name in getattr(loaded.model, "heads", {}) if name in HEADS]
    if not held:
        raise ConfigError(
            f"{loaded.path or 'this model'} has learned no task that can be asked; fine-tune it "
            f"first ('regard finetune'), for one of {', '.join(LABELLED)}"
        )
    task = held[0]
    given = loaded.source.get("id2label") or {}
    labels = (
        [str(given[key]) for key in sorted(given, key=int)] if task in ("classify", "tag") else []
    )
    if task == "classify" and len(labels) == 1:
        task, labels = "similar", []
    family = loaded.model.family.name
    bare = {"marks": False} if family == "gpt" and task in MARKED else {}  # as others train it
    return {
        "task": task,
        "objective": {"name": "classify" if task == "similar" else task, "family": family, **bare},
        "labels": labels,
        "length": getattr(loaded.config, "context", None) or LENGTH,
    }
