"""R-Drop (Liang et al. 2021): two passes with different dropout should agree.

The training loss is the mean of both losses plus weight · ½ (KL(p₁‖p₂) + KL(p₂‖p₁)) of the
distributions from which the losses were computed. The paper adds the two losses up, so that its α
is twice this weight.

The distributions are those of the heads, as the objective returns them (`Objective.head_answers`),
and those of a language model's words. A score that is not a distribution stands for a normal one
whose logarithm its loss is, so the divergence of two scores is their squared difference.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels import wide
from regard.core.errors import ConfigError
from regard.models.output import CHUNK
from regard.models.state import State
from regard.objectives import OBJECTIVES
from regard.objectives import objective as find
from regard.objectives.base import Batch, HeadAnswers, Loss, Objective
from regard.objectives.mixture import Mixture
from regard.training.capture import Capture, CapturedRows

APART = "_apart"  # the suffix of a loss's name for its divergence


class SequenceCounter(Protocol):
    """Counts the sequences that a pass reads."""

    call: int


def agreeing(objective: Objective, weight: float, calls: SequenceCounter | None = None) -> Any:
    """Returns the objective with R-Drop's loss; samples and validation do not change."""
    if not isinstance(objective, Mixture):
        return RDrop(objective, weight, calls)
    mixture = copy(objective)
    parts: dict[str, Any] = {n: RDrop(part, weight, calls) for n, part in objective.parts.items()}
    mixture.parts = parts
    mixture.weights = objective.weights | {
        name + APART: weight * objective.weights[name] for name in objective.names()
    }
    mixture.sums = {
        part: [*names, *(name + APART for name in names)] for part, names in objective.sums.items()
    }
    return mixture


class RDrop:
    """The objective that a loop trains with, with the loss of two passes. Everything else (samples,
    heads, metrics) comes from the objective inside."""

    def __init__(
        self, objective: Objective, weight: float, calls: SequenceCounter | None = None
    ) -> None:
        if not objective.comparable:
            able = [name for name in OBJECTIVES if find(name).comparable]
            raise ConfigError(
                f"robust.rdrop compares the predictions of two passes, but it does not know what "
                f"{objective.name!r} says; choose one of {', '.join(able)}, or a task with labels "
                "or positions, or set robust.rdrop to 0"
            )
        self.inner, self.calls = objective, calls
        self.seq_len, self.recurrent = objective.seq_len, objective.recurrent
        self.names = list(objective.counts(objective.collate([objective.get(0)])))
        own = objective.weights
        self.weights = own | {name + APART: weight * own.get(name, 1.0) for name in self.names}

    def __len__(self) -> int:
        return len(self.inner)

    def begin(self, model: Any, rows: int) -> State | None:
        return self.inner.begin(model, rows)

    def tokens_in(self, batch: Batch) -> int | None:
        return self.inner.tokens_in(batch)

    def counts(self, batch: Batch) -> dict[str, float]:
        counts = self.inner.counts(batch)
        return counts | {name + APART: count for name, count in counts.items()}

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        """Runs both passes on the same words, with the same noise, from the same memory."""
        past, start = copy(state), 0 if self.calls is None else self.calls.call
        one, two = Capture(model), Capture(model)
        first = self.inner.loss(one, batch, state)
        if self.calls is not None:
            self.calls.call = start
        second = self.inner.loss(two, batch, past)
        sums = {name: (value + second.sums[name]) / 2 for name, value in first.sums.items()}
        return Loss(sums | self.apart(one, two, batch), self.counts(batch), first.seen)

    def apart(self, one: Capture, two: Capture, batch: Batch) -> dict[str, Tensor]:
        """Returns the divergence of each loss, summed as the losses are."""
        device = next(one.model.parameters()).device
        sums = {name: torch.zeros((), device=device) for name in self.names}
        first, second = (self.inner.head_answers(seen.by_head, batch) for seen in (one, two))
        for a, b in zip(first, second, strict=True):
            sums[a.loss_name] = sums[a.loss_name] + head_divergence(a, b)
        name = self.inner.word_loss
        for mine, other in zip(one.words, two.words, strict=True):
            sums[name] = sums[name] + words(one.model.output, mine, other)
        return {name + APART: value for name, value in sums.items()}


def divergence(a: Tensor, b: Tensor, inside: Tensor | None = None) -> Tensor:
    """Returns ½ (KL(p‖q) + KL(q‖p)) of logits [..., K], which is ½ Σ (p - q)(log p - log q). If
    `inside` [..., K] is given, only its classes exist."""
    if inside is not None:
        a, b = (x.masked_fill(~inside, -torch.inf) for x in (a, b))
    p, q = F.log_softmax(a, -1), F.log_softmax(b, -1)
    ratio = p - q if inside is None else (p - q).masked_fill(~inside, 0.0)
    return ((p.exp() - q.exp()) * ratio).sum(-1) / 2


def head_divergence(one: HeadAnswers, two: HeadAnswers) -> Tensor:
    """Returns the divergence of a head's answers to one batch, summed as its loss is."""
    a, b = wide(one.scores), wide(two.scores)
    each = (a - b)[..., 0].square() if one.regression else divergence(a, b, one.eligible)
    if one.shares is None:
        return each.sum()
    if each.ndim > one.shares.ndim:  # a row has several distributions
        each = each.mean(-1)
    return (each * one.shares).sum()


def words(output: Any, one: CapturedRows, two: CapturedRows) -> Tensor:
    """Returns the divergence of rows that predict words. Logits are computed for a few rows at a
    time, and again for the gradient."""

    def part(a: Tensor, b: Tensor, share: Tensor | None) -> Tensor:
        each = divergence(wide(output(a)), wide(output(b)))
        return (each if share is None else each * share).sum()

    vocabulary = output.edges[-1] if hasattr(output, "edges") else output.weight.size(0)
    rows = max(1, CHUNK // (2 * vocabulary))
    mine, other = one.hidden.split(rows), two.hidden.split(rows)
    shares: Any = [None] * len(mine) if one.shares is None else one.shares.split(rows)
    sums = [
        checkpoint(part, *chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in zip(mine, other, shares, strict=True)
    ]
    return torch.stack(sums).sum()
