"""Learns a target from its source: translation, summaries, any task as text (Vaswani et al. 2017,
5; Raffel et al. 2019, 2.4).

A corpus of pairs has documents of two sentences, both closed by the end token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from regard.core.errors import ConfigError, FormatError
from regard.data.batching import by_length
from regard.models.output import SoftTarget
from regard.models.state import State
from regard.objectives.base import Batch, Loss
from regard.objectives.causal import choose
from regard.objectives.reading import inner
from regard.objectives.smoothing import entropy, smoothing
from regard.objectives.source import BatchShape, SourceTarget


@dataclass(frozen=True)
class PairsOptions:
    smoothing: float = 0.1  # the ε of label smoothing
    smoothing_kind: str = "others"  # or "all", "no-pad"; see smoothing.py
    reported: str = "cross-entropy"  # "kl": minus the entropy of the smoothed target
    multiple: int = 8  # a batch's width is a multiple of this; 0: always the largest width
    sort: bool = True  # the samples of a step have similar lengths
    both_sides: bool = False  # a decoder-only model sees its source from both sides
    z_loss: float = 0.0  # the weight of (log Z)²


class Pairs(SourceTarget):
    """Source and target have at most `length` tokens together; in longer pairs the longer side is
    cut. In validation there is no label smoothing."""

    Options: ClassVar[type] = PairsOptions
    name = "pairs"
    stretches = False
    writes_answers = True

    def prepare(self) -> None:
        o, corpus = self.options, self.corpus
        choose("reported", o.reported, ("cross-entropy", "kl"))
        if o.multiple < 0 or o.z_loss < 0:
            raise ConfigError(
                f"multiple is {o.multiple} and z_loss is {o.z_loss}; neither may be negative"
            )
        edges = np.asarray(corpus.sentences)
        if corpus.kind != "pairs" or len(edges) != 2 * len(corpus.documents) - 1:
            raise FormatError(
                f"{corpus.directory} holds {corpus.kind}, not pairs; prepare them with "
                "'regard prepare --pairs'"
            )
        if self.seq_len < 4:
            raise ConfigError(f"batch.seq_len is {self.seq_len}; for pairs it must be at least 4")
        self.edges, sizes = edges, np.diff(edges).reshape(-1, 2)
        self.sizes = fit(sizes, self.seq_len)
        self.cut = int((self.sizes != sizes).any(1).sum())  # the number of pairs that are too long
        largest = self.sizes.max(0, initial=1).tolist()
        self.room = BatchShape(int(self.sizes.sum(1).max(initial=2)), *largest)
        self.multiple, self.both_sides = o.multiple, o.both_sides
        smoothing(o.smoothing, corpus.vocab_size, o.smoothing_kind, corpus.special.pad)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def mean_len(self) -> float:
        return float(self.sizes.sum(1).mean())

    def tokens_in(self, batch: Batch) -> int:
        return int(batch["sizes"].sum())

    @property
    def note(self) -> str:
        """How many pairs were cut, as a sentence for users; empty if none was."""
        if not self.cut:
            return ""
        return (
            f"{self.cut:,} of {len(self):,} pairs of the {self.corpus.split} split have more than "
            f"{self.seq_len} tokens and were cut"
        )

    def pair(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        start, middle, _ = (int(edge) for edge in self.edges[2 * index : 2 * index + 3])
        first, second = (int(size) for size in self.sizes[index])
        source = self.corpus.read(start, start + first)
        source[-1] = self.corpus.special.end  # a source that was cut ends with it, too
        return source, self.corpus.read(middle, middle + second)

    def order(self, epoch: int) -> np.ndarray | None:
        """Returns a shuffled order in which the samples of a step have similar lengths."""
        if not self.learning or not self.options.sort:
            return super().order(epoch)
        cached = self.order_of
        if cached[0] != epoch:
            sizes = self.sizes.sum(1)
            cached = self.order_of = epoch, by_length(sizes, self.batch_size, self.seed, epoch)
        return cached[1]

    def soft(self, model: Any) -> SoftTarget | None:
        o = self.options
        if not o.smoothing and not o.z_loss:
            return None
        words, pad = inner(model).config.vocab_size, self.corpus.special.pad
        return smoothing(o.smoothing, words, o.smoothing_kind, pad)._replace(z=o.z_loss)

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        o, loss = self.options, super().loss(model, batch, state)
        if self.learning and o.smoothing and o.reported == "kl":
            least = entropy(o.smoothing, inner(model).config.vocab_size, o.smoothing_kind)
            loss.sums[self.name] = loss.sums[self.name] - least * loss.counts[self.name]
        return loss


def fit(sizes: np.ndarray, most: int) -> np.ndarray:
    """Returns how much of each source and target [N, 2] is kept: the longer one is cut first."""
    source, target = sizes.T
    second = np.minimum(target, np.maximum(most // 2, most - source))
    return np.stack([np.minimum(source, most - second), second], 1)
