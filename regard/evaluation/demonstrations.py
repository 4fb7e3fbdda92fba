"""Draws the demonstrations (shots) of a prompt. They are drawn with a seed and never include the
tested example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.core.errors import ConfigError, InputError
from regard.core.seeding import keyed
from regard.data.examples import Example


class DemonstrationPool:
    """A pool of demonstrations, in which the same text counts once.

    Each example has its own demonstrations, or all share the same ones (`fixed`). An example that
    would be shown to itself gets the next one of the pool instead. With the same seed, the first of
    many demonstrations are the same as those of a smaller count. "balanced" takes one example of
    each class in turn, in an order drawn anew each time.
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
            raise ConfigError("the data has no classes to balance; draw uniform")
        self.classes = dict(sorted(self.classes.items()))

    def of(self, number: int, example: Example) -> list[Example]:
        """Returns the demonstrations for an example; `number` is its index in the data."""
        own = self.place.get(example.asked(), -1) if self.count else -1
        left = len(self.pool) - (own >= 0)
        if self.count > left:
            raise InputError(
                f"{self.count} demonstrations were asked for, but there are only {left} labeled "
                f"examples with another text than {example.place or number}; choose fewer, or a "
                "larger file (--shots-from)"
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
        """Takes one example of each class in turn. A class without more examples is skipped."""
        members = list(self.classes.values())
        waiting = [
            iter([i for i in dice.permutation(each).tolist() if i != own]) for each in members
        ]
        chosen: list[int] = []
        while len(chosen) < self.count:
            for which in dice.permutation(len(waiting)).tolist():
                chosen += [i for i in [next(waiting[which], None)] if i is not None]
        return chosen[: self.count]
