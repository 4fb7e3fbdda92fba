"""Which samples a process reads in a step, made ready while the step before is computed.

The samples of step s are s·B … s·B + B - 1 of the whole training. They are dealt out in equal
slices, one to each micro-batch of each process; what a sample is does not depend on who reads it.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from regard.core.errors import ConfigError
from regard.objectives.base import Batch, Objective


class Batches:
    def __init__(
        self, objective: Objective, samples: int, accumulate: int, rank: int, world: int
    ) -> None:
        if samples % (accumulate * world):
            raise ConfigError(
                f"batch.samples is {samples}; it must be divisible by batch.accumulate "
                f"({accumulate}) times the number of processes ({world})"
            )
        self.objective, self.samples = objective, samples
        self.size = samples // (accumulate * world)
        self.first = rank * accumulate
        self.slices = range(self.first, self.first + accumulate)
        self.worker = ThreadPoolExecutor(1, "regard-batches")
        self.ahead: tuple[int, Future[list[Batch]]] | None = None

    def places(self, part: int) -> list[int]:
        """Where in the step the samples of one micro-batch stand, counted over all processes."""
        return self.objective.arrange(list(range(part * self.size, (part + 1) * self.size)))

    def make(self, step: int) -> list[Batch]:
        start = step * self.samples
        return [
            self.objective.collate([self.objective.get(start + p) for p in self.places(part)])
            for part in self.slices
        ]

    def step(self, number: int, last: int) -> list[Batch]:
        """The micro-batches of a step; those of the next one are begun, unless this is the last."""
        if self.ahead is not None and self.ahead[0] == number:
            found = self.ahead[1].result()
        else:
            self.drop()
            found = self.make(number)
        if number + 1 < last:
            self.ahead = number + 1, self.worker.submit(self.make, number + 1)
        return found

    def drop(self) -> None:
        if self.ahead is not None:
            self.ahead[1].cancel()
            self.ahead = None

    def close(self) -> None:
        self.drop()
        self.worker.shutdown(cancel_futures=True)
