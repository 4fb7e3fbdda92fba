"""What of a batch a student and its teacher are compared by, whatever objective they are asked by.

Both read the same batch in the same way, so their rows correspond one to one. How many rows there
are is known from the batch alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.data.tags import IGNORED
from regard.methods.distill.layers import AttentionScores, StackStates
from regard.methods.distill.losses import (
    among,
    divergence,
    score_squares,
    squares,
    word_divergence,
)
from regard.models.output import SoftTarget
from regard.objectives.base import Batch, Objective
from regard.objectives.source import SourceTarget
from regard.tasks.multi_row import LANGUAGE
from regard.training.capture import Capture, CapturedOutput

MASKED = ("masked", "sentences")
TEXT = (*MASKED, "causal", "recurrent", "prefix", "span", "pairs")
HEADED = ("classify", "choose", "tag", "answer")  # whose answers `head_losses` can compare
SOFT = "soft_"  # before the name of the loss whose answers are softened
REFUSED = "answerable"  # the loss of XLNet's second answer: is there one in the passage?


class UnscoredCapture(Capture):
    """A watched model that computes no loss of guessed words: nobody asks for it, and it is the
    dearest part. An objective takes it for one that learns, so nobody counts what it guesses right.
    """

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


# -- which rows count


def real_rows(objective: Objective, batch: Batch, pair: bool) -> dict[str, Tensor]:
    """Which rows of each stack are no padding, [B, T]; a `pair` has an encoder and a decoder."""
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


def last(rows: dict[str, Tensor]) -> Tensor:
    """Those that a model gives back."""
    return list(rows.values())[-1]


def words_of(objective: Objective) -> str:
    """The loss of guessed words."""
    return "masked" if objective.name in MASKED else objective.name


# -- answers


def answer_counts(objective: Objective, batch: Batch, *, every: bool, pair: bool) -> dict[str, Any]:
    """Over how many rows the softened answers of each loss are compared. Whoever has no label
    has an answer of the teacher's all the same.
    """
    plain = objective.counts(batch)
    if objective.name in TEXT:
        words = words_of(objective)
        count = float(last(real_rows(objective, batch, pair)).sum()) if every else plain[words]
        return {words: count} | ({"next": plain["next"]} if "next" in plain else {})
    if objective.name == "tag":
        return {"tag": float((batch["labels"] != IGNORED).sum())}
    rows = float(batch["gold" if "gold" in batch else "known"].size(0))
    refused = {REFUSED: rows} if REFUSED in plain else {}
    return {objective.name: rows} | refused | {k: v for k, v in plain.items() if k == LANGUAGE}


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
    """How far the student's answers are from the teacher's, by the losses that they belong to."""
    sums: dict[str, Tensor] = {}
    if objective.name in TEXT and every:
        attention_mask = last(real_rows(objective, batch, pair))
        rows = student.hidden[-1][attention_mask], teacher.hidden[-1][attention_mask]
        sums[words_of(objective)] = word_divergence(
            student.model.output, teacher.model.output, rows, None, temperature
        )
    else:
        name = words_of(objective) if objective.name in TEXT else LANGUAGE
        for ours, theirs in zip(student.words, teacher.words, strict=True):
            sums[name] = word_divergence(
                student.model.output,
                teacher.model.output,
                (ours.hidden, theirs.hidden),
                ours.shares,
                temperature,
            )
    for name, each in head_losses(objective, student, teacher, batch, temperature):
        sums[name] = each.sum()
    return sums


def head_losses(
    objective: Any, student: Capture, teacher: Capture, batch: Batch, temperature: float
) -> Iterator[tuple[str, Tensor]]:
    """What each row of the heads' answers loses."""
    both = zip(student.scores, teacher.scores, strict=True)
    pairs = {ours.head: (ours.scores, theirs.scores) for ours, theirs in both}

    def apart(name: str) -> Tensor:
        return divergence(*pairs[name], temperature)

    match objective.name:
        case "sentences" if objective.pairs:
            yield "next", apart("next")
        case "classify" if objective.regression:  # a score, which no temperature softens
            yield "classify", squares(*pairs["classify"])
        case "classify":
            yield "classify", apart("classify")
        case "choose":
            choices = (scores[:, 0][batch["rows"]] for scores in pairs["choose"])
            ours, theirs = (among(scores, batch["held"]) for scores in choices)
            yield "choose", divergence(ours, theirs, temperature)
        case "tag":
            read = batch["labels"] != IGNORED
            ours, theirs = (scores[read] for scores in pairs["tag"])
            yield "tag", divergence(ours, theirs, temperature)
        case "answer":
            places, inside = span_scores(pairs, batch)
            each = (
                divergence(among(ours, inside), among(theirs, inside), temperature)
                for ours, theirs in places
            )
            yield "answer", torch.stack([*each]).mean(0)
            if "span.unanswerable" in pairs:  # a logit of yes or no; the other's is 0
                ours, theirs = (
                    torch.stack([logit, torch.zeros_like(logit)], -1)
                    for logit in pairs["span.unanswerable"]
                )
                yield REFUSED, divergence(ours, theirs, temperature)


def span_scores(
    pairs: dict[str, tuple[Tensor, Tensor]], batch: Batch
) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Of starts and of ends the scores of both models, and where an answer may stand."""
    if "answer" in pairs:
        starts, ends = zip(*(scores.unbind(-1) for scores in pairs["answer"]), strict=True)
        return [starts, ends], batch["attention_mask"]
    return [pairs["span"], pairs["span.ends"]], batch["eligible"]


# -- layers


def layer_sums(
    ours: dict[str, StackStates],
    theirs: dict[str, StackStates],
    rows: dict[str, Tensor],
    mapping: dict[str, list[int]],  # of each stack: the teacher's layer, from 1, for each of ours
    fit: Any,  # from the student's width to the teacher's
    wanted: set[str],
) -> dict[str, Tensor]:
    """TinyBERT's losses of the layers (Jiao et al. 2020, 3.1), each over the rows of a stack."""
    sums: dict[str, Tensor] = {}
    for name, attention_mask in rows.items():
        own, its = ours[name], theirs[name]
        if "embedding" in wanted:
            first = squares(fit(own.hidden[0][attention_mask]), its.hidden[0][attention_mask])
            sums[named(name, "embedding")] = first.sum()
        if "hidden" in wanted:
            each = [
                squares(fit(own.hidden[i][attention_mask]), its.hidden[to][attention_mask]).sum()
                for i, to in enumerate(mapping[name], 1)
            ]
            sums[named(name, "hidden")] = torch.stack(each).sum()
        if "attention" in wanted:
            for part, mine, goal in (
                ("attention", own.scores, its.scores),
                ("cross", own.cross, its.cross),
            ):
                if mine:
                    sums[named(name, part)] = attended(mine, goal, mapping[name], attention_mask)
    return sums


def layer_counts(rows: dict[str, Tensor], wanted: set[str]) -> dict[str, float]:
    """Of what `layer_sums` gives; the rows of a decoder also read the source."""
    counts: dict[str, float] = {}
    for name, attention_mask in rows.items():
        parts: list[str] = [part for part in ("embedding", "hidden", "attention") if part in wanted]
        parts += ["cross"] * (name == "decoder" and "attention" in wanted)
        counts |= dict.fromkeys((named(name, part) for part in parts), float(attention_mask.sum()))
    return counts


def named(stack: str, part: str) -> str:
    return f"{stack}_{part}" if stack else part


def attended(
    ours: list[AttentionScores],
    theirs: list[AttentionScores],
    mapping: list[int],
    attention_mask: Tensor,
) -> Tensor:
    """Summed over the layers and the real rows [B, Q]."""
    total = torch.zeros((), device=attention_mask.device)
    seen: dict[int, Tensor] = {}  # all layers mostly share one pattern
    for mine, to in zip(ours, mapping, strict=True):
        key = id(mine.pattern)
        if key not in seen:
            seen[key] = mine.seen(attention_mask)
        total = total + score_squares(mine.scores, theirs[to - 1].scores, seen[key]).sum()
    return total
