"""The task `multilabel`: any number of classes for one text, or for two.

Each class has its own logit and is learned with binary cross-entropy; a class is predicted if its
probability reaches a threshold. (transformers calls it multi_label_classification.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError, InputError
from regard.data.examples import Example, LabeledExample
from regard.data.files import needed
from regard.data.read_fields import ID, BadRecord, FieldRecord
from regard.metrics.base import Array, Figures, TaskMetric, Weighted, f1, mean, ratio
from regard.metrics.labels import per_class
from regard.objectives.base import Batch, HeadAnswers, Loss, Sample, yes_or_no
from regard.tasks.base import Prediction
from regard.tasks.classify import PAIR, TEXT, TextRows, TextTask
from regard.tasks.multi_row import MultiRowOptions

SEPARATORS = re.compile(r"\s*[,;|]\s*")
NOTHING = "none"  # the text that a model writes if no class applies


@dataclass(frozen=True, slots=True)
class MultiLabelExample(LabeledExample):
    """One text or two with any number of classes. The label is None if they are not known."""

    label: tuple[str, ...] | None = None  # type: ignore[assignment]

    @property
    def gold(self) -> list[str] | None:
        return None if self.label is None else sorted(self.label)

    def labels(self) -> list[str]:
        return self.gold or []

    def stratum(self) -> str:
        return " ".join(self.labels())

    def record(self) -> Iterator[tuple[str, Any]]:
        yield from self.parts()
        if self.label is not None:
            yield "labels", self.gold


# -- what learns it


@dataclass(frozen=True)
class MultilabelOptions(MultiRowOptions):
    threshold: float = 0.5  # a class is predicted if its probability is at least this


class Multilabel(TextRows):
    Options: ClassVar[type] = MultilabelOptions
    name = "multilabel"
    varies = False
    comparable = True

    def prepare(self) -> None:
        threshold = self.options.threshold
        if isinstance(threshold, bool) or not 0 < threshold < 1:
            raise ConfigError(f"objective.threshold is {threshold!r}; it must be between 0 and 1")
        super().prepare()
        place = {label: i for i, label in enumerate(self.corpus.labels)}
        examples: Any = self.corpus.examples
        self.known = np.array([e.label is not None for e in examples], bool)
        self.gold = np.zeros((len(examples), len(place)), np.float32)
        for row, example in zip(self.gold, examples, strict=True):
            row[[place[label] for label in example.labels() if label in place]] = 1.0
        self.check_known(self.known)

    def extra(self, index: int) -> Sample:
        return {"gold": self.gold[index], "known": np.array(self.known[index])}

    def nats(self, scores: Tensor, batch: Batch) -> tuple[Tensor, dict[str, tuple[Tensor, Any]]]:
        """Returns the binary cross-entropy of each example, as a mean over the classes."""
        gold, known = batch["gold"], batch["known"]
        cross = torch.nn.functional.binary_cross_entropy_with_logits
        each = cross(scores, gold.to(scores.dtype), reduction="none").mean(1)
        claimed = (scores.sigmoid() >= self.options.threshold) & known[:, None]
        real = (gold > 0) & known[:, None]
        hits, both = (claimed & real).sum(), claimed.sum() + real.sum()
        exact = ((claimed == real).all(1) & known).sum()
        return each, {"f1": (2 * hits, both), "exact": (exact, known.sum())}

    def head_answers(self, scores: Mapping[str, Tensor], batch: Batch) -> list[HeadAnswers]:
        return [HeadAnswers(self.name, yes_or_no(scores["classify"]), batch["known"])]

    def measure(self, totals: Loss) -> dict[str, float]:
        (hits, both), (exact, of) = totals.seen["f1"], totals.seen["exact"]
        return {
            "micro_f1": float(hits) / max(float(both), 1),
            "subset_accuracy": float(exact) / max(float(of), 1),
            "loss": self.mean_loss(totals),
        }

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        shares: list[Any] = self.scores(model, batch).sigmoid().tolist()
        return shares

    def merge(self, outputs: list[Any]) -> list[Prediction]:
        """Returns predictions. `score` is the probability of all these classes and no other."""
        labels, least = self.corpus.labels, self.options.threshold
        predictions = []
        for row in outputs:
            chosen = [label for label, share in zip(labels, row, strict=True) if share >= least]
            sure = math.prod(share if share >= least else 1 - share for share in row)
            predictions.append(
                Prediction(sorted(chosen), sure, dict(zip(labels, row, strict=True)))
            )
        return predictions

    def hf_config(self) -> dict[str, Any]:
        return super().hf_config() | {"problem_type": "multi_label_classification"}


# -- what measures it


class LabelSets(TaskMetric):
    """The metric: F1 over all pairs of an example and a class (micro), F1 as a mean over classes
    (macro), and the share of examples with exactly the right classes."""

    libraries = ("sklearn.metrics",)

    def __init__(self, gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
        super().__init__(gold, predicted)
        self.names = sorted({label for side in (gold, predicted) for row in side for label in row})
        self.true, self.claimed = self.table(gold), self.table(predicted)

    def table(self, rows: Sequence[Sequence[str]]) -> np.ndarray:
        place = {name: i for i, name in enumerate(self.names)}
        cells = np.zeros((len(rows), len(place)), np.int64)
        for line, row in zip(cells, rows, strict=True):
            line[[place[label] for label in row]] = 1
        return cells

    @cached_property
    def figures(self) -> Figures:
        metrics = needed("sklearn.metrics", "labels are measured", "tasks")
        if not self.names:  # no class is gold, and none is predicted
            return {"micro_f1": 0.0, "macro_f1": 0.0, "subset_accuracy": 1.0}
        pair = self.true, self.claimed
        figures = {
            f"{average}_f1": float(metrics.f1_score(*pair, average=average, zero_division=0.0))
            for average in ("micro", "macro")
        }
        return figures | {"subset_accuracy": float(metrics.accuracy_score(*pair))}

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
        """Returns the F1 of each example. It is 1 if there is no class and none was predicted."""
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


class MultilabelTask(TextTask):
    name = "multilabel"
    example = MultiLabelExample
    roles: ClassVar[Mapping[str, str]] = {
        "text": TEXT,
        "pair": PAIR,
        "labels": "labels label classes categories topics tags emotions",
        "id": ID,
    }
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {1: ("text",), 2: ("text", "labels")}
    answers = ("labels",)
    learned_by = Multilabel
    measured_by = LabelSets
    heads = ("classify",)
    problem_type = "multi_label_classification"
    names_labels = True
    asked_as = ("classify",)
    prefix = "multilabel "
    void = "not all labels of the model; the unknown ones count as wrong"

    def label(self, record: FieldRecord) -> tuple[str, ...] | None:
        """Reads the labels from a list, or from a text with commas, semicolons or bars between
        them. There may be none."""
        if not record.has("labels"):
            return None
        value = record.get("labels")
        if value is None:
            raise BadRecord("missing-label", f"no labels in {record.field('labels')!r}")
        if isinstance(value, str):
            value = [part for part in SEPARATORS.split(value.strip()) if part]
        if not isinstance(value, list | tuple):
            kind = type(value).__name__
            raise BadRecord("wrong-type", f"the labels are {kind}, not a list or a text")
        for label in value:
            if isinstance(label, list | dict) or not str(label).strip():
                raise BadRecord("wrong-type", f"{label!r} among the labels is not a name")
        names = [str(label).strip() for label in value]
        if len(set(names)) < len(names):
            record.warn("contradiction", f"a label is named twice: {', '.join(names)}")
        return tuple(dict.fromkeys(names))

    def labels_in(self, examples: Sequence[Example]) -> list[str]:
        labels = sorted({label for example in examples for label in example.labels()})
        if not labels:
            raise InputError("the training data has no label at all, so nothing can be learned")
        return labels

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        known = {*labels}
        values = [list(one.value) for one in predictions]
        return values, sum(not known.issuperset(row) for row in values) if known else 0

    # -- as text

    def target(self, example: Any) -> str:
        if example.label is None:
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

    def line(self, example: Any, prediction: Prediction, labels: Sequence[str]) -> str:
        shares = prediction.scores or {}
        named = [f"{x} {shares[x]:.4f}" if x in shares else x for x in prediction.value]
        return "\t".join(named) or "(none)"


TASK = MultilabelTask()
