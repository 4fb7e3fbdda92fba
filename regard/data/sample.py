"""A bounded, even and reproducible sample of a text of any size, to train a tokenizer on."""

from __future__ import annotations

from typing import NamedTuple

from regard.data.splits import ALL, key

BUDGET = 2**25  # bytes of text with spaces; an eighth of that for text without spaces
UNIT = 2**16  # characters of a unit
UNITS = 2**18  # the most units, since each needs some 300 bytes besides its text
WORD, DEAREST = 8, 8  # runs longer than WORD cost more, up to DEAREST times


class SampleUnit(NamedTuple):
    rank: int
    document: int  # the number of the document
    key: int  # the key of the document
    start: int  # the position in the document, in bytes
    text: str
    cost: float


class Sample:
    """A sample that keeps all text until the budget is spent, then drops half of it by a hash."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.units: list[SampleUnit] = []
        self.cost = 0.0
        self.below = ALL
        self.seen = 0  # the number of units so far

    def add(self, document: int, number: int, start: int, text: str) -> None:
        for begin in range(0, len(text), UNIT):
            part = text[begin : begin + UNIT]
            rank = key(self.seed, f"sample {self.seen}")
            self.seen += 1
            if rank < self.below:
                unit = SampleUnit(rank, document, number, start, part, cost(part))
                self.units.append(unit)
                self.cost += unit.cost
            start += size(part)
        while self.cost > BUDGET or len(self.units) > UNITS:
            self.below //= 2
            self.units = [unit for unit in self.units if unit.rank < self.below]
            self.cost = sum(unit.cost for unit in self.units)

    @property
    def whole(self) -> bool:
        return self.below == ALL


def size(text: str) -> int:
    """Returns the number of bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def cost(text: str) -> float:
    """Returns the cost of a text in bytes. A trainer's memory grows with the number of distinct
    words, and long runs without spaces are nearly all distinct."""
    run = len(text) / (1 + text.count(" ") + text.count("\n"))
    return size(text) * min(max(1.0, run / WORD), DEAREST)
