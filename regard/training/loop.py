"""The training loop: pretraining, fine-tuning and distillation differ only in the objective.

A step is a pure function of (weights, optimizer state, seed, step), so that a stopped run resumes
bit for bit as if it had never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.core.errors import ConfigError, Diverged, FormatError
from regard.core.seeding import seed_torch
from regard.models.state import State
from regard.objectives.base import Batch, Objective
from regard.training.optimizer import clip, load_state, put, set_rate, state_tensors
from regard.training.parallel import ProcessGroup, SingleProcess
from regard.training.train_module import autocast, moved

Parts = dict[str, Tensor]
# So many times the loss of the first step, and so many nats above it, for so many steps: diverged.
EXPLODED = 4.0
ABOVE = 5.0
RISEN = 20


class ForwardBackward(Protocol):
    """A forward and backward pass of a micro-batch.

    `last` is False if another pass follows, `share` scales its loss, and with `inputs` only these
    tensors get a gradient.
    """

    def __call__(
        self,
        state: State | None,
        *,
        last: bool = True,
        share: float = 1.0,
        inputs: Sequence[Tensor] | None = None,
    ) -> Parts: ...


Place = tuple[int, int]  # the step, and the micro-batch counted over all processes
Passes = Callable[[ForwardBackward, Place, Batch, State | None], Parts]


def once(go: ForwardBackward, place: Place, batch: Batch, state: State | None) -> Parts:
    """Reads a micro-batch once, unchanged."""
    return go(state)


@dataclass
class RunProgress:
    """The state of a run beside its tensors; it is part of every checkpoint."""

    step: int = 0
    tokens: int = 0  # tokens read
    targets: int = 0  # tokens that had a loss
    seconds: float = 0.0  # time spent in steps, over all starts
    best: float | None = None  # the first metric of the best validation
    least: float | None = None  # its loss
    best_step: int = 0
    best_by: str = ""  # the name of the metric that chose it
    waited: int = 0  # validations since the best one
    validated: int = -1  # the last step that was validated
    scaler: dict[str, Any] = field(default_factory=dict)
    start_loss: float | None = None  # that of the first step
    risen: int = 0  # the last so many steps had an exploded loss


@dataclass(frozen=True)
class StepMetrics:
    """The results of one step."""

    loss: float  # the training loss: the weighted sum of the losses
    losses: dict[str, float]  # the losses per target
    norm: float
    lr: float
    tokens: int
    flags: list[bool]  # whether each flag was raised in any process


class Batches:
    """The batches of a process, prepared while the previous step is computed.

    The samples of step s are s·B … s·B + B - 1 of the whole training. They are distributed in equal
    slices, one to each micro-batch of each process; a sample does not depend on the process that
    reads it.
    """

    def __init__(
        self, objective: Objective, samples: int, accumulate: int, rank: int, world: int
    ) -> None:
        if samples % (accumulate * world):
            raise ConfigError(
                f"batch.size is {samples}; it must be divisible by batch.grad_accum "
                f"({accumulate}) times the number of processes ({world})"
            )
        if objective.whole_steps and accumulate * world > 1:
            raise ConfigError(
                f"objective {objective.name} compares the samples of a step with each other, so it "
                f"cannot be divided into {accumulate * world} parts; use one process without "
                "batch.grad_accum, and objective.chunk=N where memory is short: it gives the same "
                "gradient"
            )
        self.objective, self.samples = objective, samples
        self.size = samples // (accumulate * world)
        self.first = rank * accumulate
        self.slices = range(self.first, self.first + accumulate)
        self.worker = ThreadPoolExecutor(1, "regard-batches")
        self.ahead: tuple[int, Future[list[Batch]]] | None = None

    def places(self, part: int) -> list[int]:
        """Returns the positions of one micro-batch's samples in the step, counted over all
        processes."""
        return self.objective.arrange(list(range(part * self.size, (part + 1) * self.size)))

    def make(self, step: int) -> list[Batch]:
        start = step * self.samples
        return [
            self.objective.collate([self.objective.get(start + p) for p in self.places(part)])
            for part in self.slices
        ]

    def step(self, number: int, last: int) -> list[Batch]:
        """Returns the micro-batches of a step; starts to prepare the next step unless this is the
        last."""
        if self.ahead is not None and self.ahead[0] == number:
            totals = self.ahead[1].result()
        else:
            self.drop()
            totals = self.make(number)
        if number + 1 < last:
            self.ahead = number + 1, self.worker.submit(self.make, number + 1)
        return totals

    def drop(self) -> None:
        if self.ahead is not None:
            self.ahead[1].cancel()
            self.ahead = None

    def close(self) -> None:
        self.drop()
        self.worker.shutdown(cancel_futures=True)


class Loop:
    """Runs training steps. Validation, checkpoints and the display are not here."""

    def __init__(
        self,
        engine: SingleProcess,
        objective: Objective,
        batches: Batches,
        optimizer: torch.optim.Optimizer,
        rate: Callable[[int], float],
        group: ProcessGroup,
        *,
        seed: int,
        precision: str,
        limit: float,  # the largest norm of the gradient; 0: no limit
    ) -> None:
        self.engine, self.objective, self.batches = engine, objective, batches
        self.optimizer, self.rate, self.group = optimizer, rate, group
        self.seed, self.precision, self.limit = seed, precision, limit
        learner: Any = engine.learner
        self.model = learner.model
        like = next(self.model.parameters())
        self.device, self.dtype = like.device, like.dtype
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=precision == "fp16")
        self.progress = RunProgress()
        self.states: list[State | None] = [None] * len(batches.slices)
        self.thaw: Callable[[int], None] = lambda step: None  # unfreezes layers before a step
        self.passes: Passes = once  # how a micro-batch is read
        self.at: Callable[[int], int] = lambda step: step  # a step's place in the schedule

    def step(self, last: int, flags: Callable[[], Sequence[bool]] = tuple) -> StepMetrics:
        """Runs step `progress.step` (counted from 0), which does not count if it diverges."""
        began = time.perf_counter()
        number = self.progress.step
        micro = self.batches.step(number, last)
        self.begin_epoch(number)
        self.thaw(number)
        counts, tokens = self.counts(micro)
        sums = dict.fromkeys(counts, 0.0)
        for i, batch in enumerate(micro):
            batch = moved(batch, self.device, self.dtype)
            place = number, self.batches.first + i
            go = partial(self.go, place, batch, counts)
            parts = self.passes(go, place, batch, self.states[i])
            for name, value in parts.items():
                sums[name] += float(value.detach())
        totals = self.group.sum([*sums.values(), *map(float, flags())])
        same = self.group.tensor  # so many processes computed each loss
        losses = {k: t / same / max(counts[k], 1) for k, t in zip(sums, totals, strict=False)}
        raised = [bool(flag) for flag in totals[len(sums) :]]
        self.scaler.unscale_(self.optimizer)
        norm = clip(self.model.parameters(), self.limit, self.optimizer)
        rate = self.rate(self.at(number + 1))
        learned = sum(self.objective.weights.get(k, 1.0) * loss for k, loss in losses.items())
        if not self.scaler.is_enabled():
            self.refuse_nonsense(number, losses, norm)
        self.refuse_explosion(number, learned)
        set_rate(self.optimizer, rate)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.engine.average(number)
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.step += 1
        self.progress.tokens += tokens
        self.progress.targets += int(next(iter(counts.values())))
        self.progress.seconds += time.perf_counter() - began
        return StepMetrics(learned, losses, norm, rate, tokens, raised)

    def go(
        self,
        place: tuple[int, int],
        batch: Batch,
        counts: dict[str, float],
        state: State | None,
        *,
        last: bool = True,  # whether this is the micro-batch's last pass
        share: float = 1.0,
        inputs: Sequence[Tensor] | None = None,  # the tensors with gradients; None: the weights
    ) -> dict[str, Tensor]:
        """Runs one forward and backward pass, with the same dropout every time."""
        seed_torch(self.seed, "dropout", *place)
        with self.engine.sync(last and place[1] == self.batches.slices[-1]):
            with autocast(self.device, self.precision):
                parts, _ = self.engine.module(batch, state)
            total = self.scaler.scale(self.total(parts, counts))
            (total if share == 1.0 else total * share).backward(inputs=inputs)
        sums: dict[str, Tensor] = parts
        return sums

    def counts(self, micro: list[Any]) -> tuple[dict[str, float], int]:
        """Returns the targets and tokens of the step, over all processes and micro-batches."""
        of_batches = [self.objective.counts(batch) for batch in micro]
        names = list(dict.fromkeys(name for one in of_batches for name in one))
        sums = [sum(float(one.get(name, 0)) for one in of_batches) for name in names]
        sizes = [self.objective.tokens_in(batch) for batch in micro]
        known = [size for size in sizes if size is not None]
        *sums, tokens = self.group.sum_data([*sums, float(sum(known))])
        if len(known) < len(sizes):
            tokens = self.batches.samples * self.objective.seq_len
        return dict(zip(names, sums, strict=True)), int(tokens)

    def total(self, sums: dict[str, Tensor], counts: dict[str, float]) -> Tensor:
        """Returns the training loss: each sum divided by its number of targets in the step."""
        weights = self.objective.weights
        parts = [
            value * (weights.get(name, 1.0) * self.engine.scale / max(counts[name], 1))
            for name, value in sums.items()
        ]
        return torch.stack([part.reshape(()) for part in parts]).sum()

    def begin_epoch(self, number: int) -> None:
        """Resets the recurrent states at the start of an epoch."""
        if self.objective.recurrent and number * self.batches.samples % len(self.objective) == 0:
            self.states = [self.objective.begin(self.model, self.batches.size) for _ in self.states]

    def refuse_nonsense(self, number: int, losses: dict[str, float], norm: float) -> None:
        if all(map(math.isfinite, losses.values())) and math.isfinite(norm):
            return
        self.optimizer.zero_grad(set_to_none=True)
        first = number * self.batches.samples
        shown = ", ".join(f"{name} {value:.4g}" for name, value in losses.items())
        raise Diverged(
            f"step {number + 1} has no finite loss or gradient ({shown}, norm {norm:.4g}); its "
            f"samples are {first} to {first + self.batches.samples - 1}. The weights before it are "
            f"kept. {self.advice()}, a longer --warmup, or engine.precision=fp32"
        )

    def refuse_explosion(self, number: int, loss: float) -> None:
        """Ends a run whose loss stays far above that of its first step."""
        progress = self.progress
        if progress.start_loss is None:
            progress.start_loss = loss
        start = progress.start_loss
        high = loss > max(EXPLODED * start, start + ABOVE)
        progress.risen = progress.risen + 1 if high else 0
        if progress.risen < RISEN:
            return
        self.optimizer.zero_grad(set_to_none=True)
        raise Diverged(
            f"the loss began at {start:.4g}, and in the {RISEN} steps up to step {number + 1} it "
            f"was far above that, {loss:.4g} at last. {self.advice()}, or a longer --warmup"
        )

    def advice(self) -> str:
        """A smaller rate than the highest that the optimizer was built with."""
        lr = self.optimizer.defaults["lr"]
        return f"Start again with --lr {lr / 3:.2g}, a third of {lr:.3g}"

    # -- what a checkpoint holds

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Returns all tensors of a plain checkpoint; all processes must call it together."""
        weights = {k: v.detach() for k, v in self.model.state_dict().items()}
        optimizer = state_tensors(self.optimizer, self.model)
        if self.group.tensor > 1:
            from regard.training.tensor_parallel import in_order, orders_of

            orders = orders_of(self.model)
            weights, optimizer = in_order(weights, orders), in_order(optimizer, orders)
        return {"weights": weights, "optimizer": optimizer, "memory": self.memory()}

    def memory(self) -> dict[str, Tensor]:
        """Returns the hidden states by their position in the step, from all processes."""
        states = [state for state in self.states if state is not None]
        if not states:
            return {}
        places = [p for part in range(self.parts()) for p in self.batches.places(part)]
        back = torch.tensor(places, device=self.device).argsort()
        tensors = {}
        for i in range(len(states[0].hidden)):
            mine = torch.cat([state.hidden[i] for state in states])
            tensors[f"hidden.{i}"] = self.group.gather(mine)[back]
        if states[0].attention_mask is not None:
            marks = torch.cat([s.attention_mask for s in states if s.attention_mask is not None])
            tensors["attention_mask"] = self.group.gather(marks.to(torch.uint8))[back]
        tensors["length"] = torch.tensor(states[0].length)
        return tensors

    def parts(self) -> int:
        return len(self.batches.slices) * self.group.data_world

    def restore(
        self,
        tensors: dict[str, dict[str, Tensor]],
        progress: dict[str, Any],
    ) -> None:
        """Restores the state of a checkpoint."""
        weights, places = tensors["weights"], self.model.state_dict()
        other = sorted(weights.keys() ^ places.keys())
        if other:
            raise FormatError(
                f"{other[0]} is in the {'checkpoint' if other[0] in weights else 'model'} alone; "
                "resume with the recipe that the run was saved with"
            )
        if self.group.tensor > 1:
            from regard.training.tensor_parallel import orders_of, reordered

            orders = orders_of(self.model)
            tensors = {name: reordered(each, orders) for name, each in tensors.items()}
            weights = tensors["weights"]
        with torch.no_grad():
            for name, place in places.items():
                put(place, weights[name], name)
        if "optimizer" in tensors:
            load_state(self.optimizer, self.model, tensors["optimizer"])
        self.progress = RunProgress(**progress)
        if self.progress.scaler:
            self.scaler.load_state_dict(self.progress.scaler)
        memory = tensors.get("memory") or {}
        if not memory:
            return
        hidden = [memory[f"hidden.{i}"] for i in range(sum(k.startswith("hidden") for k in memory))]
        self.states = []
        for part in self.batches.slices:
            rows = torch.tensor(self.batches.places(part))
            attention_mask = (
                memory["attention_mask"][rows].bool().to(self.device)
                if "attention_mask" in memory
                else None
            )
            self.states.append(
                State(
                    hidden=[h[rows].to(self.device) for h in hidden],
                    attention_mask=attention_mask,
                    length=int(memory["length"]),
                )
            )

    def facts(self) -> dict[str, Any]:
        """Returns the values of a checkpoint that are not tensors."""
        if self.scaler.is_enabled():
            self.progress.scaler = dict(self.scaler.state_dict())
        return asdict(self.progress)

    def rehearse(self, seconds: float, least: int = 3) -> float:
        """Returns the seconds of a step: runs and times a few steps, then undoes them."""
        weights = [p.detach().clone() for p in self.model.parameters()]
        times: list[float] = []
        while len(times) < least or sum(times) < seconds:
            began = time.perf_counter()
            self.step(self.progress.step + 1)
            times.append(time.perf_counter() - began)
            if self.group.share([float(sum(times) > 4 * seconds and len(times) > 1)])[0]:
                break
            times[-1] = self.group.share([times[-1]])[0]
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), weights, strict=True):
                parameter.copy_(value)
        self.optimizer.state.clear()
        self.progress = RunProgress()
        self.states = [None] * len(self.states)
        self.batches.drop()
        usual = sorted(times[1:] or times)
        return usual[len(usual) // 2]
