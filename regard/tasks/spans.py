"""Searches scores of positions for answer spans.

BERT (4.2): a span scores start_i + end_j, the best one with i <= j is the prediction, and it must
beat the null span at cls by tau. XLNet: a beam over starts, and over ends given each start, with
joint probabilities, and a separate logit that says whether there is an answer. Here spans that
cannot be answers are left out before the best are chosen, and BERT's search is exact; the authors'
scripts choose the best positions first, and may be left with none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels import wide
from regard.core.errors import InputError
from regard.data.windows import QuestionWindows
from regard.tasks.base import Prediction

NEVER = -math.inf


class Spans(NamedTuple):
    """Spans [W, N], best first. If a window has fewer spans, the score of the others is -inf."""

    scores: Tensor
    starts: Tensor
    ends: Tensor


@dataclass(frozen=True)
class SpanCandidate:
    text: str
    begin: int  # characters of the passage, as is `end`
    end: int
    score: float
    probability: float  # among the candidates (and the null answer, if it competes)


@dataclass(frozen=True)
class SpanAnswer:
    """The answer to a question. Candidates are best first. The question is left unanswered if
    `null` is above tau."""

    candidates: tuple[SpanCandidate, ...]
    null: float | None  # None: every question has an answer

    def found(self, tau: float = 0.0) -> SpanCandidate | None:
        if not self.candidates or (self.null is not None and self.null > tau):
            return None
        return self.candidates[0]


# -- spans of windows. Shapes: W windows, L positions, K starts of a beam, A tokens of an answer


def best_spans(
    starts: Tensor,  # [W, L]
    ends: Tensor,  # [W, L]
    fullest: Tensor,  # [W, L]: where an answer may begin
    passage: Tensor,  # [W, L]: where it may end
    *,
    longest: int = 30,
    count: int = 20,
) -> Spans:
    """Returns each window's spans of at most `longest` tokens with the highest start + end."""
    starts = wide(starts).masked_fill(~(fullest & passage), NEVER)
    ends = wide(ends).masked_fill(~passage, NEVER)
    length = starts.shape[1]
    longest = min(longest, length)
    later = torch.nn.functional.pad(ends, (0, longest - 1), value=NEVER)
    scores = starts[:, :, None] + later.unfold(1, longest, 1)  # [W, L, A]
    best = scores.flatten(1).topk(min(count, length * longest))
    first = best.indices // longest
    return Spans(best.values, first, (first + best.indices % longest).clamp(max=length - 1))


def null_scores(starts: Tensor, ends: Tensor, cls: Tensor) -> Tensor:
    """Returns the score of the span at cls, [W]."""
    place = cls[:, None]
    return (wide(starts).gather(1, place) + wide(ends).gather(1, place)).squeeze(1)


def beam_starts(
    starts: Tensor,  # [W, L]
    fullest: Tensor,
    eligible: Tensor,  # [W, L]: the passage and cls, over which probabilities are normalized
    *,
    count: int = 5,
) -> tuple[Tensor, Tensor]:
    """Returns the likeliest starts: log-probabilities [W, K] and positions [W, K]."""
    known = wide(starts).masked_fill(~eligible, NEVER).log_softmax(1)
    best = known.masked_fill(~fullest, NEVER).topk(min(count, starts.shape[1]))
    return best.values, best.indices


def beam_spans(
    known: Tensor,  # [W, K]: the log-probabilities of beam_starts
    places: Tensor,  # [W, K]: the positions of beam_starts
    ends: Tensor,  # [W, K, L]: logits of the end, given each of these starts
    passage: Tensor,
    eligible: Tensor,
    *,
    longest: int = 64,
    count: int = 5,
) -> Spans:
    """Returns spans with the likeliest ends of each start. A span scores log p(start) + log p(end |
    start)."""
    length = ends.shape[2]
    chances = wide(ends).masked_fill(~eligible[:, None], NEVER).log_softmax(2)
    ahead = torch.arange(length, device=ends.device) - places[:, :, None]
    fits = passage[:, None] & (ahead >= 0) & (ahead < longest)
    best = chances.masked_fill(~fits, NEVER).topk(min(count, length))
    scores = (known[:, :, None] + best.values).flatten(1)
    starts = places[:, :, None].expand_as(best.indices).flatten(1)
    order = scores.argsort(dim=1, descending=True, stable=True)
    return Spans(
        scores.gather(1, order), starts.gather(1, order), best.indices.flatten(1).gather(1, order)
    )


# -- answers of questions


def reply(
    read: QuestionWindows,
    rows: Sequence[Sequence[tuple[float, int, int]]],  # of each window: score, start, end
    null: float | None,  # the lowest score of the null answer among the windows
    *,
    versus: bool,
    count: int,
) -> SpanAnswer:
    """Merges the windows of a question. The same text counts once, with its best score.

    BERT's null answer competes with the best span (`versus`): null = s_null - s_best. XLNet's logit
    does not compete with the spans.
    """
    scored = [
        (score, window.token(start), window.token(end))
        for window, spans in zip(read.windows, rows, strict=True)
        for score, start, end in spans
        if score > NEVER
    ]
    scored.sort(key=lambda span: -span[0])
    places: dict[str, tuple[float, int, int]] = {}
    for score, first, last in scored:
        begin, end = read.characters(first, last)
        text = read.example.passage[begin:end]
        if text.strip() and text not in places:
            places[text] = score, begin, end
        if len(places) == count:
            break
    scores = [score for score, _, _ in places.values()]
    chances = softmax([*scores, null] if versus and null is not None else scores)
    candidates = tuple(
        SpanCandidate(text, begin, end, score, chance)
        for (text, (score, begin, end)), chance in zip(places.items(), chances, strict=False)
    )
    if null is not None and versus:
        null -= scores[0] if scores else NEVER
    return SpanAnswer(candidates, null)


def softmax(scores: Sequence[float]) -> list[float]:
    top = max(scores, default=0.0)
    weights = [math.exp(score - top) for score in scores]
    return [weight / sum(weights) for weight in weights]


def tune(
    nulls: Sequence[float],  # of each question: what is compared with tau
    scores: Sequence[float],  # of its best answer, in [0, 1]: exact match or F1
    answerable: Sequence[bool],
) -> tuple[float, float]:
    """Returns the tau with the highest mean score, and that score (`find_best_thresh`, SQuAD 2.0).

    Answering an answerable question earns its score; answering an unanswerable one loses the point
    that refusing earns. Unlike in the official script, questions of equal null are answered
    together, since no tau can separate them, and refusing all questions is a tau below all nulls,
    not 0: differences of logits may be negative.
    """
    if not len(nulls) == len(scores) == len(answerable):
        raise InputError(
            f"there are {len(nulls)} nulls, {len(scores)} scores and {len(answerable)} entries of "
            "answerable; give one of each for every question"
        )
    if len(nulls) == 0:
        return 0.0, 0.0
    order = np.argsort(np.asarray(nulls, float), kind="stable")
    null = np.asarray(nulls, float)[order]
    known = np.asarray(answerable, bool)[order]
    gains = np.where(known, np.asarray(scores, float)[order], -1.0)
    totals = np.concatenate([[0.0], gains.cumsum()]) + (~known).sum()
    last = np.append(np.diff(null) > 0, True)  # is it the last of the questions of equal null?
    totals[1:][~last] = -np.inf
    best = int(totals.argmax())
    tau = null[0] - 1.0 if best == 0 else null[best - 1]
    return float(tau), float(totals[best] / len(null))


def prediction(reply: SpanAnswer, tau: float, versus: bool) -> Prediction:
    """Returns the prediction. Probabilities are those among the candidates and, if the question may
    be unanswerable, "no answer"."""
    none, share = None, 1.0
    if reply.null is not None and versus:
        none = 1.0 - sum(one.probability for one in reply.candidates)
    elif reply.null is not None:
        none = 1.0 / (1.0 + math.exp(-max(reply.null, -700.0)))
        share = 1.0 - none
    candidates = [(c.text, c.begin, c.end, share * c.probability) for c in reply.candidates]
    scores = {"null": reply.null, "candidates": candidates}
    best = reply.found(tau)
    if best is None:
        return Prediction("", none, scores)
    return Prediction(best.text, share * best.probability, scores)
