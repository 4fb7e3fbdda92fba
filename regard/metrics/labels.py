"""Metrics of labels: one label per text or choice (scikit-learn), or one per word (seqeval)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from regard.core.errors import InputError, UnknownName
from regard.data.files import needed
from regard.metrics.base import Array, Figures, TaskMetric, Weighted, f1, mean, ratio

Labels = Sequence[Hashable]
Codes = npt.NDArray[np.int64]
Tags = Sequence[Sequence[str]]
Span = tuple[str, int, int]  # type, first word, last word

SCHEMES = {  # the letters that may begin a tag
    "IOB1": "IOB",
    "IOB2": "IOB",
    "IOE1": "IOE",
    "IOE2": "IOE",
    "IOBES": "IOBES",
    "BILOU": "BILOU",
}
SMALLEST = 1e-12  # a probability of 0 would be an infinite loss
LOOSE = "IOBES"  # the letters that seqeval reads in its default mode


# -- one label for each example


def coded(gold: Labels, predicted: Labels) -> tuple[list[Hashable], Codes, Codes]:
    """Returns the labels, and gold and predicted as indices into them. Numbers among the labels
    come first, in their own order; words follow in theirs."""

    def place(label: Any) -> tuple[bool, float, str]:
        number = isinstance(label, int | float)
        return not number, label if number else 0.0, str(label)

    names = sorted({*gold, *predicted}, key=place)
    code = {name: i for i, name in enumerate(names)}
    return names, np.array([code[x] for x in gold]), np.array([code[x] for x in predicted])


class Classification(TaskMetric):
    """The metrics of classification. Averages of F1 run over the labels that occur in gold or
    predicted, as in scikit-learn."""

    libraries: ClassVar[tuple[str, ...]] = ("sklearn.metrics", "scipy.sparse")
    calibrates = True
    shares = ("accuracy", "micro_f1")

    def __init__(self, gold: Labels, predicted: Labels) -> None:
        super().__init__(gold, predicted)
        self.names, self.true, self.claimed = coded(gold, predicted)

    @cached_property
    def figures(self) -> Figures:
        metrics = needed("sklearn.metrics", "labels are measured", "tasks")
        pair = self.true, self.claimed
        figures = {"accuracy": float(metrics.accuracy_score(*pair))}
        for average in ("macro", "micro", "weighted"):
            value = metrics.f1_score(*pair, average=average, zero_division=0.0)
            figures[f"{average}_f1"] = float(value)
        return figures | {"matthews": float(metrics.matthews_corrcoef(*pair))}

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        accuracy = mean(self.true == self.claimed)
        return {
            "accuracy": accuracy,
            "macro_f1": self.macro,
            "micro_f1": accuracy,  # the same number while each example has one label
            "weighted_f1": self.by_support,
            "matthews": self.matthews,
        }

    @cached_property
    def table(self) -> Any:
        """A sparse matrix [N, 3 · classes] of hits, claimed, real; sparse because classes may be
        many."""
        sparse = needed("scipy.sparse", "labels are measured", "tasks")
        hit, all_rows = np.flatnonzero(self.true == self.claimed), np.arange(self.count)
        classes = len(self.names)
        rows = np.concatenate([hit, all_rows, all_rows])
        columns = [self.true[hit], classes + self.claimed, 2 * classes + self.true]
        cells = (np.ones(len(rows)), (rows, np.concatenate(columns)))
        return sparse.csr_array(cells, shape=(self.count, 3 * classes))

    def counts(self, weights: Array) -> tuple[Array, Array, Array]:
        hits, claimed, real = np.split(np.asarray(weights @ self.table), 3, axis=1)
        return hits, claimed, real

    def macro(self, weights: Array) -> Array:
        hits, claimed, real = self.counts(weights)
        seen = (claimed + real > 0).sum(1).astype(np.float64)
        return ratio(f1(hits, claimed, real).sum(1), seen)

    def by_support(self, weights: Array) -> Array:
        hits, claimed, real = self.counts(weights)
        return ratio((f1(hits, claimed, real) * real).sum(1), real.sum(1))

    def matthews(self, weights: Array) -> Array:
        """Computes Gorodkin's form for many classes; 0 where one side has a single label."""
        hits, claimed, real = self.counts(weights)
        total = real.sum(1)
        above = hits.sum(1) * total - (claimed * real).sum(1)
        spread = (total**2 - (claimed**2).sum(1)) * (total**2 - (real**2).sum(1))
        return ratio(above, np.sqrt(np.maximum(spread, 0.0)))

    @cached_property
    def each(self) -> list[float]:
        return [float(x) for x in self.true == self.claimed]

    def thought(self, i: int, row: Any) -> dict[str, float]:
        sure = {"confidence": self.belief(row, self.predicted[i])}
        if not isinstance(row, int | float | np.number):
            sure["loss"] = -math.log(max(self.belief(row, self.gold[i]), SMALLEST))
        return sure

    @cached_property
    def details(self) -> dict[str, Any]:
        """The report of each class, and the confusion matrix (rows are gold, columns predicted)."""
        metrics = needed("sklearn.metrics", "labels are measured", "tasks")
        codes, names = np.arange(len(self.names)), [str(name) for name in self.names]
        matrix = metrics.confusion_matrix(self.true, self.claimed, labels=codes)
        scores = metrics.precision_recall_fscore_support(
            self.true, self.claimed, labels=codes, average=None, zero_division=0.0
        )
        rows = per_class(names, *scores, matrix.sum(0))
        return {"classes": rows, "confusion": {"labels": names, "matrix": matrix.tolist()}}


class ChoiceAccuracy(Classification):
    """The accuracy of multiple choice. The choices of two examples share nothing but their index,
    so there is no report per class."""

    libraries = ("sklearn.metrics",)

    @cached_property
    def figures(self) -> Figures:
        metrics = needed("sklearn.metrics", "choices are measured", "tasks")
        return {"accuracy": float(metrics.accuracy_score(self.true, self.claimed))}

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        return {"accuracy": mean(self.true == self.claimed)}

    @cached_property
    def details(self) -> dict[str, Any]:
        return {}


def per_class(names: Sequence[str], *columns: Any) -> list[dict[str, Any]]:
    """Returns the rows of a report: precision, recall, F1, how often a class is real, and how often
    it is predicted."""
    heads = ("precision", "recall", "f1", "support", "predicted")
    rows = []
    for name, *values in zip(names, *columns, strict=True):
        row: dict[str, Any] = {"label": name}
        for head, value in zip(heads, values, strict=True):
            row[head] = int(value) if head in ("support", "predicted") else float(value)
        rows.append(row)
    return rows


# -- one label for each word


class TagRows(TaskMetric):
    """The base of metrics over one list of tags per sentence; gold and predicted must be equally
    long."""

    gold: list[list[str]]
    predicted: list[list[str]]

    def __init__(self, gold: Tags, predicted: Tags) -> None:
        super().__init__(gold, predicted)
        self.gold, self.predicted = [list(x) for x in gold], [list(x) for x in predicted]
        pairs = list(zip(self.gold, self.predicted, strict=True))
        for i, (a, b) in enumerate(pairs, 1):
            if len(a) != len(b):
                raise InputError(
                    f"sentence {i:,} has {len(a):,} gold tags but {len(b):,} predicted ones; "
                    "give one tag for each word"
                )
        self.good = np.array([sum(map(str.__eq__, a, b)) for a, b in pairs], dtype=np.float64)
        self.sizes = np.array([len(x) for x in self.gold], dtype=np.float64)

    def accuracy(self, weights: Array) -> Array:
        return ratio(weights @ self.good, weights @ self.sizes)


class TaggingMetric(TagRows):
    """Metrics over entities; `accuracy` alone is over words.

    Mode "" reads tags as conlleval.pl does (I after O begins an entity); mode "strict" accepts only
    entities that the scheme allows.
    """

    libraries = ("seqeval.metrics",)
    has_schemes = True

    def __init__(
        self, gold: Tags, predicted: Tags, *, mode: str = "", scheme: str = "IOB2"
    ) -> None:
        super().__init__(gold, predicted)
        self.scheme = scheme_of(mode, scheme)
        letters = SCHEMES[scheme] if self.scheme else LOOSE
        for tag in sorted({tag for side in (gold, predicted) for row in side for tag in row}):
            if not tag or tag[0] not in letters or (len(tag) > 1 and tag[1] != "-"):
                raise InputError(
                    f"{tag!r} is not a tag that can be read; expected 'O', or one of "
                    f"{', '.join(letters.replace('O', ''))} with a type, such as 'I-PER'"
                )

    @cached_property
    def figures(self) -> Figures:
        metrics = needed("seqeval.metrics", "tags are measured by entities", "tasks")
        precision, recall, value, _ = self.scores("micro")
        of_types = self.of_types[2]
        words = metrics.accuracy_score(self.gold, self.predicted) if any(self.gold) else 0.0
        return {
            "f1": float(value),
            "precision": float(precision),
            "recall": float(recall),
            "macro_f1": float(np.mean(of_types)) if len(of_types) else 0.0,
            "accuracy": float(words),
        }

    def scores(self, average: str | None) -> Any:
        """Returns seqeval's precision, recall, F1 and support, over all entities or per type."""
        place = "seqeval.metrics.v1" if self.scheme else "seqeval.metrics.sequence_labeling"
        module = needed(place, "tags are measured by entities", "tasks")
        more = {"scheme": self.scheme} if self.scheme else {}
        gold, predicted = self.telling
        return module.precision_recall_fscore_support(
            gold, predicted, average=average, zero_division=0, **more
        )

    @cached_property
    def telling(self) -> tuple[Tags, Tags]:
        """The sentences with a tag other than O in gold or predicted; the others hold nothing to
        count."""
        pairs = zip(self.gold, self.predicted, strict=True)
        pairs_left = [(a, b) for a, b in pairs if not (outside(a) and outside(b))]
        if not pairs_left:
            return self.gold, self.predicted
        return [a for a, _ in pairs_left], [b for _, b in pairs_left]

    @cached_property
    def of_types(self) -> Any:
        return self.scores(None)

    @cached_property
    def spans(self) -> tuple[list[set[Span]], list[set[Span]]]:
        """The entities of each sentence, gold and predicted, as seqeval reads them."""
        return entities(self.gold, self.scheme), entities(self.predicted, self.scheme)

    @cached_property
    def types(self) -> list[str]:
        return sorted({kind for side in self.spans for spans in side for kind, _, _ in spans})

    @cached_property
    def counts(self) -> Array:
        """The hits, predicted and gold entities of each sentence and type: [N, types, 3]."""
        place = {kind: i for i, kind in enumerate(self.types)}
        counts = np.zeros((self.count, len(self.types), 3))
        for i, (real, claimed) in enumerate(zip(*self.spans, strict=True)):
            for column, spans in enumerate((real & claimed, claimed, real)):
                for kind, _, _ in spans:
                    counts[i, place[kind], column] += 1
        return counts

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        total, flat = self.counts.sum(1), self.counts.reshape(self.count, -1)

        def share(column: int) -> Weighted:
            """Returns hits over predicted entities (column 1) or over gold entities (column 2)."""

            def value(weights: Array) -> Array:
                sums = weights @ total
                return ratio(sums[:, 0], sums[:, column])

            return value

        def macro(weights: Array) -> Array:
            sums = (weights @ flat).reshape(len(weights), -1, 3)
            seen = (sums[:, :, 1:].sum(2) > 0).sum(1).astype(np.float64)
            return ratio(f1(sums[:, :, 0], sums[:, :, 1], sums[:, :, 2]).sum(1), seen)

        return {
            "f1": lambda weights: f1(*(weights @ total).T),
            "precision": share(1),
            "recall": share(2),
            "macro_f1": macro,
            "accuracy": self.accuracy,
        }

    @cached_property
    def each(self) -> list[float]:
        """The entity F1 of each sentence; 1 if there is no entity and none was predicted.

        The mean of these values is not the F1 of the whole set, which comes from summed counts.
        """
        hits, claimed, real = self.counts.sum(1).T
        return [float(x) for x in ratio(2 * hits, claimed + real, 1.0)]

    @cached_property
    def details(self) -> dict[str, Any]:
        return {"classes": per_class(self.types, *self.of_types, self.counts.sum(0)[:, 1])}

    def sides(self, i: int, text: Any) -> dict[str, Any]:
        """Returns only the entities of the sentence."""
        whole = isinstance(text, list | tuple) and len(text) == len(self.gold[i])
        gold, predicted = (named(side[i], text if whole else None) for side in self.spans)
        return {"gold": gold, "predicted": predicted}


def named(spans: set[Span], words: Sequence[str] | None) -> list[str]:
    """Returns entities as text, or by the positions of their words if the words are not known."""
    texts = []
    for kind, first, last in sorted(spans, key=lambda span: span[1:]):
        inside = f"{first}–{last}" if words is None else " ".join(words[first : last + 1])
        texts.append(f"{kind}: {inside}")
    return texts


def scheme_of(mode: str, scheme: str) -> Any:
    """Returns seqeval's class for strict reading, or None for conlleval's reading."""
    if mode not in ("", "strict"):
        raise UnknownName("mode of reading tags", mode, ["", "strict"])
    if scheme not in SCHEMES:
        raise UnknownName("tagging scheme", scheme, SCHEMES)
    if not mode:
        return None
    return getattr(needed("seqeval.scheme", "tags are measured by entities", "tasks"), scheme)


class TokenAccuracy(TagRows):
    """The share of right tags, for tags that belong to single words, such as parts of speech."""

    libraries = ("sklearn.metrics",)

    @cached_property
    def weighted(self) -> dict[str, Weighted]:
        return {"accuracy": self.accuracy}

    @cached_property
    def each(self) -> list[float]:
        """The share of right tags in each sentence."""
        return [float(x) for x in ratio(self.good, self.sizes, 1.0)]

    @cached_property
    def details(self) -> dict[str, Any]:
        sides = ([tag for row in side for tag in row] for side in (self.gold, self.predicted))
        return Classification(*sides).details if self.sizes.any() else {}


def entities(tags: list[list[str]], scheme: Any = None) -> list[set[Span]]:
    """Returns the entities of each sentence; with a scheme of seqeval, only entities it allows."""
    if scheme:
        module = needed("seqeval.scheme", "tags are measured by entities", "tasks")
        sentences = module.Entities(tags, scheme).entities
        return [{(e.tag, e.start, e.end - 1) for e in sentence} for sentence in sentences]
    module = needed("seqeval.metrics.sequence_labeling", "tags are measured by entities", "tasks")
    return [set() if outside(x) else set(module.get_entities(x)) for x in tags]


def outside(tags: Sequence[str]) -> bool:
    """Tells whether every tag is O."""
    return tags.count("O") == len(tags)
