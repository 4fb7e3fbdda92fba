"""What classification, entailment and similarity share: a text, or two, with a label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from regard.core.errors import ConfigError, InputError
from regard.data.examples import Example, Labelled
from regard.data.problems import Place
from regard.data.read_fields import ID, Bad, Record
from regard.tasks.base import Prediction, Task, check_classes, classes_in, unseen_classes

if TYPE_CHECKING:
    from regard.metrics.base import Measured
    from regard.tasks.check import Checker
    from regard.tasks.labelled import LabelledObjective

FIRST = "premise sentence1 a text1 question1 sentence_a #1_string question text sentence"
SECOND = "hypothesis sentence2 b text2 question2 sentence_b #2_string sentence pair text_pair"
CLASS = (
    "label labels class category gold_label sentiment entailment_label entailment_judgment "
    "quality is_duplicate stars"
)
IMBALANCE = 10  # so many times larger than the smallest class
NONE = "(none of the labels)"  # stands for every text that is none


class LabelledText(Task):
    """Two texts and a class, unless a task says otherwise."""

    example = Labelled
    roles: ClassVar[Mapping[str, str]] = {"text": FIRST, "pair": SECOND, "label": CLASS, "id": ID}
    needed: ClassVar[tuple[str, ...]] = ("text", "pair")
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {
        2: ("text", "pair"),
        3: ("text", "pair", "label"),
    }
    strata = True
    varied = True
    kind = "classes"
    void = f"none of the labels and count as wrong, as {NONE!r}"
    fields = ("text", "pair", "labels")
    answer_fields = ("label",)
    chooses = True
    has_words = True
    record_texts: ClassVar[tuple[str, ...]] = ("text", "pair")
    sides: ClassVar[tuple[str, str]]  # what stands before a text and before its pair
    second_first: ClassVar[bool] = False

    # -- data

    def parse(self, record: Record) -> Example:
        text = record.text("text")
        pair = record.text("pair") if "pair" in self.needed or record.has("pair") else None
        return Labelled(text, pair, self.label(record), record.place, record.id)

    def label(self, record: Record) -> str | float | None:
        if not record.has("label"):
            return None
        value = record.get("label")
        if value is None or value == "":
            raise Bad("missing-label", f"no label in {record.field('label')!r}")
        if isinstance(value, list | dict):
            raise Bad("wrong-type", f"the label is {type(value).__name__}, not a name or a number")
        return self.label_of(value, record)

    def label_of(self, value: Any, record: Record) -> str | float:
        label = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if not label:
            raise Bad("missing-label", f"no label in {record.field('label')!r}")
        return label

    def labels_in(self, examples: Sequence[Example]) -> list[str]:
        return classes_in(examples)

    def check_labels(self, examples: Sequence[Example], known: Sequence[str], path: str) -> None:
        check_classes(examples, known, path)

    def check_example(self, checker: Checker, example: Any) -> None:
        if isinstance(example.label, float):
            checker.scores.append(example.label)
        checker.check_known(example)

    def check_whole(self, checker: Checker, whole: Place) -> None:
        """Two classes at least, and none that is much smaller than another."""
        ordered = checker.labels.most_common()
        if len(ordered) == 1:
            checker.problems.add(
                whole,
                "single-class",
                f"every label is {ordered[0][0]!r}; a classifier needs two classes",
                "error" if checker.other is None else "warning",
            )
        elif ordered and ordered[0][1] >= IMBALANCE * ordered[-1][1]:
            (most, many), (least, few) = ordered[0], ordered[-1]
            checker.problems.add(
                whole,
                "imbalance",
                f"{many:,} of {most!r} but {few:,} of {least!r}; accuracy hides the small class, "
                "so look at F1, and consider class weights",
                "note",
            )

    # -- learning and measuring

    def objective(self) -> type[LabelledObjective]:
        from regard.tasks.classify import Classify

        return Classify

    def metric(self, labels: Sequence[str]) -> type[Measured]:
        from regard.metrics.labels import Classification

        return Classification

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        """A text that is no label of the model's is NONE, also if it happens to be the right one:
        the model never learned that. A published model that writes names no labels.
        """
        known = {*labels} or {*gold}
        values = [one.value if one.value in known else NONE for one in predictions]
        return values, values.count(NONE)

    def unseen(self, examples: Sequence[Example], known: Sequence[str]) -> dict[str, int]:
        return unseen_classes(examples, known)

    # -- as text

    def source(self, example: Example) -> str:
        if not isinstance(example, Labelled):
            return super().source(example)
        texts = [*zip(self.sides, (example.text, example.pair), strict=True)]
        if self.second_first:
            texts.reverse()
        return " ".join(f"{name}: {text}" for name, text in texts if text is not None)

    def target(self, example: Example) -> str:
        label = getattr(example, "label", None)
        return label if isinstance(label, str) else super().target(example)

    # -- by a prompt

    def template(self, examples: Sequence[Any]) -> str:
        return "{text}\n{pair}\nQuestion: {labels}?\nAnswer: {label}"

    def prompt_values(self, example: Any, labels: str) -> dict[str, str | None]:
        return {"text": example.text, "pair": example.pair, "labels": labels}

    def prompt_answer(self, example: Any, field: str, words: Mapping[str, str]) -> str | None:
        return words[example.label] if isinstance(example.label, str) else None

    def check_prompted(self, example: Any) -> None:
        if isinstance(example.label, float):
            raise InputError(
                f"{example.place}: the label is the score {example.label}, and a prompt chooses "
                "among classes; give classes, or fine-tune a model for scores"
            )

    # -- on the command line

    def check_asked(self, example: Any, model: str) -> None:
        if "pair" in self.needed and example.pair is None:
            raise ConfigError(
                f"{example.place}: one text, and {model} has learned to compare two "
                f"({self.name}); give the second with --pair, or behind a tab"
            )


def as_score(value: Any) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise Bad(
            "not-a-number",
            f"the score is {value!r}, not a number; if the labels are classes, say --classes",
        )
    return number


def is_fraction(label: str) -> bool:
    """A number that is not whole."""
    try:
        number = float(label)
    except ValueError:
        return False
    return math.isfinite(number) and not number.is_integer()
