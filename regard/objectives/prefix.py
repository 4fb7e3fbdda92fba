"""Predicts the second part of a text from its first (Raffel et al. 2019, 3.2.1: "prefix LM").

A text is split at a random point that leaves at least one token on both sides. The first part is
seen from both sides, the second part is the target. Chunks are those of `causal`; they get no end
token, because the end of a chunk is not the end of a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.objectives.base import Loss, Objective
from regard.objectives.causal import ChunkTiling, choose, shifted, text_figures
from regard.objectives.source import BatchShape, SourceTarget


@dataclass(frozen=True)
class PrefixOptions:
    documents: str = "packed"  # chunks cross documents; "separate": a chunk has one document
    shift: bool = True  # packed: every epoch has other chunk boundaries


class Prefix(SourceTarget):
    """Prefixes of 1 … length tokens in rows of length + 1; the last token is only predicted."""

    Options: ClassVar[type] = PrefixOptions
    name = "prefix"
    both_sides = True
    pipeline_tag = "text-generation"

    def prepare(self) -> None:
        choose("documents", self.options.documents, ("packed", "separate"))
        self.tiles = ChunkTiling(self.corpus, self.seq_len, 0, self.options.documents == "packed")
        self.room = BatchShape(self.seq_len + 1, self.seq_len, self.seq_len)

    def __len__(self) -> int:
        return len(self.tiles)

    def pair(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        offset, epoch = 0, epoch if self.learning else 0
        if self.learning and self.options.shift and self.tiles.packed:
            offset = shifted(self.seed, epoch, self.seq_len, len(self.corpus))
        chunk = self.tiles.chunk(index, offset)
        tokens = chunk.tokens[: chunk.real]
        split = int(keyed(self.seed, "prefix", epoch, index).integers(1, len(tokens)))
        return tokens[:split], tokens[split:]

    @classmethod
    def text_likelihood(cls, corpus: Corpus, **sizes: int) -> Objective | None:
        """Returns an objective that measures the text after a prefix."""
        return Prefix(corpus, PrefixOptions(shift=False), learning=False, **sizes)

    def measure(self, totals: Loss) -> dict[str, float]:
        return text_figures(self.corpus, float(totals.sums[self.name]), totals.counts[self.name])
