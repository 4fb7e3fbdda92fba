"""Wraps a model so that an objective can call it while its outputs are recorded.

An objective returns only losses. Code that needs the distributions behind them (R-Drop, whose two
passes should agree, or a student that follows its teacher) passes a `Capture` model to the
objective and finds there what the losses were computed from:

    seen = Capture(model)
    loss = objective.loss(seen, batch, state)
    seen.hidden     # the hidden states of each call of the model, in order
    seen.words      # rows from which words were predicted, by `output.surprisal` or `.softened`
    seen.scores     # scores of heads, by `read` or, of a head with several answers, by its methods
    seen.by_head    # the same by the names of the heads, for `Objective.head_answers`

All tensors are part of the autograd graph. Logits of words are not recorded: they are computed
where they are used, a few rows at a time (`seen.model.output(rows)`; an adaptive output gives
log-probabilities, which a softmax leaves unchanged).

A `Capture` model is not a model. It has what `Objective.loss` may use, and no more; an objective
learns the kind of the model inside from `reading.inner`, as with any other wrapper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.models.output import SoftTarget


@dataclass(frozen=True, eq=False)
class CapturedRows:
    """Rows [N, width] whose target words [N] count by their shares [N]; None: each counts 1."""

    hidden: Tensor
    targets: Tensor
    shares: Tensor | None
    nats: Tensor  # the summed loss of the rows


@dataclass(frozen=True, eq=False)
class HeadScores:
    """The scores of a head. `head` is its name ("classify", "tag", "answer", …); a second answer of
    the same head adds its own name: "span", "span.ends", "span.unanswerable"."""

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
        """Yields the modules for `reading.inner`, which finds the model among them."""
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
    """The output layer of a captured model, with the methods that a loss calls."""

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
    """A head that is called directly, such as XLNet's, which gives starts, ends and more."""

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
