"""What may be done to the scores of the next token before one is chosen.

Each processor is a function of the scores [B, V] (logits, or in a beam search log-probabilities)
and of the past. It gives new scores and leaves the old ones as they are. A forbidden token has the
score -inf. Ties are never broken here: what is as likely as the last one kept is kept too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

SHORTLIST = 512, 8192  # a nucleus is looked for among so many before all are sorted


class DecodedSoFar(NamedTuple):
    """What has been read so far: prompt (or a decoder's start token) and continuation."""

    tokens: Tensor  # [B, T]
    attention_mask: (
        Tensor | None
    )  # [B, T], False at padding, which is never in the last column; None: all
    new: int  # how many of them are not of the prompt


Processor = Callable[[Tensor, DecodedSoFar], Tensor]


def temperature(value: float) -> Processor:
    """Below 1 the likely becomes likelier."""
    return lambda scores, past: scores / value


def top_k(count: int) -> Processor:
    """The `count` most likely tokens (Fan et al. 2018)."""

    def keep(scores: Tensor, past: DecodedSoFar) -> Tensor:
        least = scores.topk(min(count, scores.size(-1))).values[..., -1, None]
        return scores.masked_fill(scores < least, -math.inf)

    return keep


def top_p(mass: float, among: int = SHORTLIST[0]) -> Processor:
    """The fewest tokens that together reach `mass` (Holtzman et al. 2019).

    The token that crosses the mass is kept, as in the paper; GPT-2's released code leaves it out.
    They are first looked for `among` so many.
    """

    def keep(scores: Tensor, past: DecodedSoFar) -> Tensor:
        total, words = scores.logsumexp(-1, keepdim=True), scores.size(-1)
        for count in (among, *SHORTLIST, words):
            best = scores.topk(min(count, words)).values
            p = (best - total).exp()
            if count >= words or bool((p.sum(-1) >= mass).all()):
                break
        before = p.cumsum(-1) - p
        least = best.masked_fill(before >= mass, math.inf).amin(-1, keepdim=True)
        return scores.masked_fill(scores < least, -math.inf)

    return keep


def typical(mass: float) -> Processor:
    """The tokens whose surprisal is nearest to the entropy, up to `mass` (Meister et al. 2022)."""

    def keep(scores: Tensor, past: DecodedSoFar) -> Tensor:
        log_p = scores.log_softmax(-1)
        p = log_p.exp()
        entropy = -(p * log_p).nansum(-1, keepdim=True)
        far = (-log_p - entropy).abs()
        ranked, order = far.sort(-1)
        reached = p.gather(-1, order).cumsum(-1)
        last = (reached < mass).sum(-1, keepdim=True).clamp_max(scores.size(-1) - 1)
        return scores.masked_fill(far > ranked.gather(-1, last), -math.inf)

    return keep


def repetition(penalty: float) -> Processor:
    """Scores of tokens seen before are divided (if negative, multiplied) by the penalty (CTRL:
    Keskar et al. 2019).
    """

    def punish(scores: Tensor, past: DecodedSoFar) -> Tensor:
        tokens = past.tokens
        if past.attention_mask is not None:
            tokens = torch.where(past.attention_mask, tokens, tokens[:, -1:])
        seen = scores.gather(1, tokens)
        seen = torch.where(seen < 0, seen * penalty, seen / penalty)
        return scores.scatter(1, tokens, seen)

    return punish


def no_repeat(size: int) -> Processor:
    """No `size` tokens in a row that have stood there before (Paulus et al. 2017)."""

    def forbid(scores: Tensor, past: DecodedSoFar) -> Tensor:
        tokens, length = past.tokens, past.tokens.size(1)
        if length < size:
            return scores
        grams = tokens.unfold(1, size, 1)  # [B, length - size + 1, size]
        same = (grams[..., :-1] == tokens[:, None, length - size + 1 :]).all(-1)
        if past.attention_mask is not None:
            same &= past.attention_mask[:, : grams.size(1)]
        rows, at = same.nonzero(as_tuple=True)
        banned = scores.clone()
        banned[rows, grams[rows, at, -1]] = -math.inf
        return banned

    return forbid


def at_least(count: int, ends: Sequence[int]) -> Processor:
    """No end before `count` new tokens."""
    listed = list(ends)

    def forbid(scores: Tensor, past: DecodedSoFar) -> Tensor:
        return without(scores, listed) if past.new < count else scores

    return forbid


def banned(ids: Sequence[int]) -> Processor:
    listed = list(ids)
    return lambda scores, past: without(scores, listed)


def without(scores: Tensor, ids: list[int]) -> Tensor:
    left = scores.clone()
    left[:, ids] = -math.inf
    return left


def chain(processors: Sequence[Processor]) -> Processor:
    """One after the other."""

    def apply(scores: Tensor, past: DecodedSoFar) -> Tensor:
        for processor in processors:
            scores = processor(scores, past)
        return scores

    return apply
