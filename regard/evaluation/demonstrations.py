"""Which examples are shown before the one that is asked: drawn by a key, never that one itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.core.errors import ConfigError, InputError
from regard.core.seeding import keyed
from regard.data.examples import Example


class DemonstrationPool:
    """Demonstrations from a pool, in which the same text counts once.

    Each example has its own, or all have the same (`fixed`) but for those that would be shown to
    themselves: they get the next one. The first of many are those that fewer would have been.
    "balanced" takes one example of each class in turn, in an order drawn anew each time.
    """

    def __init__(
        self, pool: Sequence[Example], count: int, draw: str = "uniform", fixed: bool = False,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.count, self.draw, self.fixed, self.seed = count, draw, fixed, seed
        self.pool: list[Example] = []
        self.place: dict[str, int] = {}
        self.classes: dict[str, list[int]] = {}
        for example in pool if count else ():
            if not example.labeled or not example.asked() or example.asked() in self.place:
                continue
            self.place[example.asked()] = len(self.pool)
            for label in example.labels():
                self.classes.setdefault(label, []).append(len(self.pool))
            self.pool.append(example)
        if count and draw == "balanced" and not self.classes:
            raise ConfigError("there are no classes to balance; draw uniform")
        self.classes = dict(sorted(self.classes.items()))

    def of(self, number: int, example: Example) -> list[Example]:
        """The demonstrations for an example, which has this number in its data."""
        own = self.place.get(example.asked(), -1) if self.count else -1
        left = len(self.pool) - (own >= 0)
        if self.count > left:
            raise InputError(
                f"{self.count} demonstrations were asked for, and there are {left} labeled "
                f"examples of other texts than {example.place or number}; ask for fewer, or take "
                "them from a larger file (--shots-from)"
            )
        key = (self.seed, "shots") if self.fixed else (self.seed, "shots", number)
        dice = keyed(*key)
        if self.draw == "balanced":
            chosen = self.evenly(dice, own)
        else:
            order = dice.permutation(len(self.pool))[: self.count + 1].tolist()
            chosen = [i for i in order if i != own][: self.count]
        return [self.pool[i] for i in chosen]

    def evenly(self, dice: np.random.Generator, own: int) -> list[int]:
        """One of each class in turn; a class that has no more is passed over."""
        members = list(self.classes.values())
        waiting = [
            iter([i for i in dice.permutation(each).tolist() if i != own]) for each in members
        ]
        chosen: list[int] = []
        while len(chosen) < self.count:
            for which in dice.permutation(len(waiting)).tolist():
                chosen += [i for i in [next(waiting[which], None)] if i is not None]
        return chosen[: self.count]
