"""Which document learns, which validates, which tests: a function of the seed and its beginning.

Equal documents go to the same split. Where there are too few documents to share out, each is cut
at sentence boundaries: its beginning learns, its end tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

from regard.core.errors import InputError
from regard.core.options import Option

TRAIN, VALID, TEST = range(3)
FEW = 10  # documents: below that they are cut
MANY = 4096  # documents: from here on shares are kept by chance alone
HEAD = 2**16  # characters: the first piece of a longer document has more, however it is read
ALL = 2**64


def key(seed: int, text: str) -> int:
    """A number below 2**64 for a document, from its beginning."""
    salt, head = seed.to_bytes(8, "little"), text[:HEAD].encode()
    return int.from_bytes(blake2b(head, digest_size=8, key=salt).digest(), "little")


@dataclass(frozen=True)
class SplitShares:
    """What goes to validation and to the test; the rest learns."""

    valid: Annotated[
        float, Option("Share of the documents to validate with.", "--valid-fraction", "X")
    ] = 0.05
    test: Annotated[
        float, Option("Share of the documents to test with.", "--test-fraction", "X")
    ] = 0.05

    def __post_init__(self) -> None:
        if not (0 <= self.valid < 1 and 0 <= self.test < 1 and self.valid + self.test < 1):
            raise InputError(
                f"--valid-fraction {self.valid:g} and --test-fraction {self.test:g} must each be 0 "
                "or more and leave something to learn from (together less than 1)"
            )

    @property
    def any(self) -> bool:
        return self.valid + self.test > 0


@dataclass(frozen=True)
class SplitBounds:
    """Keys up to the first bound validate, those up to the second test."""

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
        """The exact share of the distinct documents, but each split has one if there are three."""
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
    """Cuts one document of so many bytes: the first sentences learn, the last test. Gives each
    sentence, its bytes, its split, and whether its stretch ends with it.
    """
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
