"""Multi-label classification: any number of classes for a text, or for two.

Each class has a logit of its own and is learned by binary cross-entropy; a class is given where its
probability reaches a threshold. (transformers calls it multi_label_classification.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from regard.attention.precision import wide
from regard.core.errors import ConfigError, InputError
from regard.data.examples import Example
from regard.data.files import needed
from regard.data.input_formats import Framed, framed
from regard.data.problems import NOWHERE, Place
from regard.data.read_fields import ID, Bad, Record
from regard.metrics.base import Array, Figures, Measured, Weighted, f1, mean, ratio
from regard.metrics.labels import per_class
from regard.objectives.base import Batch, Loss, Sample
from regard.tasks.base import Prediction, Task, check_classes, unseen_classes
from regard.tasks.check import Checker
from regard.tasks.labelled import LabelledObjective
from regard.tasks.labelled_text import FIRST, SECOND
from regard.tasks.multi_row import Several, SeveralOptions

SEPARATORS = re.compile(r"\s*[,;|]\s*")
NOTHING = "none"  # what a model writes where no class applies


@dataclass(frozen=True, slots=True)
class Labels(Example):
    """A text or two with any number of classes; None: they are not known."""

    text: str
    pair: str | None = None
    classes: tuple[str, ...] | None = None
    place: Place = NOWHERE
    id: str = ""

    @property
    def gold(self) -> list[str] | None:
        return None if self.classes is None else sorted(self.classes)

    def without_gold(self) -> Self:
        return replace(self, classes=None)

    def labels(self) -> list[str]:
        return sorted(self.classes or ())

    def stratum(self) -> str:
        return " ".join(self.labels())

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "text", self.text
        if self.pair is not None:
            yield "pair", self.pair

    def record(self) -> Iterator[tuple[str, Any]]:
        yield from self.parts()
        if self.classes is not None:
            yield "labels", self.gold

    def shown(self) -> Any:
        return self.text if self.pair is None else dict(self.parts())


# -- what learns it


@dataclass(frozen=True)
class MultilabelOptions(SeveralOptions):
    threshold: float = 0.5  # the probability from which on a class is given


class Multilabel(Several):
    Options: ClassVar[type] = MultilabelOptions
    name = "multilabel"
    several = False
    varies = False

    def prepare(self) -> None:
        threshold = self.options.threshold
        if isinstance(threshold, bool) or not 0 < threshold < 1:
            raise ConfigError(f"objective.threshold is {threshold!r}; it must be between 0 and 1")
        super().prepare()
        place = {label: i for i, label in enumerate(self.corpus.labels)}
        examples: Any = self.corpus.examples
        self.known = np.array([getattr(e, "classes", None) is not None for e in examples], bool)
        self.gold = np.zeros((len(examples), len(place)), np.float32)
        for row, example in zip(self.gold, examples, strict=True):
            row[[place[label] for label in example.labels() if label in place]] = 1.0
        if self.corpus.split in ("train", "valid") and not self.known.any():
            raise InputError(f"none of the examples of the {self.corpus.split} data has labels")

    def groups(self) -> Iterator[list[Framed]]:
        examples: Any = self.corpus.examples
        first = self.texts([e.text for e in examples])
        second = iter(self.texts([e.pair for e in examples if e.pair is not None]))
        for example, ids in zip(examples, first, strict=True):
            pair = None if example.pair is None else next(second)
            yield [framed(self.frame, self.corpus.special, ids, pair, self.length)]

    def extra(self, index: int) -> Sample:
        return {"gold": self.gold[index], "known": np.array(self.known[index])}

    def heads(self) -> dict[str, int]:
        return {"classify": len(self.corpus.labels)}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float(batch["known"].sum())} | self.language_counts(batch)

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        """The mean over classes of the nats of yes or no, summed over the examples."""
        hidden = self.hidden(model, batch)
        scores, gold = wide(model.read("classify", hidden, batch["real"])), batch["gold"]
        known = batch["known"]
        cross = torch.nn.functional.binary_cross_entropy_with_logits
        each = cross(scores, gold.to(scores.dtype), reduction="none").mean(1)
        sums = {self.name: (each * known).sum()} | self.language_sums(model, hidden, batch)
        given = (scores.sigmoid() >= self.options.threshold) & known[:, None]
        real = (gold > 0) & known[:, None]
        hits, both = (given & real).sum(), given.sum() + real.sum()
        exact = ((given == real).all(1) & known).sum()
        return Loss(
            sums, self.counted(batch), {"f1": (2 * hits, both), "exact": (exact, known.sum())}
        )

    def measure(self, totals: Loss) -> dict[str, float]:
        (hits, both), (exact, of) = totals.seen["f1"], totals.seen["exact"]
        return {
            "micro_f1": float(hits) / max(float(both), 1),
            "subset_accuracy": float(exact) / max(float(of), 1),
            "loss": float(totals.sums[self.name]) / max(totals.counts[self.name], 1e-9),
        }

    def better(self, new: float, old: float) -> bool:
        return new > old

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        scores: Tensor = wide(model.read("classify", self.hidden(model, batch), batch["real"]))
        shares: list[Any] = scores.sigmoid().tolist()
        return shares

    def merge(self, found: list[Any]) -> list[Prediction]:
        """The probability of an answer is that of all its classes and of no other."""
        labels, least = self.corpus.labels, self.options.threshold
        made = []
        for row in found:
            given = [label for label, share in zip(labels, row, strict=True) if share >= least]
            sure = math.prod(share if share >= least else 1 - share for share in row)
            made.append(Prediction(sorted(given), sure, dict(zip(labels, row, strict=True))))
        return made

    def hf_config(self) -> dict[str, Any]:
        return super().hf_config() | {"problem_type": "multi_label_classification"}


# -- what measures it


class LabelSets(Measured):
    """F1 over all pairs of an example and a class (micro), over classes (macro), and the share of
    examples with exactly the right classes.
    """

    libraries = ("sklearn.metrics",)

    def __init__(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
        super().__init__(gold, predicted)
        self.names = sorted({label for side in (gold, predicted) for row in side for label in row})
        self.true, self.claimed = self.table(gold), self.table(predicted)

    def table(self, rows: Sequence[Sequence[str]]) -> np.ndarray:
        place = {name: i for i, name in enumerate(self.names)}
        made = np.zeros((len(rows), len(place)), np.int64)
        for line, row in zip(made, rows, strict=True):
            line[[place[label] for label in row]] = 1
        return made

    @cached_property
    def figures(self) -> Figures:
        metrics = needed("sklearn.metrics", "labels are measured", "tasks")
        if not self.names:  # nobody says anything, and nobody should
            return {"micro_f1": 0.0, "macro_f1": 0.0, "subset_accuracy": 1.0}
        pair = self.true, self.claimed
        found = {
            f"{average}_f1": float(metrics.f1_score(*pair, average=average, zero_division=0.0))
            for average in ("micro", "macro")
        }
        return found | {"subset_accuracy": float(metrics.accuracy_score(*pair))}

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        hits = (self.true & self.claimed).astype(np.float64)
        sides = [hits, self.claimed.astype(np.float64), self.true.astype(np.float64)]

        def micro(weights: Array) -> Array:
            return f1(*((weights @ side).sum(1) for side in sides))

        def macro(weights: Array) -> Array:
            each = f1(*(weights @ side for side in sides))
            return each.mean(1) if self.names else np.zeros(len(weights))

        exact = mean((self.true == self.claimed).all(1))
        return {"micro_f1": micro, "macro_f1": macro, "subset_accuracy": exact}

    @cached_property
    def each(self) -> list[float]:
        """F1 of the classes of each example; 1 where there is none and none was given."""
        hits, both = (self.true & self.claimed).sum(1), (self.true + self.claimed).sum(1)
        return [float(x) for x in ratio(2.0 * hits, both.astype(np.float64), 1.0)]

    @cached_property
    def details(self) -> dict[str, Any]:
        metrics = needed("sklearn.metrics", "labels are measured", "tasks")
        if not self.names:
            return {}
        scores = metrics.precision_recall_fscore_support(
            self.true, self.claimed, average=None, zero_division=0.0
        )
        return {"classes": per_class(self.names, *scores, self.claimed.sum(0))}


# -- the task


class MultilabelTask(Task):
    name = "multilabel"
    example = Labels
    roles: ClassVar[Mapping[str, str]] = {
        "text": f"text sentence review content document tweet comment body {FIRST}",
        "pair": SECOND.replace(" sentence ", " "),
        "labels": "labels label classes categories topics tags emotions",
        "id": ID,
    }
    needed = ("text",)
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {1: ("text",), 2: ("text", "labels")}
    answers = ("labels",)
    heads = ("classify",)
    problem_type = "multi_label_classification"
    names_labels = True
    asked_as = ("classify",)
    prefix = "multilabel "
    void = "not all labels of the model; others count as wrong"
    record_texts = ("text", "pair")

    def parse(self, record: Record) -> Example:
        text = record.text("text")
        pair = record.text("pair") if record.has("pair") else None
        classes = self.classes(record) if record.has("labels") else None
        return Labels(text, pair, classes, record.place, record.id)

    def classes(self, record: Record) -> tuple[str, ...]:
        """A list, or a text with commas, semicolons or bars between them; it may be empty."""
        value = record.get("labels")
        if value is None:
            raise Bad("missing-label", f"no labels in {record.field('labels')!r}")
        if isinstance(value, str):
            value = [part for part in SEPARATORS.split(value.strip()) if part]
        if not isinstance(value, list | tuple):
            kind = type(value).__name__
            raise Bad("wrong-type", f"the labels are {kind}, not a list or a text")
        for label in value:
            if isinstance(label, list | dict) or not str(label).strip():
                raise Bad("wrong-type", f"{label!r} among the labels is not a name")
        names = [str(label).strip() for label in value]
        if len(set(names)) < len(names):
            record.warn("contradiction", f"a label is named twice: {', '.join(names)}")
        return tuple(dict.fromkeys(names))

    def labels_in(self, examples: Sequence[Example]) -> list[str]:
        labels = sorted({label for example in examples for label in example.labels()})
        if not labels:
            raise InputError("the training data has no label at all, so nothing can be learned")
        return labels

    def check_labels(self, examples: Sequence[Example], known: Sequence[str], path: str) -> None:
        check_classes(examples, known, path)

    def check_example(self, checker: Checker, example: Example) -> None:
        checker.check_known(example)

    def objective(self) -> type[LabelledObjective]:
        return Multilabel

    def metric(self, labels: Sequence[str]) -> type[Measured]:
        return LabelSets

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        known = {*labels}
        values = [list(one.value) for one in predictions]
        return values, sum(not known.issuperset(row) for row in values) if known else 0

    def unseen(self, examples: Sequence[Example], known: Sequence[str]) -> dict[str, int]:
        return unseen_classes(examples, known)

    # -- as text

    def source(self, example: Any) -> str:
        return " ".join(f"{name}: {text}" for name, text in example.parts())

    def target(self, example: Any) -> str:
        if example.classes is None:
            return super().target(example)
        return ", ".join(example.gold) or NOTHING

    def closed(self, examples: Sequence[Example], labels: Sequence[str]) -> list[str]:
        for label in labels:
            if SEPARATORS.search(label) or label == NOTHING:
                raise InputError(f"the label {label!r} cannot be written in a list; rename it")
        return [NOTHING]

    def value(self, example: Any, word: str | None, text: str, labels: Sequence[str]) -> Any:
        return [] if word == NOTHING else sorted({p for p in SEPARATORS.split(text) if p})

    def is_sure(self, labels: Sequence[str]) -> bool:
        return True

    # -- on the command line

    def from_texts(self, texts: list[str], place: Place) -> dict[str, Any]:
        return {"text": texts[0]} if len(texts) == 1 else super().from_texts(texts, place)

    def line(self, example: Any, prediction: Prediction, labels: Sequence[str]) -> str:
        shares = prediction.scores or {}
        named = [f"{x} {shares[x]:.4f}" if x in shares else x for x in prediction.value]
        return "\t".join(named) or "(none)"


TASK = MultilabelTask()
