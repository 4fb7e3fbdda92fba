"""A model and its objective as one module, which is compiled and which parallel engines wrap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention.block import Block
from regard.core.errors import RegardError
from regard.models.state import State
from regard.objectives.base import Batch, Loss, Objective

if TYPE_CHECKING:
    from regard.training.parallel import ProcessGroup

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}


class TrainModule(nn.Module):
    """Called with a batch, returns (sums of losses, sums that are only reported) as dictionaries of
    tensors, which every engine understands."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(
        self, batch: Batch, state: State | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        loss = self.objective.loss(self.model, batch, state)
        seen = {name: pair[0] for name, pair in loss.seen.items()}
        return loss.sums, seen | {
            f"{name}/of": counted(pair[1]) for name, pair in loss.seen.items()
        }


def counted(value: Tensor | float) -> Tensor:
    """Returns a count as a tensor, as exactly as the device can hold it."""
    if isinstance(value, Tensor) and value.device.type == "mps":  # which has no float64
        return value.float()
    return torch.as_tensor(value, dtype=torch.float64)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Runs products in half precision; weights, norms, softmax and sums stay in fp32."""
    if precision in ("fp32", "fp64"):
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


def moved(batch: Batch, device: torch.device, dtype: torch.dtype | None = None) -> Batch:
    """Returns the batch on a device; floating-point values get the dtype of the weights."""

    def one(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: one(v) for k, v in value.items()}
        if not isinstance(value, Tensor):
            return value
        if dtype is not None and value.is_floating_point():
            value = value.to(dtype)
        return value.to(device, non_blocking=True)

    return {k: one(v) for k, v in batch.items()}


def checkpoint_blocks(model: nn.Module) -> None:
    """Turns on activation checkpointing: each block recomputes its activations when needed."""
    for block in blocks(model):
        block.run = recomputed


def blocks(model: nn.Module) -> list[Any]:
    """Returns all layers of a model, of an encoder and of a decoder alike."""
    return [part for part in model.modules() if isinstance(part, Block)]


def recomputed(block: Block, *inputs: Any) -> Tensor:
    """A block's `run` that keeps only the inputs and recomputes the rest for the gradient."""
    if not torch.is_grad_enabled():
        return block.compute(*inputs)
    if torch.compiler.is_compiling():  # a graph has one mode, forward and backward
        y: Tensor = checkpoint(block.compute, *inputs, use_reentrant=False)
        return y
    with nothing_rounded_stays():
        z: Tensor = checkpoint(in_mode, block, block.training, *inputs, use_reentrant=False)
    return z


@contextmanager
def nothing_rounded_stays() -> Iterator[None]:
    """Lets autocast keep no rounded weights. It would hold those of all blocks in every process to
    the end of the forward pass, although they are rounded again for the backward pass."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def in_mode(block: Block, training: bool, *inputs: Any) -> Tensor:
    """Runs a block in the backward pass in the train or eval mode of its forward pass: an objective
    may have put the model into eval mode only for its call."""
    now = block.training
    if now != training:
        block.train(training)
    try:
        return block.compute(*inputs)
    finally:
        if now != training:
            block.train(now)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Turns off dropout and gradients, and restores the mode afterwards."""
    was = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(was)


# -- validation


class Interrupted(RegardError):
    """A stop was requested in the middle."""


class Validated(NamedTuple):
    figures: dict[str, float]  # the metrics for people
    badness: float  # the value that is lowest for the best model


def validate(
    learner: Any,
    objective: Objective,
    group: ProcessGroup,
    device: torch.device,
    precision: str,
    *,
    samples: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Validated:
    """Returns the metrics of `objective` (built for validation) with the module's weights.

    `samples` limits it to the first samples; None uses all. `stopping` is called between batches.
    """
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    seen: dict[str, float] = defaultdict(float)
    model = learner.model
    state, learned = None, learner.objective
    dtype = next(model.parameters()).dtype
    learner.objective = objective
    try:
        with evaluating(learner):
            for first, places, counted in steps(objective, group, samples):
                if first:
                    state = objective.begin(model, len(places))
                if sum(group.sum([float(stopping())])):
                    raise Interrupted("stopped in the middle of a validation")
                batch = moved(objective.collate([objective.get(p) for p in places]), device, dtype)
                with autocast(device, precision):
                    summed, shown = learner(batch, state)
                for table, new in (
                    (sums, summed),
                    (seen, shown),
                    (counts, objective.counts(batch)),
                ):
                    for name, value in new.items():
                        table[name] += float(value) * counted
    finally:
        learner.objective = learned
    totals = added(sums, counts, seen, group)
    return Validated(objective.measure(totals), objective.badness(totals))


def steps(
    objective: Objective, group: ProcessGroup, samples: int | None
) -> Iterator[tuple[bool, list[int], bool]]:
    """Yields (whether it is the first, which samples, whether they count) for each batch of this
    process.

    Engines need the same number of calls from every process: a process that has nothing left
    computes a sample whose result does not count.
    """
    total = min(samples, len(objective)) if samples else len(objective)
    if objective.recurrent:  # all streams advance together
        total = max(total // objective.batch_size, 1) * objective.batch_size
    rank, world = group.data_rank, group.data_world
    share = max(1, objective.batch_size // world)
    for start in range(0, total, share * world):
        mine = range(start + rank * share, start + (rank + 1) * share)
        places = objective.arrange([p for p in mine if p < total])
        yield start == 0, places or [0], bool(places)


def added(
    sums: dict[str, float], counts: dict[str, float], seen: dict[str, float], group: ProcessGroup
) -> Loss:
    """Returns the sums over all processes, which have the same names."""
    names = sorted({*sums, *counts, *seen})
    totals = group.sum_data([table.get(n, 0.0) for table in (sums, counts, seen) for n in names])
    size = len(names)
    all_sums, all_counts, all_seen = (
        dict(zip(names, totals[i * size : (i + 1) * size], strict=True)) for i in range(3)
    )
    return Loss(
        {n: torch.tensor(all_sums[n], dtype=torch.float64) for n in names if all_counts[n]},
        {n: all_counts[n] for n in names if all_counts[n]},
        {
            n: (torch.tensor(all_seen[n], dtype=torch.float64), all_seen[f"{n}/of"])
            for n in names
            if f"{n}/of" in names
        },
    )
