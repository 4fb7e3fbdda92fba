"""The learning rate at every step: the papers' schedules, by name.

t is the number of the current step and starts at 1. Most published programs count from 0 and so
take their first step at a learning rate of 0; our step t has the value of their step t + 1. A
schedule that falls to zero reaches it at the last step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from regard.core.errors import ConfigError, UnknownName

Rate = Callable[[int], float]
DECAY_FRACTION = 0.5  # the share of a run in which the rate of "wsd" falls


@dataclass(frozen=True)
class ScheduleTimes:
    """The variables W, T and d of the formulas."""

    warmup: int
    steps: int
    until: int  # where the decay ends
    width: int | None
    power: float
    decay_steps: int  # for "wsd": the steps in which the rate falls

    def rising(self, t: int) -> float:
        return t / self.warmup

    def left(self, t: int) -> float:
        """Returns the share of the decay that remains: 1 after the warm-up, 0 at the end."""
        return min(1.0, max(0.0, (self.until - t) / max(1, self.until - self.warmup)))


def noam(c: ScheduleTimes, t: int) -> float:
    """Vaswani et al. 2017, 5.3: d^-0.5 · min(t^-0.5, t · W^-1.5)."""
    assert c.width is not None
    return c.width**-0.5 * min(t**-0.5, t * c.warmup**-1.5)


def t2t(c: ScheduleTimes, t: int) -> float:
    """tensor2tensor writes Noam's curve in another form, and multiplies it by 2."""
    assert c.width is not None
    return min(1.0, c.rising(t)) * max(t, c.warmup) ** -0.5 * c.width**-0.5


def linear(c: ScheduleTimes, t: int) -> float:
    """Rises to the full rate at t = W, then falls to zero at t = T."""
    return c.rising(t) if t < c.warmup else c.left(t)


def bert(c: ScheduleTimes, t: int) -> float:
    """Like `linear`, but the decay begins at step 0: the rate never reaches its maximum, and steps
    W and W - 1 have the same value."""
    return c.rising(t) if t < c.warmup else max(0.0, 1.0 - t / c.until)


def gpt1(c: ScheduleTimes, t: int) -> float:
    """The fine-tuning schedule of GPT-1: the decay acts during the warm-up too."""
    return min(1.0, c.rising(t) if c.warmup else 1.0) * max(0.0, 1.0 - t / c.until)


def polynomial(c: ScheduleTimes, t: int) -> float:
    """Polynomial decay, as in XLNet (power 1) and Longformer (power 3)."""
    return c.rising(t) if t < c.warmup else c.left(t) ** c.power


def cosine(c: ScheduleTimes, t: int) -> float:
    return c.rising(t) if t < c.warmup else 0.5 * (1.0 - math.cos(math.pi * c.left(t)))


def inverse_square_root(c: ScheduleTimes, t: int) -> float:
    """T5: 1 / √max(t, W), here as a share of its highest value; there is no rise during W."""
    return (max(1, c.warmup) / max(t, c.warmup)) ** 0.5


def wsd(c: ScheduleTimes, t: int) -> float:
    """Warm-up, stable, decay: the full rate, then down to zero in the last `decay_steps` steps. The
    weights before the decay can start a longer run as well (Hu et al. 2024)."""
    if t < c.warmup:
        return c.rising(t)
    return min(1.0, max(0.0, (c.until - t) / max(1, c.decay_steps)))


def constant(c: ScheduleTimes, t: int) -> float:
    return c.rising(t) if t < c.warmup else 1.0


SCHEDULES: dict[str, Callable[[ScheduleTimes, int], float]] = {
    "noam": noam,
    "t2t": t2t,
    "linear": linear,
    "bert": bert,
    "gpt1": gpt1,
    "polynomial": polynomial,
    "cosine": cosine,
    "inverse-square-root": inverse_square_root,
    "constant": constant,
    "wsd": wsd,
}
BY_WIDTH = {"noam", "t2t"}  # here `lr` is a factor; elsewhere it is the highest rate
FALLING = {"linear", "bert", "polynomial", "cosine", "wsd"}  # these can have a min_lr_ratio


def schedule(
    name: str,
    *,
    lr: float,
    warmup: int | float,  # steps, or a share of all steps if below 1
    steps: int,
    width: int | None = None,
    min_lr_ratio: float = 0.0,  # the share of the rate that is left at the end
    power: float = 1.0,  # for "polynomial"
    until: int | float | None = None,  # where the decay ends, in steps or as a share; None: T
    decay_fraction: float = DECAY_FRACTION,  # for "wsd": the share of steps in which it falls
) -> Rate:
    """Returns the learning rate as a function of the step t = 1, 2, …

    >>> schedule("noam", lr=1.0, warmup=4000, steps=100_000, width=512)(4000)
    0.0006987712429686843
    """
    check_name(name)
    if steps < 1:
        raise ConfigError(f"{steps} steps; a schedule needs at least 1")
    clock = ScheduleTimes(
        warmup_steps(warmup, steps),
        steps,
        max(2, steps_of("until", until or steps, steps)),  # else a run of one step has a rate of 0
        width,
        power,
        max(1, round(decay_fraction * steps)),
    )
    if not 0 < decay_fraction <= 1:
        raise ConfigError(
            f"decay_fraction is {decay_fraction}; it is the share of all steps in which the rate "
            "falls, above 0 and at most 1"
        )
    check(name, clock, lr, min_lr_ratio)
    shape = SCHEDULES[name]

    def at(t: int) -> float:
        if t < 1:
            raise ConfigError(f"step {t}; steps are counted from 1")
        value = shape(clock, t)
        if min_lr_ratio and t >= clock.warmup:
            value = min_lr_ratio + (1.0 - min_lr_ratio) * value
        return lr * value

    return at


def check_name(name: str) -> None:
    if name not in SCHEDULES:
        raise UnknownName("schedule", name, SCHEDULES)


def check(name: str, clock: ScheduleTimes, lr: float, min_lr_ratio: float) -> None:
    if not (math.isfinite(lr) and lr >= 0):
        raise ConfigError(f"lr is {lr}; it must be a number of at least 0")
    if name in BY_WIDTH and (clock.width is None or clock.width < 1):
        raise ConfigError(f"schedule {name!r} depends on the model's width; give it")
    if name in BY_WIDTH and clock.warmup < 1:
        raise ConfigError(f"schedule {name!r} cannot do without a warm-up; give at least 1 step")
    if not 0.0 <= min_lr_ratio <= 1.0:
        raise ConfigError(f"min_lr_ratio is {min_lr_ratio}; it is a share of lr, from 0 to 1")
    if min_lr_ratio and name not in FALLING:
        raise ConfigError(
            f"schedule {name!r} has no min_lr_ratio; leave it at 0 or choose one of "
            f"{', '.join(sorted(FALLING))}"
        )


def warmup_steps(warmup: int | float, steps: int) -> int:
    """Returns the warm-up in steps; a value below 1 is a share of all steps."""
    return steps_of("warm-up", warmup, steps)


def steps_of(what: str, value: int | float, steps: int) -> int:
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{what} of {value}; give a number of steps, or a share below 1")
    if 0 < value < 1:
        return max(1, round(value * steps))
    if value != int(value):
        raise ConfigError(f"{what} of {value} steps; give a whole number, or a share below 1")
    return int(value)
