"""The task `rerank`: a score for a query and a passage that are read together (a cross-encoder;
Nogueira and Cho 2019), by which candidates are put in order.

A record is a query with its positive and negatives, which a softmax compares, or a query and a
passage with a label (0 or 1, or a number between), whose logit learns it by binary cross-entropy.
The head has one output, as that of sentence-transformers' CrossEncoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import wide
from regard.core.errors import InputError
from regard.data.examples import Example
from regard.data.input_formats import FormattedInput, framed
from regard.data.problems import NOWHERE, FileLine
from regard.data.read_fields import ID, BadRecord, FieldRecord
from regard.metrics.ranking import Reranking
from regard.objectives.base import Batch, Loss, Sample
from regard.tasks.base import Prediction, Task
from regard.tasks.embed import NEGATIVES, POSITIVE, QUERY, negatives_of
from regard.tasks.multi_row import MultiRow, MultiRowOptions
from regard.tasks.similar import as_score


@dataclass(frozen=True, slots=True)
class RankedExample(Example):
    """A query and its candidates, each with a gain: how right it is, from 0 to 1."""

    answer_field: ClassVar[str] = "gains"
    query: str
    candidates: tuple[str, ...]
    gains: tuple[float, ...] | None = None
    place: FileLine = NOWHERE
    id: str = ""

    @property
    def gold(self) -> Any:
        return None if self.gains is None else list(self.gains)

    def without_gold(self) -> Self:
        return replace(self, gains=None)

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "query", self.query
        for text in self.candidates:
            yield "candidate", text

    def inputs(self) -> Iterator[tuple[str, str | None]]:
        for text in self.candidates:
            yield self.query, text

    def leaks(self) -> Iterator[tuple[str, str]]:
        yield "query", self.query

    def record(self) -> Iterator[tuple[str, Any]]:
        yield "query", self.query
        first, *rest = self.candidates
        yield "positive", first
        if rest:
            yield "negatives", rest
        elif self.gains is not None:
            yield "label", self.gains[0]

    def shown(self) -> Any:
        return {"query": self.query, "candidates": list(self.candidates)}


# -- what learns it


@dataclass(frozen=True)
class RerankOptions(MultiRowOptions):
    auxiliary: float | None = 0.0


class Rerank(MultiRow):
    Options: ClassVar[type] = RerankOptions
    name = "rerank"
    varies = False

    def prepare(self) -> None:
        examples: Any = self.corpus.examples
        self.known = np.array([e.gains is not None for e in examples], bool)
        self.most = max(len(e.candidates) for e in examples)
        self.check_known(self.known)
        super().prepare()

    def groups_of(self, examples: Any) -> Iterator[list[FormattedInput]]:
        queries = self.texts([e.query for e in examples])
        passages = iter(self.texts([text for e in examples for text in e.candidates]))
        for example, query in zip(examples, queries, strict=True):
            yield [
                framed(self.frame, self.corpus.special, query, next(passages), self.seq_len)
                for _ in example.candidates
            ]

    def extra(self, index: int) -> Sample:
        gains = np.zeros(self.most, np.float32)
        example: Any = self.corpus.examples[index]
        gains[: len(example.candidates)] = example.gains or 0.0
        return {"gains": gains, "known": np.array(self.known[index])}

    def heads(self) -> dict[str, int]:
        return {"classify": 1}

    def judged(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """Returns logits [B, candidates], with -∞ in the columns of missing candidates."""
        logits = wide(model.read("classify", hidden, batch["attention_mask"]))[:, 0]
        return logits[batch["rows"]].masked_fill(~batch["held"], -torch.inf)

    def nats(self, scores: Tensor, batch: Batch) -> tuple[Tensor, dict[str, tuple[Tensor, Any]]]:
        """Returns the loss of each example: a softmax over several candidates, binary
        cross-entropy of a single one."""
        present, known = batch["held"], batch["known"]
        gains = batch["gains"][:, : scores.size(1)].to(scores.dtype)
        single = present.sum(1) == 1
        binary = F.binary_cross_entropy_with_logits(scores[:, 0], gains[:, 0], reduction="none")
        share = gains / gains.sum(1, keepdim=True).clamp_min(1e-9)
        log_p = scores.log_softmax(1).masked_fill(~present, 0.0)
        each = torch.where(single, binary, -(share * log_p).sum(1))
        top = gains.gather(1, scores.argmax(1, keepdim=True))[:, 0] >= gains.amax(1)
        agrees = (scores[:, 0] > 0) == (gains[:, 0] > 0.5)
        right = torch.where(single, agrees, top) & known
        return each, {"right": (right.sum(), known.sum())}

    # -- answers

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        logits = self.scores(model, batch).double()  # or large ones would be rounded to 1
        counts = batch["held"].sum(1).tolist()
        rows = logits.sigmoid().tolist()
        return [row[:count] for row, count in zip(rows, counts, strict=True)]

    def merge(self, outputs: list[Any]) -> list[Prediction]:
        """Returns the scores of the candidates, from 0 to 1, in their order."""
        return [Prediction(row) for row in outputs]

    def hf_config(self) -> dict[str, Any]:
        return super().hf_config() | {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}

    def measure(self, totals: Loss) -> dict[str, float]:
        right, examples = totals.seen["right"]
        return {"accuracy": float(right) / max(float(examples), 1), "loss": self.mean_loss(totals)}


# -- the task


class RerankTask(Task):
    name = "rerank"
    example = RankedExample
    roles: ClassVar[Mapping[str, str]] = {
        "query": QUERY,
        "positive": POSITIVE,
        "negatives": NEGATIVES,
        "label": "label score relevance gain",
        "id": ID,
    }
    needed = ("query", "positive")
    columns: ClassVar[Mapping[int, tuple[str, ...]]] = {
        2: ("query", "positive"),
        3: ("query", "positive", "label"),
    }
    answers = ("label",)
    learned_by = Rerank
    measured_by = Reranking
    writable = False
    record_texts = ("query", "positive")
    one_at_a_time = True

    def parse(self, record: FieldRecord) -> Example:
        query, first = record.text("query"), record.text("positive")
        rest = negatives_of(record)
        gains: tuple[float, ...] | None = (1.0, *[0.0] * len(rest)) if rest else None
        if record.get("label") is not None:
            if rest:
                raise BadRecord("contradiction", "there are a label and negatives; give one")
            label = as_score(record.get("label"))
            if not 0 <= label <= 1:
                raise BadRecord("label-range", f"the label is {label:g}; it must be from 0 to 1")
            gains = (label,)
        return RankedExample(query, (first, *rest), gains, record.place, record.id)

    def expanded(self, examples: Sequence[Example]) -> list[Example]:
        """Returns one example for each query, with all candidates that the file has for it."""
        by_query: dict[str, RankedExample] = {}
        for example in examples:
            assert isinstance(example, RankedExample)
            known = by_query.setdefault(example.query, example)
            if known is not example:
                by_query[example.query] = replace(
                    known,
                    candidates=known.candidates + example.candidates,
                    gains=(known.gains or ()) + (example.gains or ()),
                )
        return list(by_query.values())

    def values(
        self, labels: Sequence[str], predictions: Sequence[Prediction], gold: Sequence[Any]
    ) -> tuple[list[Any], int]:
        return [one.value for one in predictions], 0

    def from_texts(self, texts: list[str], place: FileLine) -> dict[str, Any]:
        """The first text is the query; all others are candidates."""
        if len(texts) < 2:
            raise InputError(f"{place}: there is one text; give a query and at least one passage")
        values: dict[str, Any] = {"query": texts[0], "positive": texts[1]}
        return values | ({"negatives": texts[2:]} if texts[2:] else {})

    def line(self, example: Any, prediction: Prediction, labels: Sequence[str]) -> str:
        return "\t".join(f"{score:.4f}" for score in prediction.value)


TASK = RerankTask()
