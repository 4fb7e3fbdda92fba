"""The task `similar`: the similarity of two texts, as a score or (if labels say so) as a class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from regard.core.errors import InputError
from regard.data.examples import Example, LabeledExample
from regard.data.problems import FileLine
from regard.data.read_fields import ID, BadRecord, FieldRecord
from regard.metrics.base import TaskMetric
from regard.metrics.numbers import Similarity
from regard.tasks.base import Prediction
from regard.tasks.classify import CLASS, FIRST, SECOND, LabeledText
from regard.tasks.text_forms import compact

if TYPE_CHECKING:
    from regard.tasks.check import Checker

STEPS = 5  # the number of steps of a score between two whole numbers


class Similar(LabeledText):
    name = "similar"
    roles: ClassVar[Mapping[str, str]] = {
        "text": FIRST,
        "pair": SECOND,
        "label": f"similarity score relatedness relatedness_score similarity_score {CLASS}",
        "id": ID,
    }
    sides = ("sentence1", "sentence2")
    prefix = "stsb "
    one_at_a_time = True
    may_score = True

    # -- data

    def label_of(self, value: Any, record: FieldRecord) -> str | float:
        return super().label_of(value, record) if record.options.classes else as_score(value)

    def labels_in(self, examples: Sequence[Example]) -> list[str]:
        labels = [
            e.label for e in examples if isinstance(e, LabeledExample) and e.label is not None
        ]
        scores = bool(labels) and not any(isinstance(label, str) for label in labels)
        return [] if scores else super().labels_in(examples)

    def check_whole(self, checker: Checker, whole: FileLine) -> None:
        if checker.reader.options.classes:
            super().check_whole(checker, whole)

    # -- measuring

    def metric(self, labels: Sequence[str]) -> type[TaskMetric]:
        return super().metric(labels) if labels else Similarity

    def kind_of(self, labels: Sequence[str]) -> str:
        return "classes" if labels else "scores"

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        """Replaces a predicted score that is not a number by -1, as T5's authors do."""
        if labels:
            return super().values(labels, predictions, gold)
        void = [not math.isfinite(one.value) for one in predictions]
        values = [-1.0 if bad else p.value for p, bad in zip(predictions, void, strict=True)]
        return values, sum(void)

    def void_words(self, labels: Sequence[str]) -> str:
        return self.void if labels else "no number and count as -1"

    # -- as text

    def target(self, example: Example) -> str:
        """Returns the label as text. A score is rounded to the nearest 0.2, as in T5's STS-B."""
        label = getattr(example, "label", None)
        if not isinstance(label, float):
            return super().target(example)
        return f"{round(label * STEPS) / STEPS + 0.0:.1f}"

    def value(self, example: Example, word: str | None, text: str, labels: Sequence[str]) -> Any:
        """Returns the score that a text spells, or NaN if it is not a number."""
        if labels:
            return super().value(example, word, text, labels)
        try:
            number = float(compact(text))
        except ValueError:
            return math.nan
        return number if math.isfinite(number) else math.nan

    def check_prompted(self, example: Any) -> None:
        super().check_prompted(example)
        if is_fraction(str(example.label)):
            raise InputError(
                f"{example.place}: the label is the score {example.label}, and a prompt chooses "
                "among classes; give classes, or fine-tune a model for scores"
            )


def as_score(value: Any) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise BadRecord(
            "not-a-number",
            f"the score is {value!r}, not a number; if the labels are classes, give --classes",
        )
    return number


def is_fraction(label: str) -> bool:
    """Returns whether a label is a number that is not whole."""
    try:
        number = float(label)
    except ValueError:
        return False
    return math.isfinite(number) and not number.is_integer()


TASK = Similar()
