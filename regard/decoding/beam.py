"""Beam search: finds the likeliest texts, with log-probabilities divided by a length penalty.

Each step considers so many candidates that `width` of them do not end the text; ended candidates
are stored as results. Only the best `width` candidates may end, as in transformers. Three rules say
when a prompt is done:

    certain   no open beam can beat the results any more, however long it grows (tensor2tensor;
              transformers: early_stopping="never")
    estimate  no open beam would beat the worst result if it ended now (transformers: False)
    full      there are as many results as beams (transformers: True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.decode_state import DecodeState
from regard.decoding.processors import Processor
from regard.decoding.sampling import TopLogprobs, forbidden, likeliest


@dataclass(frozen=True)
class Hypothesis:
    """A finished text: its new tokens, their log-probabilities, and its penalized score."""

    tokens: list[int]
    logprobs: list[float]
    score: float
    ended: bool  # True if an end token or a stop word ended it; False: the limit
    top_logprobs: list[TopLogprobs] = field(default_factory=list)  # [] unless they are recorded


def paper(length: int, alpha: float) -> float:
    """Returns ((5 + n) / 6)^α (Wu et al. 2016; Vaswani et al. 2017; Raffel et al. 2019)."""
    return ((5 + length) / 6) ** alpha


def common(length: int, alpha: float) -> float:
    return float(length**alpha)


PENALTIES: dict[str, Callable[[int, float], float]] = {"paper": paper, "common": common}


@dataclass(frozen=True)
class Rules:
    """The settings of a search: its size, its score, and when it stops."""

    width: int
    best: int = 1  # the number of results of each prompt
    penalty: str = "paper"
    alpha: float = 0.6
    stopping: str = "certain"
    limit: int = 100  # the most new tokens
    ends: Sequence[int] = ()
    top_logprobs: int = 0  # how many of the likeliest tokens are recorded at each place

    def score(self, logprob: float, length: int) -> float:
        return logprob / PENALTIES[self.penalty](length, self.alpha)

    def satisfied(self, alive: float, results: list[Hypothesis], length: int) -> bool:
        """Returns whether the best open beam, of this length, no longer has to be followed."""
        wanted = self.best if self.stopping == "certain" else self.width
        if alive == -math.inf or len(results) < wanted:
            return alive == -math.inf
        grown = self.limit if self.stopping == "certain" and self.alpha > 0 else length
        return self.stopping == "full" or self.score(alive, grown) <= results[wanted - 1].score


class BeamCandidates(NamedTuple):
    """The best continuations of each prompt, the likeliest first; each tensor is [prompts, C]."""

    total: Tensor  # the log-probability of the whole text
    parent: Tensor  # the row that it continues
    token: Tensor
    own: Tensor  # the log-probability of the token under the model itself


class Beams:
    """One search over the prompts of a batch; row i · width + j is beam j of prompt i."""

    def __init__(
        self,
        reader: DecodeState,
        rules: Rules,
        process: Processor | None = None,
        stops: Callable[[int, list[int]], bool] | None = None,  # whether tokens end a text
    ) -> None:
        self.reader, self.rules, self.process, self.stops = reader, rules, process, stops

    @torch.inference_mode()
    def search(self, logits: Tensor) -> list[list[Hypothesis]]:
        """Returns the `best` texts of each prompt, likeliest first, from the prompts' logits."""
        self.begin(logits)
        while (tokens := self.advance(logits)) is not None:
            logits = self.reader.read(tokens)
        return self.best()

    def begin(self, logits: Tensor) -> None:
        count = logits.size(0)
        self.results: list[list[Hypothesis]] = [[] for _ in range(count)]
        self.numbers, self.open = list(range(count)), set(range(count))  # prompts in the batch
        self.logprobs = logits.new_zeros(count * self.rules.width, self.rules.limit)
        rows = count * self.rules.width
        self.trails: list[list[TopLogprobs]] = [[] for _ in range(rows)]  # of each row
        self.scores, self.step = logits.new_zeros(count, 1), 0

    def advance(self, logits: Tensor) -> Tensor | None:
        """Follows the best beams and returns the token that each row reads next; None at the end
        of the search."""
        self.step += 1
        last = self.step == self.rules.limit
        candidates = self.candidates(logits, self.scores)
        over = self.over(candidates, last)
        self.collect(candidates, over, self.step)
        if last:
            return None
        self.scores, token = self.go_on(candidates, over, self.step)
        self.close(self.scores, self.step)
        if not self.open:
            return None
        if 2 * len(self.open) <= len(self.numbers):
            self.scores, token = self.leave(self.scores, token)
        return token.flatten()

    def best(self) -> list[list[Hypothesis]]:
        if not all(self.results):
            raise forbidden()
        return [candidates[: self.rules.best] for candidates in self.results]

    def candidates(self, logits: Tensor, scores: Tensor) -> BeamCandidates:
        """Returns so many candidates that `width` remain even if all others end."""
        own = logits.log_softmax(-1)
        log_p = own
        if self.rules.top_logprobs:
            same = len(self.trails) // own.size(0)  # at first, logits have one row per prompt
            best = likeliest(own, self.rules.top_logprobs)
            self.likeliest = [row for row in best for _ in range(same)]
        if self.process is not None:
            past = self.reader.past()
            same = past.tokens.size(0) // logits.size(0)  # at first, logits have one row per prompt
            attention_mask = None if past.attention_mask is None else past.attention_mask[::same]
            log_p = self.process(
                own, past._replace(tokens=past.tokens[::same], attention_mask=attention_mask)
            )
        words = logits.size(1)
        sums = (log_p.view(*scores.shape, words) + scores[..., None]).flatten(1)
        count = max(2, 1 + len(self.rules.ends)) * self.rules.width
        total, index = sums.topk(min(count, sums.size(1)))
        first = torch.arange(sums.size(0), device=index.device)[:, None] * self.rules.width
        token = index % words
        return BeamCandidates(
            total, first + index // words, token, own.view_as(sums).gather(1, index)
        )

    def over(self, candidates: BeamCandidates, last: bool) -> Tensor:
        """Returns which candidates end here."""
        if last:
            return torch.ones_like(candidates.token, dtype=torch.bool)
        ends = torch.tensor(list(self.rules.ends), device=candidates.token.device)
        over = torch.isin(candidates.token, ends)
        if self.stops is not None:
            read = self.reader.tokens[:, self.reader.prompt : self.reader.length].tolist()
            stopped = [
                [self.stops(number, [*read[p], t]) for p, t in zip(parents, tokens, strict=True)]
                for number, parents, tokens in zip(
                    self.numbers, candidates.parent.tolist(), candidates.token.tolist(), strict=True
                )
            ]
            over |= torch.tensor(stopped, device=over.device)
        return over

    def collect(self, candidates: BeamCandidates, over: Tensor, step: int) -> None:
        """Stores the ended candidates among the best `width`."""
        width, read = self.rules.width, self.reader
        good = (over & ~candidates.total.isneginf())[:, :width]
        for i, place in good.nonzero().tolist():
            if self.numbers[i] not in self.open:
                continue
            results = self.results[self.numbers[i]]
            score = self.rules.score(float(candidates.total[i, place]), step)
            if len(results) == width and score <= results[-1].score:
                continue
            row, token = int(candidates.parent[i, place]), int(candidates.token[i, place])
            tokens = [*read.tokens[row, read.prompt : read.length].tolist(), token]
            logprobs = [*self.logprobs[row, : step - 1].tolist(), float(candidates.own[i, place])]
            ended = step < self.rules.limit or token in self.rules.ends
            trail = [*self.trails[row], self.likeliest[row]] if self.rules.top_logprobs else []
            results.append(Hypothesis(tokens, logprobs, score, ended, trail))
            results.sort(key=lambda each: -each.score)
            del results[width:]

    def go_on(self, candidates: BeamCandidates, over: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Makes the `width` best candidates that have not ended the new beams. If there are fewer,
        the other beams are dead: they have probability 0."""
        width, open_ = self.rules.width, candidates.total.masked_fill(over, -math.inf)
        lacking = max(0, width - open_.size(1))
        scores, place = F.pad(open_, (0, lacking), value=-math.inf).topk(width)
        place = place.clamp_max(open_.size(1) - 1)
        parent, token, own = (x.gather(1, place) for x in candidates[1:])
        rows = parent.flatten()
        self.reader.follow(rows)
        self.logprobs[:, : step - 1] = self.logprobs[rows, : step - 1]
        self.logprobs[:, step - 1] = own.flatten()
        if self.rules.top_logprobs:
            self.trails = [[*self.trails[row], self.likeliest[row]] for row in rows.tolist()]
        return scores, token

    def close(self, scores: Tensor, step: int) -> None:
        for number, alive in zip(self.numbers, scores[:, 0].tolist(), strict=True):
            if self.rules.satisfied(alive, self.results[number], step):
                self.open.discard(number)

    def leave(self, scores: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Removes the rows of finished prompts."""
        going = [i for i, number in enumerate(self.numbers) if number in self.open]
        self.numbers = [self.numbers[i] for i in going]
        staying = torch.tensor(going, device=token.device)
        beams = torch.arange(self.rules.width, device=token.device)
        rows = (staying[:, None] * self.rules.width + beams).flatten()
        self.reader.keep(rows)
        self.logprobs = self.logprobs[rows]
        self.trails = [self.trails[row] for row in rows.tolist()]
        return scores[staying], token[staying]
