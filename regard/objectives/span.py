"""T5's span corruption (Raffel et al. 2019, 3.1.4 and 3.3.4; preprocessors.py of the authors).

Each chosen span of text is replaced by a sentinel; the target names each sentinel and its text. A
span always ends the text, so no sentinel closes the target, as one does in the paper's figure 2.
Documents keep the end token between them, unlike the authors' documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from regard.core.errors import ConfigError, FormatError
from regard.core.seeding import keyed
from regard.models.output import SoftTarget
from regard.objectives.causal import ring, shifted
from regard.objectives.source import BatchShape, SourceTarget


class SpanCounts(NamedTuple):
    """The counts of a text of `kept` + `noise` tokens."""

    noise: int
    kept: int
    spans: int

    @property
    def source(self) -> int:
        """The length of the source: the kept tokens, one sentinel per span, and the end token."""
        return self.kept + self.spans + 1

    @property
    def target(self) -> int:
        return self.noise + self.spans + 1


def counts_of(length: int, density: float, mean: float) -> SpanCounts:
    """Returns how many tokens go, in how many spans; halves are rounded to even, as in theirs."""
    noise = min(max(round(length * density), 1), length - 1)
    rest = length - noise
    return SpanCounts(noise, rest, min(max(round(noise / mean), 1), noise, rest))


def raw_length(length: int, density: float, mean: float) -> int:
    """Returns the length of the longest text whose source has at most `length` tokens."""
    raw = max(2, length - 1)
    if counts_of(raw, density, mean).source > length:
        raise ConfigError(
            f"batch.seq_len is {length}; the source of a corrupted text needs at least 3"
        )
    while counts_of(raw + 1, density, mean).source <= length:
        raw += 1
    return raw


def composition(total: int, parts: int, draw: np.random.Generator) -> np.ndarray:
    """Draws `total` as an ordered sum of `parts` positive integers, all equally likely."""
    begins = draw.permutation(np.arange(total - 1) < parts - 1)
    return np.diff([0, *(np.flatnonzero(begins) + 1).tolist(), total])


def noise_mask(length: int, density: float, mean: float, draw: np.random.Generator) -> np.ndarray:
    """Returns which tokens are removed: kept and removed spans alternate, kept ones first."""
    noise, rest, spans = counts_of(length, density, mean)
    gone = composition(noise, spans, draw)
    sizes = np.stack([composition(rest, spans, draw), gone], 1).flatten()
    return np.repeat(np.tile([False, True], spans), sizes)


def corrupt(
    tokens: np.ndarray, gone: np.ndarray, sentinels: np.ndarray, end: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns source and target, each closed by the end token."""
    first = gone & ~np.concatenate([[False], gone[:-1]])
    marks = sentinels[: int(first.sum())]
    source = tokens.copy()
    source[first] = marks
    target = np.insert(tokens[gone], np.flatnonzero(first[gone]), marks)
    return np.append(source[~gone | first], end), np.append(target, end)


@dataclass(frozen=True)
class SpanOptions:
    density: float = 0.15  # the share of tokens that are removed
    mean: float = 3.0  # the mean number of tokens of a span
    shift: bool = True  # every epoch has other text boundaries
    both_sides: bool = False  # a decoder-only model sees its source from both sides
    z_loss: float = 0.0  # the weight of (log Z)²; 1e-4 in the authors' code


class SpanCorruption(SourceTarget):
    """Texts with as many tokens as give sources of exactly `length`.

    They tile the split. In training the last text continues at the split's beginning; in validation
    it ends with the split, and so shares tokens with the text before it.
    """

    Options: ClassVar[type] = SpanOptions
    name = "span"
    continues = False
    fills_blanks = True

    def prepare(self) -> None:
        o = self.options
        if not 0 < o.density < 1 or o.mean < 1 or o.z_loss < 0:
            raise ConfigError(
                f"density is {o.density}, mean is {o.mean} and z_loss is {o.z_loss}; density must "
                "lie between 0 and 1, mean must be at least 1, and z_loss at least 0"
            )
        longest = raw_length(self.seq_len, o.density, o.mean)
        self.raw = min(longest, len(self.corpus))
        largest = counts_of(longest, o.density, o.mean)
        self.room = BatchShape(largest.source + largest.target, largest.source, largest.target)
        self.sources_full = self.raw == longest
        self.both_sides = o.both_sides
        self.sentinels = np.array(self.corpus.special.sentinels, np.int64)
        if len(self.sentinels) < largest.spans:
            raise FormatError(
                f"texts of {longest} tokens have {largest.spans} spans, but the tokenizer of this "
                f"data has {len(self.sentinels)} sentinels; prepare the text with at least "
                f"{largest.spans}, or choose a smaller length or density"
            )

    def __len__(self) -> int:
        return -(-len(self.corpus) // self.raw) if self.raw > 1 else 0

    def soft(self, model: Any) -> SoftTarget | None:
        return SoftTarget(z=self.options.z_loss) if self.options.z_loss else None

    def pair(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        o, size, epoch = self.options, len(self.corpus), epoch if self.learning else 0
        start = index * self.raw
        if self.learning and o.shift:
            start += shifted(self.seed, epoch, self.raw, size)
        if not self.learning:
            start = min(start, size - self.raw)
        tokens = ring(self.corpus, start, start + self.raw)
        draw = keyed(self.seed, "span", epoch, index)
        gone = noise_mask(self.raw, o.density, o.mean, draw)
        return corrupt(tokens, gone, self.sentinels, self.corpus.special.end)
