"""Trains probes: one for each layer, all layers at once, each as if it were alone.

Every layer has its own Adam, plateau schedule and early stopping. The layers share the order of the
data and the dropout masks, so that a probe does not depend on which others train beside it. A batch
is read from the disk once for all layers.
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

Done = Callable[[int, int], None]  # (index of a probe, number of epochs after which it was best)
Epoch = Callable[[int, int], None]  # (epochs done, layers that still train)


@dataclass(frozen=True)
class ProbeSchedule:
    """The hyperparameters of training. The defaults are those of Hewitt and Liang 2019 for linear
    and MLP probes. They give no maximal number of epochs: early stopping ends the training, and
    `epochs` is large enough for a few hundred sentences, too."""

    rate: float = 1e-3
    factor: float = 0.5  # multiplies the rate after an epoch without a better validation loss
    epochs: int = 100
    wait: int = 5  # epochs without improvement until it stops
    gain: float = 1e-4  # a smaller improvement does not count
    decay: float = 0.0  # weight decay
    batch: int = 40  # sentences or texts of a batch


class ProbeObjective(Protocol):
    """What probes learn: items, and the loss of each probe on some of them."""

    train: np.ndarray  # indices of items
    dev: np.ndarray

    def losses(
        self, active: Sequence[int], items: np.ndarray, learning: bool
    ) -> tuple[Tensor, float]:
        """Returns the summed losses [len(active)] of these probes, and the number of terms in each
        sum."""
        ...


class ProbeTrainer:
    """A probe with its own optimizer, schedule and best weights."""

    def __init__(self, module: nn.Module, pace: ProbeSchedule) -> None:
        self.module, self.pace = module, pace
        self.optimizer = torch.optim.Adam(module.parameters(), pace.rate, weight_decay=pace.decay)
        self.schedule = ReduceLROnPlateau(
            self.optimizer, mode="min", factor=pace.factor, patience=0
        )
        self.best, self.at = float("inf"), -1
        self.kept = [p.detach().clone() for p in module.parameters()]

    def judged(self, epoch: int, loss: float) -> bool:
        """Records a validation loss and returns whether the training of this probe is over."""
        self.schedule.step(loss)
        if loss < self.best - self.pace.gain:
            self.best, self.at = loss, epoch
            self.kept = [p.detach().clone() for p in self.module.parameters()]
        return epoch - self.at >= self.pace.wait

    def settle(self) -> None:
        """Restores the best weights."""
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
    """Trains all modules. Calls `done` for each as soon as it has its best weights."""
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
    """Returns the mean validation loss of each active probe."""
    total, things = np.zeros(len(active)), 0.0
    for start in range(0, len(course.dev), 4 * batch):
        sums, count = course.losses(active, course.dev[start : start + 4 * batch], False)
        total += sums.double().cpu().numpy()
        things += count
    return [float(loss) for loss in total / max(things, 1.0)]
