"""How probes learn: one for each layer, all layers at once, each as if it were alone.

Every layer has an Adam, a plateau schedule and an end of its own, and they share the order of the
data and the dropout, so that what one of them becomes does not depend on which others learn beside
it. A batch is read from the disk once for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from regard.core.seeding import permutation

Done = Callable[[int, int], None]  # the place of a probe, and after how many epochs it was best
Epoch = Callable[[int, int], None]  # epochs done, layers that still learn


@dataclass(frozen=True)
class ProbeSchedule:
    """By default that of Hewitt and Liang 2019 for linear and MLP probes. They name no last epoch;
    what ends it is the validation, and `epochs` is far enough for a few hundred sentences, too.
    """

    rate: float = 1e-3
    factor: float = 0.5  # of the rate, after an epoch without a better validation
    epochs: int = 100
    wait: int = 5  # epochs without gain that end it
    gain: float = 1e-4  # less is none
    decay: float = 0.0
    batch: int = 40  # sentences or texts


class ProbeObjective(Protocol):
    """What is learned: items, and what each probe loses on some of them."""

    train: np.ndarray  # numbers of items
    dev: np.ndarray

    def losses(
        self, active: Sequence[int], items: np.ndarray, learning: bool
    ) -> tuple[Tensor, float]:
        """Summed losses [len(active)] of these probes, and of how many things."""
        ...


class ProbeTrainer:
    """A probe with what is its own: optimizer, schedule, best weights."""

    def __init__(self, module: nn.Module, pace: ProbeSchedule) -> None:
        self.module, self.pace = module, pace
        self.optimizer = torch.optim.Adam(module.parameters(), pace.rate, weight_decay=pace.decay)
        self.schedule = ReduceLROnPlateau(
            self.optimizer, mode="min", factor=pace.factor, patience=0
        )
        self.best, self.at = float("inf"), -1
        self.kept = [p.detach().clone() for p in module.parameters()]

    def judged(self, epoch: int, loss: float) -> bool:
        """Takes note of a validation; whether it was the last."""
        self.schedule.step(loss)
        if loss < self.best - self.pace.gain:
            self.best, self.at = loss, epoch
            self.kept = [p.detach().clone() for p in self.module.parameters()]
        return epoch - self.at >= self.pace.wait

    def settle(self) -> None:
        """Back to the best weights."""
        with torch.no_grad():
            for parameter, value in zip(self.module.parameters(), self.kept, strict=True):
                parameter.copy_(value)


def learn(
    modules: Sequence[nn.Module],
    course: ProbeObjective,
    pace: ProbeSchedule,
    seed: int,
    done: Done = lambda place, epochs: None,
    tell: Epoch = lambda epoch, left: None,
) -> list[ProbeTrainer]:
    """Trains all modules; `done` is called for each as soon as it has its best weights."""
    pupils = [ProbeTrainer(module, pace) for module in modules]
    active = list(range(len(modules)))
    for epoch in range(pace.epochs):
        order = course.train[permutation(len(course.train), seed, "probe order", epoch)]
        for start in range(0, len(order), pace.batch):
            for place in active:
                pupils[place].optimizer.zero_grad(set_to_none=True)
            sums, count = course.losses(active, order[start : start + pace.batch], True)
            (sums / count).sum().backward()
            for place in active:
                pupils[place].optimizer.step()
        losses = validated(course, active, pace.batch)
        last = epoch + 1 == pace.epochs
        over = [
            place
            for place, loss in zip(active, losses, strict=True)
            if pupils[place].judged(epoch, loss) or last
        ]
        for place in over:
            pupils[place].settle()
            done(place, pupils[place].at + 1)
        active = [place for place in active if place not in over]
        tell(epoch + 1, len(active))
        if not active:
            break
    return pupils


@torch.no_grad()
def validated(course: ProbeObjective, active: Sequence[int], batch: int) -> list[float]:
    """The mean losses on what validates."""
    total, things = np.zeros(len(active)), 0.0
    for start in range(0, len(course.dev), 4 * batch):
        sums, count = course.losses(active, course.dev[start : start + 4 * batch], False)
        total += sums.double().cpu().numpy()
        things += count
    return [float(loss) for loss in total / max(things, 1.0)]
