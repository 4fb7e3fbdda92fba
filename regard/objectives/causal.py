"""Causal language modeling: Σ log P(u_i | u_<i) over every position (Radford et al. 2018).

Documents are packed with an end token between them and no other mask (Brown et al. 2020, appendix
B), unless `documents` is "separate".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from regard.core.errors import ConfigError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.models.state import State
from regard.objectives.base import Batch, Loss, Objective, Sample, perplexity
from regard.objectives.reading import check_reading_on, read_on, surprise


def choose(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuses a value that is not one of the known words."""
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(known)}")


def padding(corpus: Corpus) -> int:
    """Returns the id that fills unused rows: the pad token or, without one, the end token."""
    return corpus.special.end if corpus.special.pad is None else corpus.special.pad


def ring(corpus: Corpus, start: int, stop: int) -> np.ndarray:
    """Returns the ids from start to stop of a split that begins again after its end.

    So the end token of the last document comes before the first document.
    """
    size, parts = len(corpus), []
    while start < stop:
        at = start % size
        parts.append(corpus.read(at, min(size, at + stop - start)))
        start += len(parts[-1])
    return np.concatenate(parts)


class TextChunk(NamedTuple):
    """A piece of text with the token before it."""

    tokens: np.ndarray  # [length + 1], beginning with the token before the first target
    real: int  # how many of `tokens` are not padding
    first: int  # the first target that counts is tokens[first]


class ChunkTiling:
    """Chunks of `length` targets such that every token of a split is a target exactly once.

    With an `overlap`, a chunk begins with that many targets that were already scored, as context.
    """

    def __init__(self, corpus: Corpus, length: int, overlap: int, packed: bool) -> None:
        if not 0 <= overlap < length:
            raise ConfigError(f"overlap is {overlap}; it must lie between 0 and length - 1")
        self.corpus, self.length, self.packed = corpus, length, packed
        self.step = length - overlap
        edges = np.array([0, len(corpus)]) if packed else np.asarray(corpus.documents)
        self.starts, self.sizes = edges[:-1], np.diff(edges)
        self.before = np.concatenate([[0], np.cumsum(-(-self.sizes // self.step))])

    def __len__(self) -> int:
        return int(self.before[-1])

    def chunk(self, index: int, offset: int = 0) -> TextChunk:
        """Returns chunk `index`; packed text is tiled from token `offset` on, around the ring."""
        run = int(np.searchsorted(self.before, index, "right")) - 1
        size = int(self.sizes[run])
        first = (index - int(self.before[run])) * self.step
        last = min(first + self.step, size)
        start = max(0, first + self.step - self.length)
        if self.packed:
            tokens = ring(self.corpus, offset + start - 1, offset + last)
        else:
            origin = int(self.starts[run])
            tokens = self.corpus.read(origin + max(start - 1, 0), origin + last)
            if start == 0:
                tokens = np.concatenate([[self.corpus.special.end], tokens])
        room = np.full(self.length + 1, padding(self.corpus), np.int64)
        room[: len(tokens)] = tokens
        return TextChunk(room, last - start + 1, first - start + 1)


def shifted(seed: int, epoch: int, length: int, size: int) -> int:
    """Returns where an epoch's tiling begins, so that epochs have different boundaries."""
    return int(keyed(seed, "shift", epoch).integers(min(length, size)))


def bits_per_byte(corpus: Corpus, nats: float, count: float) -> dict[str, float]:
    """Returns bits per byte; over a part of a split, with the whole split's tokens per byte."""
    if corpus.bytes == 0 or count == 0:
        return {}
    return {"bits_per_byte": nats / count * len(corpus) / corpus.bytes / math.log(2)}


def text_figures(corpus: Corpus, nats: float, count: float) -> dict[str, float]:
    return {**bits_per_byte(corpus, nats, count), "perplexity": perplexity(nats, count)}


@dataclass(frozen=True)
class CausalOptions:
    documents: str = "packed"  # chunks cross documents; "separate": a chunk has one document
    shift: bool = True  # packed: every epoch has other chunk boundaries
    overlap: int = 0  # validation: the tokens of context from the chunk before


class NextToken(Objective):
    """What a text is scored by from left to right, however it is cut into samples."""

    comparable = True
    pipeline_tag = "text-generation"
    exact_bits = True

    def counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float(batch["scored"].sum())}

    def hidden(self, model: Any, batch: Batch, state: State | None = None) -> Tensor:
        """Returns hidden states [B, T, width]; row t predicts target t."""
        return read_on(model, batch["tokens"], state)

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        hidden = self.hidden(model, batch, state)
        nats = surprise(model, hidden, batch["targets"], batch["scored"])
        return Loss({self.name: nats}, self.counted(batch))

    def measure(self, totals: Loss) -> dict[str, float]:
        return text_figures(self.corpus, float(totals.sums[self.name]), totals.counts[self.name])


class CausalObjective(NextToken):
    """Chunks that tile the split: in validation every token is predicted exactly once."""

    Options: ClassVar[type] = CausalOptions
    name = "causal"

    def prepare(self) -> None:
        o = self.options
        choose("documents", o.documents, ("packed", "separate"))
        overlap = 0 if self.learning else o.overlap
        self.tiles = ChunkTiling(self.corpus, self.seq_len, overlap, o.documents == "packed")

    def __len__(self) -> int:
        return len(self.tiles)

    def chunk(self, epoch: int, index: int) -> TextChunk:
        moving = self.learning and self.options.shift and self.tiles.packed
        size = len(self.corpus)
        offset = shifted(self.seed, epoch, self.seq_len, size) if moving else 0
        return self.tiles.chunk(index, offset)

    def sample(self, epoch: int, index: int) -> Sample:
        tokens, real, first = self.chunk(epoch, index)
        place = np.arange(1, self.seq_len + 1)
        scored = (place >= first) & (place < real)
        return {"tokens": tokens[:-1], "targets": tokens[1:], "scored": scored}

    @classmethod
    def text_likelihood(cls, corpus: Corpus, **sizes: int) -> Objective | None:
        """Returns an objective that predicts every token from half of a sample or more."""
        options = CausalOptions(overlap=sizes["seq_len"] // 2)
        return CausalObjective(corpus, options, learning=False, **sizes)

    def check(self, model: Any) -> None:
        check_reading_on(model, self.seq_len)
