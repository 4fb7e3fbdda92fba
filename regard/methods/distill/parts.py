"""The parts of a batch by which a student and its teacher are compared, for every objective.

Both models read the same batch in the same way, so their rows correspond one to one. The number of
rows is known from the batch alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core.errors import UnknownName
from regard.methods.distill.layers import AttentionScores, StackStates
from regard.methods.distill.losses import (
    among,
    divergence,
    score_squares,
    squares,
    word_divergence,
)
from regard.models.output import SoftTarget
from regard.objectives import OBJECTIVES
from regard.objectives import objective as find
from regard.objectives.base import Batch, HeadAnswers, Objective
from regard.objectives.source import SourceTarget
from regard.tasks.data import learners
from regard.training.capture import Capture, CapturedOutput

SOFT = "soft_"  # the prefix of the name of a loss whose logits are softened


class UnscoredCapture(Capture):
    """A captured model that skips the loss of the predicted tokens, because nobody uses it and it
    is the most expensive part. It claims to be in training mode, so that the objective does not
    count correct predictions."""

    @property
    def training(self) -> bool:
        return True

    @property
    def output(self) -> CapturedOutput:
        return UnscoredOutput(self.model.output, self.words)


class UnscoredOutput(CapturedOutput):
    def surprisal(self, hidden: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        return self.noted(hidden.new_zeros(()), hidden, targets, shares)

    def softened(
        self, hidden: Tensor, targets: Tensor, soft: SoftTarget, shares: Tensor | None = None
    ) -> Tensor:
        return self.surprisal(hidden, targets, shares)


# -- which objectives can be distilled


def can_be_distilled(kind: type[Objective]) -> bool:
    """Returns whether an objective can be distilled. In an objective with query rows, the rows that
    predict a token are not the tokens of the batch, by which hidden states are compared."""
    return kind.comparable and not kind.queries


def is_text_objective(name: str | None) -> bool:
    """Returns whether this is the name of an objective that learns from text and can be
    distilled."""
    return name in OBJECTIVES and can_be_distilled(find(name))


def distilled_kind(name: str) -> type[Objective]:
    """Returns the class of the objective to distill."""
    others = learners()
    known = OBJECTIVES | others
    if name not in known or not can_be_distilled(find(name, others)):
        able = [other for other in known if can_be_distilled(find(other, others))]
        raise UnknownName("objective to distill", name, able)
    return find(name, others)


# -- which rows count


def real_rows(objective: Objective, batch: Batch, pair: bool) -> dict[str, Tensor]:
    """Returns the rows of each stack that are not padding, [B, T]. With `pair`, the model is an
    encoder-decoder."""
    if isinstance(objective, SourceTarget):
        if pair:
            return {"encoder": batch["source_attention_mask"], "decoder": batch["target_scored"]}
        width = batch["tokens"].size(1) - 1
        place = torch.arange(width, device=batch["tokens"].device)
        return {"": place < batch["sizes"].sum(1, keepdim=True) - 1}
    if "scored" in batch:
        return {"": batch["scored"]}
    attention_mask = batch.get("attention_mask")
    return {
        "": torch.ones_like(batch["tokens"], dtype=torch.bool)
        if attention_mask is None
        else attention_mask
    }


def last_rows(rows: dict[str, Tensor]) -> Tensor:
    """Returns the rows of the last stack, whose hidden states the model returns."""
    return list(rows.values())[-1]


# -- answers


def answer_counts(objective: Objective, batch: Batch, *, every: bool, pair: bool) -> dict[str, Any]:
    """Returns the number of rows whose softened logits are compared, for each loss. Rows without a
    label count as well, because the teacher has an answer for them."""
    counts = objective.counts(batch) | objective.answer_counts(batch)
    if every:
        counts[objective.word_loss] = float(last_rows(real_rows(objective, batch, pair)).sum())
    return counts


def answer_sums(
    objective: Any,
    student: Capture,
    teacher: Capture,
    batch: Batch,
    *,
    temperature: float,
    every: bool,
    pair: bool,
) -> dict[str, Tensor]:
    """Returns the summed divergence of the student's answers from the teacher's, for each loss."""
    rows: list[tuple[Tensor, Tensor, Tensor | None]] = [
        (own.hidden, its.hidden, own.shares)
        for own, its in zip(student.words, teacher.words, strict=True)
    ]
    if every:
        attention_mask = last_rows(real_rows(objective, batch, pair))
        rows = [(student.hidden[-1][attention_mask], teacher.hidden[-1][attention_mask], None)]
    sums: dict[str, Tensor] = {}
    for own, its, shares in rows:
        outputs = student.model.output, teacher.model.output
        sums[objective.word_loss] = word_divergence(*outputs, (own, its), shares, temperature)
    first, second = (objective.head_answers(seen.by_head, batch) for seen in (student, teacher))
    for ours, theirs in zip(first, second, strict=True):
        sums[ours.loss_name] = head_divergence(ours, theirs, temperature).sum()
    return sums


def head_divergence(student: HeadAnswers, teacher: HeadAnswers, temperature: float) -> Tensor:
    """Returns the loss of each row of a head's answers. Regression scores ignore the
    temperature."""
    ours, theirs = student.scores, teacher.scores
    if student.asked is not None:
        ours, theirs = ours[student.asked], theirs[student.asked]
    if student.regression:
        return squares(ours, theirs)
    if student.eligible is not None:
        ours, theirs = among(ours, student.eligible), among(theirs, student.eligible)
    each = divergence(ours, theirs, temperature)
    return each if each.ndim == 1 else each.mean(-1)  # a row may hold several distributions


# -- layers


def layer_sums(
    ours: dict[str, StackStates],
    theirs: dict[str, StackStates],
    rows: dict[str, Tensor],
    mapping: dict[str, list[int]],  # by stack: the teacher's layer (from 1) for each of ours
    fit: Any,  # from the student's width to the teacher's
    wanted: set[str],
) -> dict[str, Tensor]:
    """Returns TinyBERT's losses of the layers (Jiao et al. 2020, 3.1), each summed over the rows of
    a stack."""
    sums: dict[str, Tensor] = {}
    for name, attention_mask in rows.items():
        own, its = ours[name], theirs[name]
        if "embedding" in wanted:
            first = squares(fit(own.hidden[0][attention_mask]), its.hidden[0][attention_mask])
            sums[loss_name(name, "embedding")] = first.sum()
        if "hidden" in wanted:
            each = [
                squares(fit(own.hidden[i][attention_mask]), its.hidden[to][attention_mask]).sum()
                for i, to in enumerate(mapping[name], 1)
            ]
            sums[loss_name(name, "hidden")] = torch.stack(each).sum()
        if "attention" in wanted:
            for part, mine, goal in (
                ("attention", own.scores, its.scores),
                ("cross", own.cross, its.cross),
            ):
                if mine:
                    sums[loss_name(name, part)] = attention_sum(
                        mine, goal, mapping[name], attention_mask
                    )
    return sums


def layer_counts(rows: dict[str, Tensor], wanted: set[str]) -> dict[str, float]:
    """Returns the number of rows for each loss of `layer_sums`. The rows of a decoder also attend
    to the source."""
    counts: dict[str, float] = {}
    for name, attention_mask in rows.items():
        parts: list[str] = [part for part in ("embedding", "hidden", "attention") if part in wanted]
        parts += ["cross"] * (name == "decoder" and "attention" in wanted)
        counts |= dict.fromkeys(
            (loss_name(name, part) for part in parts), float(attention_mask.sum())
        )
    return counts


def loss_name(stack: str, part: str) -> str:
    return f"{stack}_{part}" if stack else part


def attention_sum(
    ours: list[AttentionScores],
    theirs: list[AttentionScores],
    mapping: list[int],
    attention_mask: Tensor,
) -> Tensor:
    """Returns the loss of the attention scores, summed over the layers and over the rows [B, Q]
    that are not padding."""
    total = torch.zeros((), device=attention_mask.device)
    seen: dict[int, Tensor] = {}  # usually all layers share one pattern
    for mine, to in zip(ours, mapping, strict=True):
        key = id(mine.pattern)
        if key not in seen:
            seen[key] = mine.seen(attention_mask)
        total = total + score_squares(mine.scores, theirs[to - 1].scores, seen[key]).sum()
    return total
