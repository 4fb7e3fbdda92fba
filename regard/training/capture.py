"""A model that an objective asks as always, while it is noted down what was asked.

An objective says only how much was lost. What has to look behind that (two passes that are to
agree, a student that is to follow its teacher) hands it a `Watched` model and finds there which
distributions it learned from:

    seen = Watched(model)
    loss = objective.loss(seen, batch, state)
    seen.hidden     # what each call of the model gave, in order
    seen.words      # rows that words were guessed from, by `output.surprisal` or `.softened`
    seen.scores     # what heads said, by `read` or, of a head with several answers, by its methods

All tensors are part of the graph. Logits of words are not among them: they are made where they
are used, a few rows at a time (`seen.output(rows)`; an adaptive output gives log-probabilities,
which a softmax leaves as they are).

`isinstance` takes a watched model for the one inside of it, so objectives need not know of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

ANSWERS = ("ends", "unanswerable")  # methods of a head that are answers of their own


@dataclass(frozen=True, eq=False)
class Words:
    """Rows [N, width] whose words [N] count by their shares [N]; None: each counts 1."""

    hidden: Tensor
    targets: Tensor
    shares: Tensor | None
    nats: Tensor  # what the output made of it, summed


@dataclass(frozen=True, eq=False)
class Scores:
    """What a head said. `head` is its name ("classify", "tag", "answer", …), for a second answer
    of the same head with the name of it: "span", "span.ends", "span.unanswerable".
    """

    head: str
    scores: Tensor


class Watched:
    """Read everywhere as the model itself; what is set goes to the model, too."""

    __slots__ = ("hidden", "model", "scores", "words")

    model: Any
    hidden: list[Tensor]
    words: list[Words]
    scores: list[Scores]

    def __init__(self, model: Any) -> None:
        self.model = model
        self.hidden, self.words, self.scores = [], [], []

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for isinstance
        return type(self.model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Watched.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self.model, name, value)

    def __call__(self, *given: Any, **more: Any) -> Tensor:
        y: Tensor = self.model(*given, **more)
        self.hidden.append(y)
        return y

    @property
    def output(self) -> WatchedOutput:
        return WatchedOutput(self.model.output, self.words)

    @property
    def heads(self) -> dict[str, WatchedHead]:
        held: nn.ModuleDict = self.model.heads
        return {name: WatchedHead(name, head, self.scores) for name, head in held.items()}

    def read(self, head: str, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        y: Tensor = self.model.read(head, hidden, real)
        self.scores.append(Scores(head, y))
        return y


class WatchedOutput:
    """The output of a watched model. Its logits are not noted: only what learns is."""

    def __init__(self, output: Any, words: list[Words]) -> None:
        self.inside, self.words = output, words

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)

    def __call__(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.inside(hidden)
        return y

    def surprisal(self, hidden: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        return self.noted(self.inside.surprisal(hidden, targets, shares), hidden, targets, shares)

    def softened(
        self, hidden: Tensor, targets: Tensor, soft: Any, shares: Tensor | None = None
    ) -> Tensor:
        nats = self.inside.softened(hidden, targets, soft, shares)
        return self.noted(nats, hidden, targets, shares)

    def each(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Without a gradient, so nothing is learned from it."""
        y: Tensor = self.inside.each(hidden, targets)
        return y

    def noted(self, nats: Tensor, hidden: Tensor, targets: Tensor, shares: Tensor | None) -> Tensor:
        self.words.append(Words(hidden, targets, shares, nats))
        return nats


class WatchedHead:
    """A head, called by itself; as XLNet's, which is asked for starts, ends and more."""

    def __init__(self, name: str, head: Any, scores: list[Scores]) -> None:
        self.name, self.inside, self.scores = name, head, scores

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inside, name)
        return self.noting(f"{self.name}.{name}", found) if name in ANSWERS else found

    def __call__(self, *given: Any, **more: Any) -> Tensor:
        return self.noting(self.name, self.inside)(*given, **more)

    def noting(self, name: str, ask: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def asked(*given: Any, **more: Any) -> Tensor:
            y = ask(*given, **more)
            self.scores.append(Scores(name, y))
            return y

        return asked
