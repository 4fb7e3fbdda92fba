"""A class or a score for a text, or for two: classification, entailment, similarity.

BERT reads it from [CLS] (Devlin et al. 2018, 4.1), XLNet from <cls>, which stands last, GPT-1 from
its extract token (Radford et al. 2018, 3.3), Longformer from <s>, which sees everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.attention.precision import wide
from regard.core.errors import ConfigError, InputError
from regard.data.examples import Labelled
from regard.data.input_formats import Framed, framed
from regard.data.problems import Place
from regard.data.read_fields import ID
from regard.models.output import last_row
from regard.objectives.base import Batch, Loss, Sample
from regard.objectives.causal import choose
from regard.tasks.base import Prediction
from regard.tasks.labelled_text import CLASS, FIRST, SECOND, LabelledText
from regard.tasks.multi_row import Several, SeveralOptions


@dataclass(frozen=True)
class ClassifyOptions(SeveralOptions):
    weights: str = "equal"  # "balanced": rare classes count more, all of them alike in sum
    both_orders: bool | None = None  # the sum of A B and B A; None: for a gpt's similarity


class Classify(Several):
    Options: ClassVar[type] = ClassifyOptions
    name = "classify"

    def prepare(self) -> None:
        choose("weights", self.options.weights, ("equal", "balanced"))
        self.regression = not self.corpus.labels
        if self.regression and self.corpus.task != "similar":
            raise InputError(f"{self.corpus.task} needs classes, and the data has none")
        super().prepare()
        self.gold = self.answers()
        if self.corpus.split in ("train", "valid") and not self.known.any():
            raise InputError(f"none of the examples of the {self.corpus.split} data has a label")
        self.shares = self.class_shares()

    def prepare_rows(self) -> None:
        self.several = self.in_both_orders()
        super().prepare_rows()

    def in_both_orders(self) -> bool:
        """Similarity has no order (Radford et al. 2018, 3.3)."""
        options, task = self.options, self.corpus.task
        if options.both_orders is None:
            return self.causal and options.marks and task == "similar"
        if not isinstance(options.both_orders, bool):
            raise ConfigError(f"objective.both_orders is {options.both_orders!r}; true or false")
        if options.both_orders and (not self.causal or task != "similar"):
            raise ConfigError(
                "objective.both_orders is for the similarity of two texts and for a model that "
                f"reads from left to right, such as gpt; this is {task} with {options.family}"
            )
        return options.both_orders

    def groups(self) -> Iterator[list[Framed]]:
        return self.groups_of(self.corpus.examples)

    def groups_of(self, examples: Any) -> Iterator[list[Framed]]:
        first = self.texts([e.text for e in examples])
        pairs = [i for i, e in enumerate(examples) if e.pair is not None]
        second = dict(zip(pairs, self.texts([examples[i].pair for i in pairs]), strict=True))
        return (self.rows_of(ids, second.get(i)) for i, ids in enumerate(first))

    def rows_of(self, a: list[int], b: list[int] | None) -> list[Framed]:
        orders = [(a, b)]
        if self.several:
            orders.append((a, None) if b is None else (b, a))
        return [framed(self.frame, self.corpus.special, *texts, self.length) for texts in orders]

    def answers(self) -> np.ndarray:
        """The class or score of every example; -1 or NaN where it is not known."""
        examples: Any = self.corpus.examples
        if self.regression:
            return np.array([value(e) for e in examples], np.float32)
        place = {label: i for i, label in enumerate(self.corpus.labels)}
        return np.array([place.get(str(e.label), -1) for e in examples], np.int64)

    @property
    def known(self) -> np.ndarray:
        """Which examples have a label."""
        return np.isfinite(self.gold) if self.regression else self.gold >= 0

    def class_shares(self) -> np.ndarray:
        """What an example of each class counts; in sum as many as there are."""
        count = max(1, len(self.corpus.labels))
        if self.options.weights == "equal" or self.regression:
            return np.ones(count, np.float32)
        found = np.bincount(self.gold[self.known], minlength=count)
        return np.asarray(found.sum() / (count * np.maximum(found, 1)), np.float32)

    def extra(self, index: int) -> Sample:
        gold = self.gold[index]
        known = bool(np.isfinite(gold)) if self.regression else gold >= 0
        share = 1.0 if self.regression else self.shares[max(int(gold), 0)]
        return {
            "gold": np.array(gold if known else 0, gold.dtype),
            "share": np.array(share * known, np.float32),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float(batch["share"].sum())} | self.language_counts(batch)

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """[B, classes]; one column of a regression."""
        return self.judged(model, self.hidden(model, batch), batch)

    def judged(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        real = batch["real"]
        if self.several:
            both = last_row(hidden, real)[batch["rows"]].sum(1)
            return wide(model.read("classify", both[:, None]))
        return wide(model.read("classify", hidden, real))

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        hidden = self.hidden(model, batch)
        scores, gold, share = self.judged(model, hidden, batch), batch["gold"], batch["share"]
        known = share > 0
        seen: dict[str, Any] = {}
        if self.regression:
            each = (scores[:, 0] - gold).square()
            if not self.learning:
                seen = moments(scores[:, 0].detach(), gold, known)
        else:
            each = torch.nn.functional.cross_entropy(scores, gold, reduction="none")
            right = ((scores.argmax(1) == gold) & known).sum()
            seen = {"right": (right, known.sum())}
        sums = {self.name: (each * share).sum()} | self.language_sums(model, hidden, batch)
        return Loss(sums, self.counted(batch), seen)

    def heads(self) -> dict[str, int]:
        return {"classify": max(1, len(self.corpus.labels))}

    def measure(self, totals: Loss) -> dict[str, float]:
        mean = float(totals.sums[self.name]) / max(totals.counts[self.name], 1e-9)
        if self.regression:
            return {"pearson": pearson(totals), "squared_error": mean}
        right, of = totals.seen["right"]
        return {"accuracy": float(right) / max(of, 1), "loss": mean}

    def better(self, new: float, old: float) -> bool:
        return new > old

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        scores = self.scores(model, batch)
        found: list[Any] = (scores[:, 0] if self.regression else scores.softmax(1)).tolist()
        return found

    def merge(self, found: list[Any]) -> list[Prediction]:
        if self.regression:
            return [Prediction(one) for one in found]
        labels = self.corpus.labels
        made = []
        for row in found:
            best = max(range(len(row)), key=row.__getitem__)
            made.append(Prediction(labels[best], row[best], dict(zip(labels, row, strict=True))))
        return made

    def hf_config(self) -> dict[str, Any]:
        said = super().hf_config()
        if not self.regression:
            return said | {"problem_type": "single_label_classification"}
        names = {"id2label": {"0": "score"}, "label2id": {"score": 0}}
        return said | names | {"problem_type": "regression"}


def value(example: Labelled) -> float:
    if example.label is None:
        return float("nan")
    try:
        return float(example.label)
    except ValueError:
        raise ConfigError(
            f"{example.place}: {example.label!r} is no number; set examples.classes=true where "
            "similarity is a class"
        ) from None


def moments(x: Tensor, y: Tensor, known: Tensor) -> dict[str, tuple[Tensor, Any]]:
    """The sums that a correlation is computed from, in 64 bits, which not every device has."""
    x, y = (torch.where(known, side, 0.0).cpu().double() for side in (x, y))
    of = known.sum()
    parts = {"x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}
    return {name: (part.sum(), of) for name, part in parts.items()}


def pearson(totals: Loss) -> float:
    means = {name: float(total) / max(float(of), 1) for name, (total, of) in totals.seen.items()}
    across = means["xy"] - means["x"] * means["y"]
    spread = (means["xx"] - means["x"] ** 2) * (means["yy"] - means["y"] ** 2)
    return across / spread**0.5 if spread > 0 else 0.0


# -- the task


class ClassifyTask(LabelledText):
    """Of one text, or of two."""

    name = "classify"
    roles: ClassVar[Mapping[str, str]] = {
        "text": f"text sentence review content document tweet comment body {FIRST}",
        "pair": SECOND.replace(" sentence ", " "),
        "label": CLASS,
        "id": ID,
    }
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
    sides = ("text", "pair")
    prefix = "classify "

    def template(self, examples: Sequence[Any]) -> str:
        """In the form of entail."""
        paired = all(example.pair is not None for example in examples)
        return "{text}\n" + "{pair}\n" * paired + "Question: {labels}?\nAnswer: {label}"

    def from_texts(self, texts: list[str], place: Place) -> dict[str, Any]:
        return {"text": texts[0]} if len(texts) == 1 else super().from_texts(texts, place)


TASK = ClassifyTask()
