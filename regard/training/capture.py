"""A model as an objective asks it, while it is noted down what was asked.

An objective says only how much was lost. What has to look behind that (two passes that are to
agree, a student that is to follow its teacher) hands it a `Capture` model and finds there which
distributions it learned from:

    seen = Capture(model)
    loss = objective.loss(seen, batch, state)
    seen.hidden     # what each call of the model gave, in order
    seen.words      # rows that words were guessed from, by `output.surprisal` or `.softened`
    seen.scores     # what heads said, by `read` or, of a head with several answers, by its methods
    seen.by_head    # the same by the names of the heads, for `Objective.head_answers`

All tensors are part of the graph. Logits of words are not among them: they are made where they
are used, a few rows at a time (`seen.model.output(rows)`; an adaptive output gives
log-probabilities, which a softmax leaves as they are).

A `Capture` model is no model. It has what `Objective.loss` may ask of one, and no more; what kind
of model is inside, an objective learns from `reading.inner`, as with any other wrapper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.models.output import SoftTarget


@dataclass(frozen=True, eq=False)
class CapturedRows:
    """Rows [N, width] whose words [N] count by their shares [N]; None: each counts 1."""

    hidden: Tensor
    targets: Tensor
    shares: Tensor | None
    nats: Tensor  # what the output made of it, summed


@dataclass(frozen=True, eq=False)
class HeadScores:
    """What a head said. `head` is its name ("classify", "tag", "answer", …), for a second answer
    of the same head with the name of it: "span", "span.ends", "span.unanswerable".
    """

    head: str
    scores: Tensor


class Capture:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.hidden: list[Tensor] = []
        self.words: list[CapturedRows] = []
        self.scores: list[HeadScores] = []

    @property
    def by_head(self) -> dict[str, Tensor]:
        return {one.head: one.scores for one in self.scores}

    def modules(self) -> Iterator[nn.Module]:
        """For `reading.inner`, which finds the model among them."""
        parts: Iterator[nn.Module] = self.model.modules()
        return parts

    @property
    def training(self) -> bool:
        return bool(self.model.training)

    def __call__(self, *inputs: Any, **named: Any) -> Tensor:
        y: Tensor = self.model(*inputs, **named)
        self.hidden.append(y)
        return y

    @property
    def output(self) -> CapturedOutput:
        return CapturedOutput(self.model.output, self.words)

    @property
    def heads(self) -> dict[str, CapturedHead]:
        heads: nn.ModuleDict = self.model.heads
        return {name: CapturedHead(name, head, self.scores) for name, head in heads.items()}

    def read(self, head: str, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        y: Tensor = self.model.read(head, hidden, attention_mask)
        self.scores.append(HeadScores(head, y))
        return y


class CapturedOutput:
    """The output of a watched model, as far as something is learned from it."""

    def __init__(self, output: Any, words: list[CapturedRows]) -> None:
        self.output, self.words = output, words

    def surprisal(self, hidden: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        return self.noted(self.output.surprisal(hidden, targets, shares), hidden, targets, shares)

    def softened(
        self, hidden: Tensor, targets: Tensor, soft: SoftTarget, shares: Tensor | None = None
    ) -> Tensor:
        nats = self.output.softened(hidden, targets, soft, shares)
        return self.noted(nats, hidden, targets, shares)

    def noted(self, nats: Tensor, hidden: Tensor, targets: Tensor, shares: Tensor | None) -> Tensor:
        self.words.append(CapturedRows(hidden, targets, shares, nats))
        return nats


class CapturedHead:
    """A head, called by itself; as XLNet's, which is asked for starts, ends and more."""

    def __init__(self, name: str, head: Any, scores: list[HeadScores]) -> None:
        self.name, self.head, self.scores = name, head, scores

    def __call__(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.noted("", self.head(hidden, attention_mask))

    def ends(self, hidden: Tensor, start: Tensor) -> Tensor:
        return self.noted(".ends", self.head.ends(hidden, start))

    def unanswerable(
        self, hidden: Tensor, starts: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        return self.noted(".unanswerable", self.head.unanswerable(hidden, starts, attention_mask))

    def noted(self, answer: str, y: Tensor) -> Tensor:
        self.scores.append(HeadScores(self.name + answer, y))
        return y
