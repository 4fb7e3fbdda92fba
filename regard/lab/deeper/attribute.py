"""Integrated gradients (Sundararajan et al. 2017): how much each token contributes to an answer.

The embeddings of all tokens move along a straight line from a baseline to their values, and the
gradients of the answer are averaged on the way. The attributions of all tokens sum to the
difference between the answer and the answer at the baseline (completeness). An encoder-decoder
embeds two texts with one table, and a recurrent model also reads a memory of hidden states: all of
them move together, so the sum covers everything that the model reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.core.text import Bilingual
from regard.decoding.decode_state import at_rest
from regard.formats.directory import Checkpoint
from regard.lab.deeper.hooks import changed, on_output, stored
from regard.lab.deeper.question import AskedText, Text
from regard.lab.look.reading import LookOptions
from regard.models.state import State
from regard.training.adversary import word_embedding

MEASURES = ("logit", "probability")
POWER = 6  # points lie closer to the baseline, where a norm of small numbers changes quickly


@dataclass(frozen=True)
class Attribution:
    """The contribution of each token to a token or label of the answer."""

    tokens: dict[str, list[str]]  # by text: "text", or "source" and "target", and "memory"
    scores: dict[str, list[float]]
    token: str  # the token or label whose logit or probability is explained
    id: int
    measure: str
    row: str
    output: float  # the measure for the text, and for the baseline
    baseline: float

    @property
    def gap(self) -> float:
        """What the attributions miss of output - baseline; more steps make it smaller."""
        total = sum(value for scores in self.scores.values() for value in scores)
        return self.output - self.baseline - total

    def facts(self) -> dict[str, Any]:
        names = ("tokens", "scores", "token", "id", "measure", "row", "output", "baseline", "gap")
        return {name: getattr(self, name) for name in names}

    def _repr_html_(self) -> str:
        from regard.report import notebook

        most = max(abs(value) for scores in self.scores.values() for value in scores) or 1.0
        matrices = [
            notebook.Matrix(name, [scores], [self.token], self.tokens[name], span=(-most, most))
            for name, scores in self.scores.items()
        ]
        title = Bilingual(f"What {self.token!r} depends on", f"“{self.token}”取决于什么")
        facts: list[tuple[notebook.Text, float]] = [
            (self.measure, self.output),
            (Bilingual("baseline", "基线"), self.baseline),
            (Bilingual("gap", "差额"), self.gap),
        ]
        return notebook.rendered(title, notebook.Matrices(matrices), notebook.Facts(facts))


def attribute(
    loaded: Checkpoint,
    text: Text,
    *,
    token: int | str | None = None,
    position: int | None = None,
    measure: str = "logit",
    baseline: int | str | None = None,
    steps: int = 64,
    **options: Any,
) -> Attribution:
    """Returns the attribution of each token of the text to the logit of `token`, by default the
    likeliest.

    `baseline` is a token whose embedding stands for the absence of a token, such as "[PAD]"; by
    default it is a vector of zeros. `steps` is the number of points on the way; where `gap` is not
    small, the answer changes quickly on the way, and more steps or another baseline help.
    """
    if measure not in MEASURES:
        raise UnknownName("measure", measure, MEASURES)
    if steps < 1:
        raise ConfigError(f"steps is {steps}; it must be at least 1")
    if "int8" in loaded.model.extensions:
        raise InputError(
            "this model is quantized, and rounded numbers have no gradient; attribute with the "
            "model before 'regard quantize'"
        )
    with torch.no_grad(), at_rest(loaded.model):
        question = AskedText.of(loaded, text, LookOptions(**options), position)
        path = EmbeddingPath(question, baseline)
        followed = question.token(token, question.answer())
        ends = [measured(question, followed, measure, path, share) for share in (1.0, 0.0)]
        totals = [torch.zeros_like(x, dtype=torch.float64) for x in path.ends]
        places, weights = np.polynomial.legendre.leggauss(steps)
        for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
            way = (place + 1) / 2  # the integral over share = way^POWER
            slope_of_share = POWER * way ** (POWER - 1)
            points = [x.requires_grad_() for x in path.points(way**POWER)]
            with torch.enable_grad(), path.at(points):
                value = answer_of(question, followed, measure)
                slopes = torch.autograd.grad(value, points, allow_unused=True)
            for total, slope in zip(totals, slopes, strict=True):
                if slope is not None:
                    total += slope.double() * (weight / 2 * slope_of_share)
    return Attribution(*path.summed(totals), question.name(followed), followed, measure,
                       question.rows[question.need_row()].text, *ends)  # fmt: skip


def answer_of(question: AskedText, id: int, measure: str) -> Tensor:
    scores = question.answer()
    return scores[id] if measure == "logit" else question.probabilities(scores)[id]


def measured(
    question: AskedText, id: int, measure: str, path: EmbeddingPath, share: float
) -> float:
    with path.at(path.points(share)):
        return float(answer_of(question, id, measure))


class EmbeddingPath:
    """The straight line from the baseline to the embeddings of all texts and to the memory."""

    def __init__(self, question: AskedText, baseline: int | str | None) -> None:
        self.question = question
        self.embedding = word_embedding(question.loaded.model)
        embedded: list[Tensor] = []
        with changed(outputs=[(self.embedding, on_output(stored(embedded)))]):
            question.hidden()
        pair = question.loaded.model.kind == "encoder-decoder"
        self.names = ["source", "target"] if pair else ["text"]
        self.memory = question.reading.memory
        self.ends = [*embedded, *(self.memory.hidden if self.memory else ())]
        self.starts = [torch.zeros_like(x) for x in self.ends]
        if baseline is not None:
            row = self.embedding(torch.tensor([[self.token(baseline)]]))
            for i in range(len(embedded)):
                self.starts[i] = row.expand_as(embedded[i]).clone()

    def token(self, baseline: int | str) -> int:
        words = AskedText(self.question.loaded, self.question.reading, None, [], "tokens", None)
        return words.token(baseline, torch.empty(self.question.loaded.config.vocab_size))

    def points(self, share: float) -> list[Tensor]:
        """Returns the point at a share of the way; the ends are exact."""
        return [
            (b if share == 0.0 else x if share == 1.0 else torch.lerp(b, x, share)).detach().clone()
            for b, x in zip(self.starts, self.ends, strict=True)
        ]

    @contextmanager
    def at(self, points: list[Tensor]) -> Iterator[None]:
        """Lets the model read these vectors in the place of its embeddings and memory."""
        embedded = iter(points)
        reading, memory = self.question.reading, self.memory
        if memory is not None:
            reading.memory = State(hidden=points[len(self.names) :], length=memory.length)
        try:
            with changed(outputs=[(self.embedding, lambda _, y: next(embedded))]):
                yield
        finally:
            reading.memory = memory

    def summed(self, totals: list[Tensor]) -> tuple[dict[str, list[str]], dict[str, list[float]]]:
        """Returns the tokens of each text and their attributions; a remembered row counts with the
        states of all layers."""
        products = [
            ((x - b).double() * total).sum(-1)[0]
            for x, b, total in zip(self.ends, self.starts, totals, strict=True)
        ]
        names = self.question.reading.names
        tokens = {name: [token.text for token in names[name]] for name in self.names}
        scores = dict(zip(self.names, (row.tolist() for row in products), strict=False))
        if self.memory is not None:
            rows = torch.stack(products[len(self.names) :]).sum(0).tolist()
            past = [token.text for token in names["keys"][: len(rows)]]
            return {"memory": past, **tokens}, {"memory": rows, **scores}
        return tokens, scores
