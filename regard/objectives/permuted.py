"""Predicts words in a sampled order (Yang et al. 2019, 2.2-2.3; data_utils.py of the authors).

A sample is a piece of running text, which the next sample may remember, followed by A [SEP] B [SEP]
[CLS]: B continues A or comes from elsewhere. Without pairs the whole sample is running text, and
each token of it is read once. Spans are chosen as targets; within each of the two halves they are
predicted in a random order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.core.seeding import keyed, permutation
from regard.data.corpus import Corpus
from regard.data.words import WordStarts
from regard.models.state import State
from regard.objectives.base import Batch, Loss, Objective, Sample
from regard.objectives.causal import CausalObjective, CausalOptions, choose
from regard.objectives.masked import filled, guess_measures, guesses
from regard.objectives.reading import refuse


@dataclass(frozen=True)
class PermutedOptions:
    memory: bool = True  # samples are contiguous and the model remembers; False: shuffled
    pairs: bool = True  # half of a sample is A and B; False: samples are running text
    two_directions: bool = True  # every second stream is read from its end to its beginning
    targets: int | None = None  # the targets of a sample; None: a sixth of its length
    longest: int = 5  # the most units of a span; n units have a probability proportional to 1 / n
    context: int = 6  # the tokens of context for each unit
    units: str = "pieces"  # as in the authors' code; "words": as in their paper
    block: int | None = None  # the tokens that are permuted together; None: half a sample


class Permuted(Objective):
    """The rows of a batch are contiguous streams of text; each sample begins half a length after
    the one before, or without pairs a whole length."""

    Options: ClassVar[type] = PermutedOptions
    name = "permuted"
    recurrent = True
    comparable = True
    queries = True
    pipeline_tag = "text-generation"
    fills_blanks = True

    def prepare(self) -> None:
        o, special = self.options, self.corpus.special
        self.half = self.seq_len // 2
        self.block = self.half if o.block is None else o.block
        if self.seq_len % 2 or self.half < 5:
            raise ConfigError(
                f"batch.seq_len {self.seq_len} is wrong; it must be even and at least 10"
            )
        if self.block > self.half:
            raise ConfigError(
                f"block {self.block} is more than the {self.half} tokens that the next sample may "
                "remember; it would see its own targets there"
            )
        if self.block < 1 or self.half % self.block:
            raise ConfigError(f"block {self.block} does not divide half of seq_len, {self.half}")
        choose("units", o.units, ("pieces", "words"))
        if o.longest < 1 or o.context < 1:
            raise ConfigError("longest and context must be at least 1")
        if o.two_directions and self.batch_size % 2:
            raise ConfigError(
                f"a batch of {self.batch_size} samples cannot be halved, and half of it is read "
                "backwards; give an even number, or set two_directions = false"
            )
        self.goal = self.seq_len // 6 if o.targets is None else o.targets
        if not 1 <= self.goal <= self.seq_len:
            raise ConfigError(f"targets {self.goal} is wrong; it must be from 1 to {self.seq_len}")
        self.cls, self.sep = (special.need(name) if o.pairs else -1 for name in ("cls", "sep"))
        self.stride = self.half if o.pairs else self.seq_len
        self.words = WordStarts(self.corpus.tokenizer, self.corpus.vocab_size)
        self.chances = np.cumsum(1 / np.arange(1, o.longest + 1))
        ways = 2 if o.two_directions else 1
        fewest = len(self.corpus) // self.seq_len * ways
        while not self.learning and self.batch_size > fewest and self.batch_size % (2 * ways) == 0:
            self.batch_size //= 2  # a short validation split is read in fewer streams
        self.size = len(self.corpus) // (self.batch_size // ways)  # the tokens of a stream
        self.steps = max(0, (self.size - self.seq_len) // self.stride + 1)

    def __len__(self) -> int:
        return self.steps * self.batch_size

    # -- the text

    def sample(self, epoch: int, index: int) -> Sample:
        step, row = divmod(index, self.batch_size)
        both = self.options.two_directions
        stream = Stream(self, row // 2 if both else row, backward=both and row % 2 == 1)
        draw = keyed(self.seed, "permuted", epoch if self.learning else 0, index)
        joined, sizes = self.text(stream, step * self.stride, draw)
        goals = self.goal - self.goal // 2, self.goal // 2
        halves = np.split(joined, 2)
        chosen = [
            self.spans(half, goal, draw, stream.backward)
            for half, goal in zip(halves, goals, strict=True)
        ]
        shuffled = [self.shuffle(draw) for _ in halves]
        functional = (joined == self.sep) | (joined == self.cls)
        masked = np.concatenate(chosen)
        targets = np.flatnonzero(masked & ~functional)
        return {
            "tokens": joined,
            "segments": np.repeat([0, 1, 2], sizes),
            "order": orders(masked, functional, *shuffled),
            "targets": filled(targets, self.goal),
            "wanted": filled(joined[targets], self.goal),
            "shares": filled(np.ones(len(targets), np.float32), self.goal),
        }

    def text(
        self, stream: Stream, at: int, draw: np.random.Generator
    ) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Returns the tokens of a sample, and how many belong to each segment."""
        if not self.options.pairs:
            return stream.read(at, at + self.seq_len), (self.seq_len, 0, 0)
        a, b = split(stream, at + self.half, self.half - 3, draw)
        sep, cls = np.array([self.sep]), np.array([self.cls])
        running = stream.read(at, at + self.half)
        joined = np.concatenate([running, stream.read(*a), sep, stream.read(*b), sep, cls])
        return joined, (self.half + a[1] - a[0] + 1, b[1] - b[0] + 1, 1)

    def shuffle(self, draw: np.random.Generator) -> np.ndarray:
        """Returns a random order of a half; smaller blocks follow each other in equal orders."""
        one = draw.permutation(self.block)
        return (np.arange(0, self.half, self.block)[:, None] + one).reshape(-1)

    def spans(
        self, tokens: np.ndarray, goal: int, draw: np.random.Generator, backward: bool
    ) -> np.ndarray:
        """Marks exactly `goal` tokens: spans that begin at word starts, each within its own
        context, and then single tokens (`_sample_mask`).

        In the authors' code a span of n is n pieces, because its test of the end looks at the
        beginning. With units of whole words, a span takes no more words than the goal has room for.
        """
        if backward:
            return self.spans(tokens[::-1], goal, draw, False)[::-1]
        size, o = len(tokens), self.options
        first = np.flatnonzero(self.words.begins(tokens))
        places, after = first.tolist(), np.searchsorted(first, np.arange(size)).tolist()
        wide = np.searchsorted(self.chances, draw.random(goal) * self.chances[-1], "right") + 1
        chosen, left, at = np.zeros(size, np.bool_), goal, 0
        for n, share in zip(wide.tolist(), draw.random(goal).tolist(), strict=True):
            n = min(n, left)
            context = n * o.context
            before = int(share * context)
            begin = at + before
            if left == 0 or begin >= size or after[begin] == len(places):
                break
            word = after[begin]
            begin = places[word]
            end = begin + n
            if o.units == "words":
                if word + n >= len(places):
                    break
                n = next(k for k in range(n, -1, -1) if places[word + k] - begin <= left)
                end = places[word + n]
            if end >= size or end == begin:
                break
            chosen[begin:end] = True
            left -= end - begin
            at = end + context - before
        chosen[draw.choice(np.flatnonzero(~chosen), left, replace=False)] = True
        return chosen

    # -- which samples form a step

    def order(self, epoch: int) -> np.ndarray | None:
        """Shuffles each direction's samples among themselves, if there is no memory."""
        if self.options.memory or not self.learning:
            return None
        if self.order_of[0] != epoch:
            ways = 2 if self.options.two_directions else 1
            parts = [
                ways * permutation(len(self) // ways, self.seed, "order", epoch, way) + way
                for way in range(ways)
            ]
            self.order_of = epoch, np.stack(parts, 1).reshape(-1)
        return self.order_of[1]

    def arrange(self, places: list[int]) -> list[int]:
        """Puts backward streams after the forward ones, as the second half of the batch."""
        if not self.options.two_directions:
            return places
        return sorted(places, key=lambda place: place % 2)

    # -- the loss

    def begin(self, model: Any, rows: int) -> State | None:
        """Returns a memory that has its final size from the start; at first it is all padding."""
        if not self.options.memory:
            return None
        c, like = model.config, next(p for p in model.parameters() if p.is_floating_point())
        shape, device = (rows, c.mem_len), like.device  # not sharded, even if the weights are
        empty = [
            torch.zeros(*shape, c.width, dtype=like.dtype, device=device) for _ in range(c.layers)
        ]
        marks = torch.zeros(shape, dtype=torch.bool, device=device)
        return State(hidden=empty, attention_mask=marks)

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"permuted": float(batch["shares"].sum())}

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        rows = model(
            batch["tokens"],
            segments=batch["segments"],
            order=batch["order"],
            targets=batch["targets"],
            state=state,
        )
        return guesses("permuted", model, rows, batch)

    def heads(self) -> dict[str, int]:
        return {"masked": 0}

    @classmethod
    def text_likelihood(cls, corpus: Corpus, **sizes: int) -> Objective | None:
        """Returns an objective that reads in the order of the text, without a memory."""
        options = CausalOptions(overlap=sizes["seq_len"] // 2)
        return QueriedCausal(corpus, options, learning=False, **sizes)

    @classmethod
    def separate_texts(cls, config: Any) -> dict[str, Any]:
        return {"memory": False, "two_directions": config.two_directions}

    def check(self, model: Any) -> None:
        if model.fills != "queries":
            wanted = "to predict words in any order"
            raise refuse(model, wanted, lambda kind: kind.fills == "queries")
        c, o = model.config, self.options
        if c.two_directions != o.two_directions:
            raise ConfigError(
                f"two_directions is {o.two_directions} here and {c.two_directions} in the model; "
                "set both to the same"
            )
        once = self.half if o.pairs else None  # the rows of a sample that the next does not repeat
        if o.memory and (c.reuse_len != once or c.mem_len is None):
            raise ConfigError(
                f"samples begin {self.stride} tokens apart, so the model needs reuse_len = {once} "
                f"(it has {c.reuse_len}) and mem_len = a number of rows (it has {c.mem_len}); "
                "build it with them, or set memory = false"
            )

    def measure(self, totals: Loss) -> dict[str, float]:
        """Returns metrics of targets that see the words before them in a sampled order: they cannot
        be compared with the perplexity of a model that reads from left to right."""
        figures = guess_measures("permuted", totals)
        return dict(reversed(figures.items()))  # the perplexity comes first


class QueriedCausal(CausalObjective):
    """Causal prediction by XLNet's query rows, as it was trained: each query row sees the words
    before its target. The last layer's content rows were never trained."""

    def hidden(self, model: Any, batch: Batch, state: State | None = None) -> Tensor:
        """Returns hidden states [B, T, width]; query row t predicts target t of the chunk."""
        tokens = torch.cat([batch["tokens"], batch["targets"][:, -1:]], 1)
        order = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
        y: Tensor = model(tokens, order=order, targets=order[:, 1:])
        return y


class Stream:
    """The text of one row, read from its beginning or from its end."""

    def __init__(self, objective: Permuted, number: int, *, backward: bool) -> None:
        self.corpus, self.size, self.backward = objective.corpus, objective.size, backward
        self.base = number * self.size

    def read(self, start: int, stop: int) -> np.ndarray:
        if not self.backward:
            return self.corpus.read(self.base + start, self.base + stop)
        end = self.base + self.size
        return self.corpus.read(end - stop, end - start)[::-1]

    def cuts(self, start: int, stop: int) -> np.ndarray:
        """Returns the positions start <= p < stop where a sentence ends and another begins."""
        sentences = self.corpus.sentences
        if not self.backward:
            low, high = np.searchsorted(sentences, [self.base + start, self.base + stop])
            return np.asarray(sentences[low:high]) - self.base
        end = self.base + self.size
        low, high = np.searchsorted(sentences, [end - stop, end - start], "right")
        return end - np.asarray(sentences[low:high])[::-1]

    def cut_after(self, place: int) -> int:
        """Returns the first sentence boundary from `place` on, or the end."""
        sentences = self.corpus.sentences
        if self.backward:
            end = self.base + self.size
            number = int(np.searchsorted(sentences, end - place, "right")) - 1
            return min(self.size, end - int(sentences[number]))
        number = int(np.searchsorted(sentences, self.base + place))
        return min(self.size, int(sentences[number]) - self.base)

    def cut_before(self, place: int) -> int:
        """Returns the last sentence boundary up to `place`, or the beginning."""
        sentences = self.corpus.sentences
        if self.backward:
            end = self.base + self.size
            number = int(np.searchsorted(sentences, end - place))
            return max(0, end - int(sentences[number]))
        number = int(np.searchsorted(sentences, self.base + place, "right")) - 1
        return max(0, int(sentences[number]) - self.base)


def split(
    stream: Stream, begin: int, total: int, draw: np.random.Generator
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns where A and B are in a stream, `total` tokens together (`_split_a_and_b`).

    A ends with a sentence. B is the text after A or, half of the time, and always if there is no
    sentence boundary, sentences from anywhere in the stream. The longer one is cut at its end.
    """
    cuts = stream.cuts(begin + 1, begin + total)
    end = stream.cut_after(begin + total)
    middle = int(draw.choice(cuts)) if len(cuts) else end
    b = middle, end
    if len(cuts) == 0 or draw.random() < 0.5:
        size = max(1, total - (middle - begin))
        start = int(draw.integers(stream.size - size))
        b = stream.cut_before(start), min(stream.size - 1, stream.cut_after(start + size))
    sizes = [middle - begin, b[1] - b[0]]
    excess = sum(sizes) - total
    gap = min(abs(sizes[0] - sizes[1]), excess)
    rest = excess - gap
    losses = [rest // 2, rest - rest // 2]
    losses[int(sizes[1] >= sizes[0])] += gap
    return (begin, middle - losses[0]), (b[0], b[1] - losses[1])


def orders(
    masked: np.ndarray, functional: np.ndarray, first: np.ndarray, second: np.ndarray
) -> np.ndarray:
    """Returns `_local_perm` of two halves as one comparison: row i sees key j iff order j <= order
    i, and the query row of i sees key j iff order j <= order i - 1.

    `first` and `second` are the random orders of the halves. An ordinary token that is not a target
    comes before all others of its half; the whole second half comes after the first.
    """
    free = ~(masked | functional)
    rank = np.concatenate([first, second + len(first) + 1])
    lowest = np.repeat([-1, len(first)], [len(first), len(second)])
    return np.where(free, lowest, rank)
