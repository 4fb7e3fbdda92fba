"""Assigns documents to the training, validation and test splits, by the seed and their first text.

Equal documents go to the same split. If there are too few documents, each is cut at sentence
boundaries: its beginning is for training, its end for testing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

from regard.core.errors import InputError
from regard.core.options import Option

TRAIN, VALID, TEST = range(3)
FEW = 10  # with fewer documents, each is cut into the splits
MANY = 4096  # with so many documents, chance alone gives the right shares
HEAD = 2**16  # characters that decide; the first piece of a longer document always has more
ALL = 2**64


def key(seed: int, text: str) -> int:
    """Returns a number below 2**64 for a document, computed from its beginning."""
    salt, head = seed.to_bytes(8, "little"), text[:HEAD].encode()
    return int.from_bytes(blake2b(head, digest_size=8, key=salt).digest(), "little")


@dataclass(frozen=True)
class SplitShares:
    """The shares of the validation and test splits; the rest is for training."""

    valid: Annotated[
        float, Option("The share of documents for validation.", "--valid-fraction", "X")
    ] = 0.05
    test: Annotated[
        float, Option("The share of documents for the test.", "--test-fraction", "X")
    ] = 0.05

    def __post_init__(self) -> None:
        if not (0 <= self.valid < 1 and 0 <= self.test < 1 and self.valid + self.test < 1):
            raise InputError(
                f"--valid-fraction {self.valid:g} and --test-fraction {self.test:g} must each be 0 "
                "or more, and together less than 1, so that documents are left for training"
            )

    @property
    def any(self) -> bool:
        return self.valid + self.test > 0


@dataclass(frozen=True)
class SplitBounds:
    """Keys up to the first bound are for validation, keys up to the second for the test."""

    valid: int = -1
    test: int = -1

    def of(self, number: int) -> int:
        return VALID if number <= self.valid else TEST if number <= self.test else TRAIN

    @classmethod
    def by_chance(cls, shares: SplitShares) -> SplitBounds:
        valid = int(shares.valid * ALL) - 1
        return cls(valid, int((shares.valid + shares.test) * ALL) - 1)

    @classmethod
    def by_rank(cls, shares: SplitShares, keys: Iterable[int]) -> SplitBounds:
        """Gives each split its exact share of the distinct documents, and at least one if there are
        three."""
        ranked = sorted(set(keys))
        counts = [
            max(1, round(share * len(ranked))) if share else 0
            for share in (shares.valid, shares.test)
        ]
        if sum(counts) >= len(ranked):
            return cls()
        bounds = [ranked[many - 1] if many else -1 for many in (counts[0], sum(counts))]
        return cls(*bounds)


def stretched(
    sentences: Iterable[tuple[str, int]], shares: SplitShares, size: int
) -> Iterator[tuple[str, int, int, bool]]:
    """Cuts one document of `size` bytes: the first sentences are for training, the last for the
    test. Yields each sentence, its bytes, its split, and whether it is the last of its split."""
    rest = size
    before: tuple[str, int, int] | None = None
    for text, length in sentences:
        rest -= length
        if before is None:
            split = TRAIN
        elif rest < shares.test * size:
            split = TEST
        elif rest < (shares.valid + shares.test) * size:
            split = VALID
        else:
            split = TRAIN
        if before is not None:
            yield *before, before[2] != split
        before = text, length, split
    if before is not None:
        yield *before, True
