"""The task `classify`: a class for one text or for two. `entail` and `similar` share this code.

BERT reads the class from [CLS] (Devlin et al. 2018, 4.1), XLNet from <cls>, which stands last,
GPT-1 from its extract token (Radford et al. 2018, 3.3), Longformer from <s>, which has global
attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels import wide
from regard.core.errors import ConfigError, InputError
from regard.data.examples import Example, LabeledExample
from regard.data.input_formats import FormattedInput, framed
from regard.data.problems import FileLine
from regard.data.read_fields import ID, BadRecord, FieldRecord
from regard.metrics.labels import Classification
from regard.models.output import last_row
from regard.objectives.base import Batch, HeadAnswers, Loss, Sample
from regard.objectives.causal import choose
from regard.tasks.base import Prediction, Task
from regard.tasks.multi_row import MultiRow, MultiRowOptions

if TYPE_CHECKING:
    from regard.tasks.check import Checker

FIRST = "premise sentence1 a text1 question1 sentence_a #1_string question text sentence"
SECOND = "hypothesis sentence2 b text2 question2 sentence_b #2_string sentence pair text_pair"
TEXT = f"text sentence review content document tweet comment body {FIRST}"
PAIR = SECOND.replace(" sentence ", " ")  # because the first text may be called "sentence"
CLASS = (
    "label labels class category gold_label sentiment entailment_label entailment_judgment "
    "quality is_duplicate stars"
)
IMBALANCE = 10  # a note is given if the largest class is this many times the smallest
NONE = "(none of the labels)"  # stands for every text that is not a label


# -- what learns it


class TextRows(MultiRow):
    """An objective whose row is one text or two, scored by the classification head."""

    several = False

    def groups_of(self, examples: Any) -> Iterator[list[FormattedInput]]:
        first = self.texts([e.text for e in examples])
        second = iter(self.texts([e.pair for e in examples if e.pair is not None]))
        for example, ids in zip(examples, first, strict=True):
            yield self.rows_of(ids, None if example.pair is None else next(second))

    def rows_of(self, a: list[int], b: list[int] | None) -> list[FormattedInput]:
        return [framed(self.frame, self.corpus.special, a, b, self.seq_len)]

    def heads(self) -> dict[str, int]:
        return {"classify": max(1, len(self.corpus.labels))}

    def judged(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """Returns logits [B, classes]. A regression has one column."""
        return wide(model.read("classify", hidden, batch["attention_mask"]))


@dataclass(frozen=True)
class ClassifyOptions(MultiRowOptions):
    weights: str = "equal"  # "balanced": each class has the same total weight in the loss
    both_orders: bool | None = None  # sum A B and B A; None: only for the task similar with a gpt


class Classify(TextRows):
    Options: ClassVar[type] = ClassifyOptions
    name = "classify"
    counted_by = "share"
    comparable = True

    def prepare(self) -> None:
        choose("weights", self.options.weights, ("equal", "balanced"))
        self.regression = not self.corpus.labels
        if self.regression and not self.task.may_score:
            raise InputError(
                f"{self.corpus.task} needs classes, and the data has none; give labeled examples"
            )
        super().prepare()
        examples: Any = self.corpus.examples
        if self.regression:  # NaN: the score is not known
            self.gold = np.array([score_of(e) for e in examples], np.float32)
            self.known = np.isfinite(self.gold)
        else:  # -1: the class is not known
            place = {label: i for i, label in enumerate(self.corpus.labels)}
            self.gold = np.array([place.get(str(e.label), -1) for e in examples], np.int64)
            self.known = self.gold >= 0
        self.check_known(self.known)
        self.shares = self.class_shares()

    def prepare_rows(self) -> None:
        self.several = self.in_both_orders()
        super().prepare_rows()

    def in_both_orders(self) -> bool:
        """Returns whether A B and B A are both read, as for similarity (Radford et al. 2018,
        3.3)."""
        options = self.options
        if options.both_orders is None:
            return self.causal and options.marks and self.task.may_score
        if not isinstance(options.both_orders, bool):
            raise ConfigError(
                f"objective.both_orders is {options.both_orders!r}; it must be true or false"
            )
        if options.both_orders and not (self.causal and self.task.may_score):
            raise ConfigError(
                "objective.both_orders is for the similarity of two texts and for a model that "
                f"reads from left to right, such as gpt; this is {self.corpus.task} with "
                f"{options.family}"
            )
        return options.both_orders

    def rows_of(self, a: list[int], b: list[int] | None) -> list[FormattedInput]:
        rows = super().rows_of(a, b)
        if self.several:
            rows += super().rows_of(*((a, None) if b is None else (b, a)))
        return rows

    def class_shares(self) -> np.ndarray:
        """Returns the loss weight of each class. The mean weight of an example is 1."""
        count = max(1, len(self.corpus.labels))
        if self.options.weights == "equal" or self.regression:
            return np.ones(count, np.float32)
        sizes = np.bincount(self.gold[self.known], minlength=count)
        return np.asarray(sizes.sum() / (count * np.maximum(sizes, 1)), np.float32)

    def extra(self, index: int) -> Sample:
        gold, known = self.gold[index], bool(self.known[index])
        share = 1.0 if self.regression else self.shares[max(int(gold), 0)]
        return {
            "gold": np.array(gold if known else 0, gold.dtype),
            "share": np.array(share * known, np.float32),
        }

    def judged(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        if not self.several:
            return super().judged(model, hidden, batch)
        both = last_row(hidden, batch["attention_mask"])[batch["rows"]].sum(1)
        return wide(model.read("classify", both[:, None]))

    def nats(self, scores: Tensor, batch: Batch) -> tuple[Tensor, dict[str, tuple[Tensor, Any]]]:
        gold, known = batch["gold"], batch["share"] > 0
        if self.regression:
            seen = {} if self.learning else moments(scores[:, 0].detach(), gold, known)
            return (scores[:, 0] - gold).square(), seen
        each = torch.nn.functional.cross_entropy(scores, gold, reduction="none")
        right = ((scores.argmax(1) == gold) & known).sum()
        return each, {"right": (right, known.sum())}

    def head_answers(self, scores: Mapping[str, Tensor], batch: Batch) -> list[HeadAnswers]:
        shares, regression = batch["share"], self.regression
        return [HeadAnswers(self.name, scores["classify"], shares, regression=regression)]

    def measure(self, totals: Loss) -> dict[str, float]:
        if not self.regression:
            return super().measure(totals)
        return {"pearson": pearson(totals), "squared_error": self.mean_loss(totals)}

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        scores = self.scores(model, batch)
        answers: list[Any] = (scores[:, 0] if self.regression else scores.softmax(1)).tolist()
        return answers

    def merge(self, answers: list[Any]) -> list[Prediction]:
        if self.regression:
            return [Prediction(score) for score in answers]
        labels, predictions = self.corpus.labels, []
        for row in answers:
            best = max(range(len(row)), key=row.__getitem__)
            scores = dict(zip(labels, row, strict=True))
            predictions.append(Prediction(labels[best], row[best], scores))
        return predictions

    def hf_config(self) -> dict[str, Any]:
        if not self.regression:
            return super().hf_config() | {"problem_type": "single_label_classification"}
        names = {"id2label": {"0": "score"}, "label2id": {"score": 0}}
        return super().hf_config() | names | {"problem_type": "regression"}


def score_of(example: LabeledExample) -> float:
    if example.label is None:
        return float("nan")
    try:
        return float(example.label)
    except ValueError:
        raise ConfigError(
            f"{example.place}: {example.label!r} is not a number; set examples.classes=true if "
            "the labels are classes"
        ) from None


def moments(x: Tensor, y: Tensor, known: Tensor) -> dict[str, tuple[Tensor, Any]]:
    """Returns the sums from which a correlation is computed. They are computed on the CPU in
    float64, which not every device has."""
    x, y = (torch.where(known, side, 0.0).cpu().double() for side in (x, y))
    of = known.sum()
    parts = {"x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}
    return {name: (part.sum(), of) for name, part in parts.items()}


def pearson(totals: Loss) -> float:
    means = {name: float(total) / max(float(of), 1) for name, (total, of) in totals.seen.items()}
    across = means["xy"] - means["x"] * means["y"]
    spread = (means["xx"] - means["x"] ** 2) * (means["yy"] - means["y"] ** 2)
    return across / spread**0.5 if spread > 0 else 0.0


# -- the tasks


class TextTask(Task):
    """A task with one text or two, and one class or several."""

    example: ClassVar[type[LabeledExample]] = LabeledExample
    needed: ClassVar[tuple[str, ...]] = ("text",)
    record_texts = ("text", "pair")
    sides: ClassVar[tuple[str, str]] = ("text", "pair")  # the names before the texts in a source
    second_first: ClassVar[bool] = False

    def parse(self, record: FieldRecord) -> Example:
        text = record.text("text")
        pair = record.text("pair") if "pair" in self.needed or record.has("pair") else None
        return self.example(text, pair, self.label(record), record.place, record.id)

    def label(self, record: FieldRecord) -> Any:
        """Returns the label of a record, or None if it has none."""
        raise NotImplementedError

    def check_labels(self, examples: Sequence[Example], known: Sequence[str], path: str) -> None:
        for example in examples if known else ():
            for label in example.labels():
                if label not in known:
                    raise InputError(
                        f"{example.place or path}: the label {label!r} does not occur in the "
                        f"training data, which has {', '.join(map(repr, known))}"
                    )

    def check_example(self, checker: Checker, example: Any) -> None:
        if isinstance(example.label, float):
            checker.scores.append(example.label)
        checker.check_known(example)

    def unseen(self, examples: Sequence[Example], known: Sequence[str]) -> dict[str, int]:
        labels = (label for example in examples for label in example.labels())
        counts = Counter(label for label in labels if known and label not in known)
        return dict(counts.most_common())

    def source(self, example: Example) -> str:
        if not isinstance(example, self.example):
            return super().source(example)
        texts = [*zip(self.sides, (example.text, example.pair), strict=True)]
        if self.second_first:
            texts.reverse()
        return " ".join(f"{name}: {text}" for name, text in texts if text is not None)

    def from_texts(self, texts: list[str], place: FileLine) -> dict[str, Any]:
        if len(texts) == 1 and "pair" not in self.needed:
            return {"text": texts[0]}
        return super().from_texts(texts, place)


class LabeledText(TextTask):
    """A task with two texts and one class, unless a subclass says otherwise."""

    roles: ClassVar[Mapping[str, str]] = {"text": FIRST, "pair": SECOND, "label": CLASS, "id": ID}
    needed: ClassVar[tuple[str, ...]] = ("text", "pair")
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {
        2: ("text", "pair"),
        3: ("text", "pair", "label"),
    }
    learned_by = Classify
    measured_by = Classification
    strata = True
    varied = True
    kind = "classes"
    void = f"none of the labels and count as wrong, as {NONE!r}"
    fields = ("text", "pair", "labels")
    answer_fields = ("label",)
    chooses = True
    has_words = True

    # -- data

    def label(self, record: FieldRecord) -> str | float | None:
        if not record.has("label"):
            return None
        value = record.get("label")
        if value is None or value == "":
            raise BadRecord("missing-label", f"no label in {record.field('label')!r}")
        if isinstance(value, list | dict):
            raise BadRecord(
                "wrong-type", f"the label is {type(value).__name__}, not a name or a number"
            )
        return self.label_of(value, record)

    def label_of(self, value: Any, record: FieldRecord) -> str | float:
        label = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if not label:
            raise BadRecord("missing-label", f"no label in {record.field('label')!r}")
        return label

    def labels_in(self, examples: Sequence[Example]) -> list[str]:
        """Returns the classes, sorted by value if all are whole numbers, otherwise by alphabet."""
        counts = Counter(label for example in examples for label in example.labels())
        if len(counts) < 2:
            only = [f" ({label!r})" for label in counts] or [
                ", for none of its records has a label"
            ]
            raise InputError(
                f"the training data has {len(counts)} classes{only[0]}; a classifier needs at "
                "least 2"
            )
        whole = all(label.lstrip("-").isdigit() for label in counts)
        return sorted(counts, key=(lambda label: (int(label), label)) if whole else None)

    def check_whole(self, checker: Checker, whole: FileLine) -> None:
        """Reports a file with a single class, and a class that is much smaller than another."""
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

    # -- measuring

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        """Replaces a text that is not a label of the model by NONE, even if it is the gold label,
        because the model never learned that label. A published model that writes text has no list
        of labels."""
        known = {*labels} or {*gold}
        values = [one.value if one.value in known else NONE for one in predictions]
        return values, values.count(NONE)

    # -- as text, and by a prompt

    def target(self, example: Example) -> str:
        label = getattr(example, "label", None)
        return label if isinstance(label, str) else super().target(example)

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
                f"{example.place}: there is one text, and {model} compares two texts "
                f"({self.name}); give the second with --pair, or after a tab"
            )


class ClassifyTask(LabeledText):
    """The classification of one text, or of two."""

    name = "classify"
    roles: ClassVar[Mapping[str, str]] = {"text": TEXT, "pair": PAIR, "label": CLASS, "id": ID}
    needed = ("text",)
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {
        1: ("text",),
        2: ("text", "label"),
        3: ("text", "pair", "label"),
    }
    pseudo = True
    asked_as = ("entail",)
    heads = ("classify",)
    names_labels = True
    scores_as = "similar"
    prefix = "classify "

    def template(self, examples: Sequence[Any]) -> str:
        """Returns a template in the form of the one of `entail`."""
        paired = all(example.pair is not None for example in examples)
        return "{text}\n" + "{pair}\n" * paired + "Question: {labels}?\nAnswer: {label}"


TASK = ClassifyTask()
