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

    def lengths(self) -> Tensor:
        """Returns the number of tokens of each row [B], without padding."""
        if self.attention_mask is None:
            return torch.full_like(self.tokens[:, 0], self.tokens.size(1))
        return self.attention_mask.sum(1)


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


def suppressed(ids: Sequence[int]) -> Processor:
    listed = list(ids)
    return lambda scores, past: without(scores, listed)


def suppressed_first(ids: Sequence[int], forced: bool) -> Processor:
    """Forbids ids as the first new token, or as the first after a token that is `forced`."""
    listed = list(ids)

    def forbid(scores: Tensor, past: DecodedSoFar) -> Tensor:
        before = past.lengths() - past.new
        first = torch.where(before > 1, 0, int(forced)) == past.new
        return torch.where(first[:, None], without(scores, listed), scores)

    return forbid


def bad_words(words: Sequence[Sequence[int]]) -> Processor:
    """Forbids the last id of each sequence where the ids before it have just been read."""
    single = [word[0] for word in words if len(word) == 1]
    several = [list(word) for word in words if len(word) > 1]

    def forbid(scores: Tensor, past: DecodedSoFar) -> Tensor:
        left = without(scores, single)
        for *start, last in several:
            if len(start) > past.tokens.size(1):
                continue
            read = past.tokens[:, -len(start) :] == past.tokens.new_tensor(start)
            rows = read.all(1) & (past.lengths() >= len(start))
            left[:, last] = left[:, last].masked_fill(rows, -math.inf)
        return left

    return forbid


def forced_first(token: int) -> Processor:
    """Allows only this token after a single first one, with the score 0, as transformers does."""

    def force(scores: Tensor, past: DecodedSoFar) -> Tensor:
        return torch.where((past.lengths() == 1)[:, None], only(scores, [token]), scores)

    return force


def forced_last(ids: Sequence[int], most: int) -> Processor:
    """Allows only these tokens as the last of `most` new tokens, with the score 0."""
    listed = list(ids)

    def force(scores: Tensor, past: DecodedSoFar) -> Tensor:
        return only(scores, listed) if past.new == most - 1 else scores

    return force


def only(scores: Tensor, ids: list[int]) -> Tensor:
    forced = torch.full_like(scores, -math.inf)
    forced[:, ids] = 0.0
    return forced


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
