"""Changes the scores of the next token before one is chosen.

Each processor is a function of the scores [B, V] (logits, or log-probabilities in a beam search)
and of the tokens so far. It returns new scores and does not change the old ones. A forbidden token
has the score -inf. Ties are never broken here: a token as likely as the last kept one is kept, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

SHORTLIST = 512, 8192  # top_p sorts this many tokens first, and all tokens last


class DecodedSoFar(NamedTuple):
    """The tokens so far: the prompt (or a decoder's start token) and the continuation."""

    tokens: Tensor  # [B, T]
    # [B, T]: False at padding, which is never in the last column; None: no padding
    attention_mask: Tensor | None
    new: int  # how many of the tokens come after the prompt


Processor = Callable[[Tensor, DecodedSoFar], Tensor]


def temperature(value: float) -> Processor:
    """Divides the scores; below 1, likely tokens become likelier."""
    return lambda scores, past: scores / value


def top_k(count: int) -> Processor:
    """Keeps the `count` most likely tokens (Fan et al. 2018)."""

    def keep(scores: Tensor, past: DecodedSoFar) -> Tensor:
        least = scores.topk(min(count, scores.size(-1))).values[..., -1, None]
        return scores.masked_fill(scores < least, -math.inf)

    return keep


def top_p(mass: float, among: int = SHORTLIST[0]) -> Processor:
    """Keeps the fewest tokens that together reach `mass` (Holtzman et al. 2019).

    The token that crosses the mass is kept, as in the paper; GPT-2's released code drops it. The
    search first sorts only the best `among` tokens.
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
    """Keeps tokens with surprisal nearest to the entropy, up to `mass` (Meister et al. 2022)."""

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
    """Divides the scores of tokens seen before by the penalty (multiplies if negative; CTRL: Keskar
    et al. 2019)."""

    def punish(scores: Tensor, past: DecodedSoFar) -> Tensor:
        tokens = past.tokens
        if past.attention_mask is not None:
            tokens = torch.where(past.attention_mask, tokens, tokens[:, -1:])
        seen = scores.gather(1, tokens)
        seen = torch.where(seen < 0, seen * penalty, seen / penalty)
        return scores.scatter(1, tokens, seen)

    return punish


def no_repeat(size: int) -> Processor:
    """Forbids every sequence of `size` tokens that has occurred before (Paulus et al. 2017)."""

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
    """Forbids end tokens before `count` new tokens."""
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
    """Applies processors one after the other."""

    def apply(scores: Tensor, past: DecodedSoFar) -> Tensor:
        for processor in processors:
            scores = processor(scores, past)
        return scores

    return apply
