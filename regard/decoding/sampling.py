"""Greedy decoding and sampling: one token per row and step, until all rows have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.attention.native.decode import peaks
from regard.core.errors import InputError
from regard.core.seeding import keyed
from regard.decoding.decode_state import DecodeState
from regard.decoding.processors import Processor

BLOCK = 256  # the random numbers of one sequence that are drawn at a time


class Pick(Protocol):
    def __call__(self, scores: Tensor, numbers: Sequence[int], step: int) -> Tensor:
        """Chooses one token for each of the sequences `numbers` from their scores [B, V]."""


class SampledToken(NamedTuple):
    """A token of a sequence, and its log-probability under the model itself."""

    number: int
    token: int
    logprob: float
    top_logprobs: TopLogprobs


TopLogprobs = list[tuple[int, float]]  # the likeliest tokens of a place, the best first


class StepScores(NamedTuple):
    """The logits [rows, V] of a step, and what every choice among them needs. Over the rows of many
    prompts at once, it costs far less than row by row."""

    logits: Tensor
    total: Tensor  # [rows, 1]: the logarithm of the sum of exponentials
    best: Tensor  # [rows]: the likeliest token
    logprob: Tensor  # [rows]: its log-probability

    @classmethod
    def of(cls, logits: Tensor) -> StepScores:
        best, total = peaks(logits)
        return cls(logits, total[:, None], best, logits.gather(1, best[:, None])[:, 0] - total)

    def rows(self, places: Sequence[int]) -> StepScores:
        """Returns some of the rows; those that stand side by side are not copied."""
        first, count = places[0], len(places)
        at = slice(first, first + count)
        if list(places) == list(range(len(self.logits))):
            return self
        if list(places) != list(range(first, first + count)):
            return StepScores(*(part[list(places)] for part in self))
        return StepScores(*(part[at] for part in self))


def likeliest(logprobs: Tensor, count: int) -> list[TopLogprobs]:
    """Returns for each row [B, V] its `count` likeliest tokens."""
    best = logprobs.topk(min(count, logprobs.size(-1)))
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [list(zip(ids, values, strict=True)) for ids, values in rows]


def greedy(scores: Tensor, numbers: Sequence[int], step: int) -> Tensor:
    return scores.argmax(-1)


class Sampler:
    """Samples tokens; a draw is a function of (seed, prompt, sample, step), whatever the batch."""

    def __init__(self, seed: int, keys: Sequence[tuple[int, int]]) -> None:
        self.seed, self.keys = seed, keys  # for each sequence the numbers of its prompt and sample
        self.blocks: dict[int, np.ndarray] = {}

    def __call__(self, scores: Tensor, numbers: Sequence[int], step: int) -> Tensor:
        at = torch.tensor([self.number(n, step) for n in numbers], dtype=torch.float64)
        device = scores.device
        scores = scores.cpu() if device.type == "mps" else scores  # MPS has no float64
        reached = scores.softmax(-1).cumsum(-1, dtype=torch.float64)
        total = reached[:, -1:]
        point = torch.minimum(at.to(scores.device)[:, None] * total, total.nextafter(total * 0))
        return torch.searchsorted(reached, point, right=True)[:, 0].to(device)

    def number(self, sequence: int, step: int) -> float:
        """Returns a uniform number from 0 to 1 for this sequence and step."""
        block, at = divmod(step, BLOCK)
        if at == 0 or sequence not in self.blocks:
            dice = keyed(self.seed, "decoding", *self.keys[sequence], block)
            self.blocks[sequence] = dice.random(BLOCK)
        return float(self.blocks[sequence][at])


class DecodingLoop:
    """Continues every open sequence; closed ones are removed when half of the rows are idle."""

    def __init__(
        self,
        reader: DecodeState,
        logits: Tensor,
        *,
        pick: Pick,
        process: Processor | None,
        ends: Sequence[int],
        limit: int,
        top_logprobs: int = 0,
    ) -> None:
        self.reader, self.scores, self.top_logprobs = reader, StepScores.of(logits), top_logprobs
        self.pick, self.process, self.ends, self.limit = pick, process, frozenset(ends), limit
        self.numbers = list(range(logits.size(0)))
        self.open = set(self.numbers)
        self.step = 0  # the tokens drawn so far

    def close(self, number: int) -> None:
        """Ends this sequence; the last token drawn was its last."""
        self.open.discard(number)

    @torch.inference_mode()
    def steps(self) -> Iterator[list[SampledToken]]:
        """Yields the tokens of each step. An end token closes its sequence."""
        while True:
            drawn, tokens = self.draw()
            yield drawn
            if self.done:
                return
            self.scores = StepScores.of(self.reader.read(self.going_on(tokens)))

    def draw(self) -> tuple[list[SampledToken], Tensor]:
        """Draws the next token of each open sequence; returns these and the tokens of all rows."""
        tokens, logprobs, best = self.choose(self.step)
        self.step += 1
        columns = self.numbers, tokens.tolist(), logprobs.tolist(), best
        drawn = [
            SampledToken(*values) for values in zip(*columns, strict=True) if values[0] in self.open
        ]
        for each in drawn:
            if each.token in self.ends:
                self.close(each.number)
        return drawn, tokens

    @property
    def done(self) -> bool:
        return not self.open or self.step == self.limit

    def going_on(self, tokens: Tensor) -> Tensor:
        """Returns the tokens that are read next, without idle rows if half of them are idle."""
        return self.leave(tokens) if 2 * len(self.open) <= len(self.numbers) else tokens

    def choose(self, step: int) -> tuple[Tensor, Tensor, list[TopLogprobs]]:
        """Returns a token for each row, its log-probability, and the likeliest tokens if they are
        recorded."""
        logits, total, tokens, logprobs = self.scores
        if self.process is not None or self.pick is not greedy:
            scores = logits
            if self.process is not None:
                scores = self.process(logits, self.reader.past())
                if bool(scores.amax(-1).isneginf().any()):
                    raise forbidden()
            tokens = self.pick(scores, self.numbers, step)
            logprobs = (logits.gather(1, tokens[:, None]) - total)[:, 0]
        best: list[TopLogprobs] = [[] for _ in self.numbers]
        if self.top_logprobs:
            best = likeliest(logits - total, self.top_logprobs)
        return tokens, logprobs, best

    def leave(self, tokens: Tensor) -> Tensor:
        """Removes the rows of closed sequences."""
        rows = [i for i, number in enumerate(self.numbers) if number in self.open]
        self.numbers = [self.numbers[i] for i in rows]
        staying = torch.tensor(rows, device=tokens.device)
        self.reader.keep(staying)
        return tokens[staying]


def forbidden() -> InputError:
    return InputError(
        "every token is forbidden; use fewer suppress_tokens or bad_words_ids, a larger "
        "no_repeat_ngram_size, or no min_new_tokens"
    )
