"""The task `embed`: a vector for each text, so that texts that belong together are near.

A record is a text with its positive (the passage of a question, a paraphrase) and possibly hard
negatives, or two texts with a score of their similarity, or a text alone, which is its own positive
(Gao et al. 2021: two passes with different dropout).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from regard.core.errors import ConfigError
from regard.data.examples import Example
from regard.data.problems import NOWHERE, FileLine
from regard.data.read_fields import ID, BadRecord, FieldRecord
from regard.metrics.ranking import EmbeddingMetric
from regard.tasks.base import Prediction, Task
from regard.tasks.contrast import Contrast
from regard.tasks.similar import as_score

QUERY = "text anchor query question sentence1 premise a text1"
POSITIVE = "positive pos passage pair document answer context response hypothesis sentence2 b text2"
NEGATIVES = "negatives negative neg hard_negatives hard_negative"


@dataclass(frozen=True, slots=True)
class EmbedExample(Example):
    """A text, what belongs to it, and what seems to but does not; or two texts with a score."""

    answer_field: ClassVar[str] = "score"
    text: str
    positive: str | None = None
    negatives: tuple[str, ...] = ()
    score: float | None = None
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> Any:
        """The score, or the texts of which the second is the right one for the first."""
        if self.score is not None:
            return self.score
        if self.positive is None:
            return None
        return [self.text, self.positive, *self.negatives]

    @property
    def labeled(self) -> bool:
        return True  # of a text alone, the text itself is the positive

    def without_gold(self) -> Self:
        return replace(self, score=None)

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "text", self.text
        if self.positive is not None:
            yield "positive", self.positive
        for text in self.negatives:
            yield "negative", text

    def leaks(self) -> Iterator[tuple[str, str]]:
        """Yields the positive: questions about one passage stay in one split."""
        if self.positive is None or self.score is not None:
            yield "text", "\0".join(text for _, text in self.parts())
        else:
            yield "positive", self.positive

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        yield from ((text, None) for _, text in self.parts())

    def record(self) -> Iterator[tuple[str, Any]]:
        yield "text", self.text
        if self.positive is not None:
            yield "positive", self.positive
        if self.negatives:
            yield "negatives", list(self.negatives)
        if self.score is not None:
            yield "score", self.score

    def shown(self) -> Any:
        return self.text if self.score is None else {"text": self.text, "pair": self.positive}


def negatives_of(record: FieldRecord) -> tuple[str, ...]:
    """Reads hard negatives: a text or a list of texts."""
    if not record.has("negatives"):
        return ()
    value = record.get("negatives")
    if value is None:
        return ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise BadRecord("wrong-type", "the negatives are neither a text nor a list of texts")
    if not all(text.strip() for text in texts):
        raise BadRecord("empty-text", "a negative is empty")
    return tuple(texts)


class EmbedTask(Task):
    name = "embed"
    example = EmbedExample
    roles: ClassVar[Mapping[str, str]] = {
        "text": QUERY,
        "positive": POSITIVE,
        "negatives": NEGATIVES,
        "score": "score similarity label similarity_score relatedness_score",
        "id": ID,
    }
    needed = ("text",)
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {
        1: ("text",),
        2: ("text", "positive"),
        3: ("text", "positive", "score"),
    }
    answers = ("score",)
    learned_by = Contrast
    measured_by = EmbeddingMetric
    writable = False
    between_marks = False
    keeps_scores = False  # they are vectors
    record_texts = ("text", "positive")
    one_at_a_time = True

    def parse(self, record: FieldRecord) -> Example:
        text = record.text("text")
        positive = None if record.get("positive") is None else record.text("positive")
        score = None if record.get("score") is None else as_score(record.get("score"))
        negatives = negatives_of(record)
        if score is not None and (positive is None or negatives):
            raise BadRecord("missing-field", "a score is that of two texts; give text and positive")
        if negatives and positive is None:
            raise BadRecord("missing-field", "there are negatives and no positive; give both")
        return EmbedExample(text, positive, negatives, score, record.place, record.id)

    # -- measuring

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        """Returns the vectors: where a passage ranks depends on those of all other examples."""
        return [one.scores for one in predictions], 0

    def check_tested(self, examples: Sequence[Example], known: Sequence[str]) -> None:
        for example in examples:
            if example.gold is None:
                raise ConfigError(
                    f"{example.place}: a text alone says nothing about how good a vector is; give "
                    "a positive or a score for each text"
                )

    # -- on the command line

    def check_asked(self, example: Any, model: str) -> None:
        if example.positive is None:
            raise ConfigError(
                f"{example.place}: there is one text, and {model} says how near two texts are; "
                "give the second with --pair or after a tab, or use 'regard embed' for a vector"
            )

    def described(
        self, example: Any, prediction: Prediction, labels: Sequence[str]
    ) -> dict[str, Any]:
        return {"value": prediction.value}

    def line(self, example: Any, prediction: Prediction, labels: Sequence[str]) -> str:
        return f"{prediction.value:.4f}" if math.isfinite(prediction.value) else "undefined"


TASK = EmbedTask()
