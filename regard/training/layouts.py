"""Chooses how many devices train one model together: `regard plan`.

Every layout of the devices is priced by `layout_costs`; of those that fit, the fastest that this
package can run is chosen. A pipeline is priced for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from regard.attention.attention import Attention
from regard.attention.block import FeedForward
from regard.core.errors import ConfigError, RegardError, counted
from regard.models import create, family_of
from regard.models.family import SHAPES, PaperDefaults
from regard.training import recipe as recipes
from regard.training.layout_costs import Costs, DeviceMemory, Layout, Traffic

GB = 1e9
RESERVE = 0.1  # the share of the memory that is left to the libraries and to fragments
MOST_DEVICES = 2**24
MOST_STAGES = 64
SHOWN = 12  # candidates in the table


@dataclass(frozen=True)
class Devices:
    """The devices, as their makers describe them, and which share of their speed is reached."""

    count: int
    memory: float  # bytes of one
    bandwidth: float  # bytes that one sends to another node in a second
    per_node: int
    node_bandwidth: float  # bytes that one sends within its node in a second
    flops: float  # of one, in a second
    efficiency: float  # which share of them matrix products reach

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ConfigError(f"{name} is {value:g}; it must be above 0")
        if self.efficiency > 1:
            raise ConfigError(f"efficiency is {self.efficiency:g}; it is a share, at most 1")


@dataclass(frozen=True)
class Candidate:
    layout: Layout
    memory: DeviceMemory
    traffic: Traffic
    seconds: float  # of a step
    fits: bool

    @property
    def runs(self) -> bool:
        """Whether `regard train` can do it."""
        return self.layout.pipeline == 1

    def table(self) -> dict[str, Any]:
        layout, memory, traffic = self.layout, self.memory, self.traffic
        return {
            **asdict(layout),
            "samples": layout.samples,
            "memory": {**memory._asdict(), "total": memory.total},
            "traffic": {**traffic._asdict(), "total": traffic.total},
            "seconds": self.seconds,
            "fits": self.fits,
            "on_paper": not self.runs,
        }


@dataclass(frozen=True)
class TrainingJob:
    """The training that is to be laid out."""

    name: str
    model: Any  # on the meta device
    batch_size: int
    seq_len: int
    steps: int | None
    optimizer: str
    precision: str

    def costs(self) -> Costs:
        return Costs(self.model, self.seq_len, optimizer=self.optimizer, precision=self.precision)


def job(
    name: str,
    *,
    batch_size: int | None = None,
    seq_len: int | None = None,
    steps: int | None = None,
    optimizer: str | None = None,
    precision: str | None = None,
) -> TrainingJob:
    """Returns the training of a published size, a family or a recipe file, with the settings of its
    paper where neither the recipe nor the caller has one."""
    recipe = recipes.Recipe(model=name)
    if name.endswith(".toml") or Path(name).is_file():
        recipe = recipes.read_recipe(recipes.find(name))
    if not recipe.model:
        raise ConfigError(f'{name} names no model; set model = "gpt" or another')
    card = family_of(recipe.model)
    paper: PaperDefaults = card.trained(recipe.model)
    length = seq_len or recipe.batch.seq_len or paper.seq_len or 512
    shape = dict(recipe.shape)
    if recipe.model == card.name and recipe.size in SHAPES:
        shape = card.shape(recipe.size, length) | shape
    if recipe.model == card.name and hasattr(card.config, "context"):
        shape.setdefault("context", length)  # a new model has as many positions as it needs
    with torch.device("meta"):
        model = create(recipe.model, initialize=False, **shape)
    most = getattr(model.config, "context", None)
    if most is not None and length > most:
        raise ConfigError(f"seq_len is {length}, and {name} has {most} positions; choose fewer")
    paper_batch = paper.batch_size or max(1, (paper.batch_tokens or 2**19) // length)
    return TrainingJob(
        name,
        model,
        batch_size or recipe.batch.size or paper_batch,
        length,
        steps or recipe.budget.steps or paper.steps,
        optimizer or recipe.optimizer.name or paper.optimizer,
        precision or recipe.engine.precision or "bf16",
    )


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def tensor_sizes(model: Any, devices: Devices) -> list[int]:
    """Returns over how many devices of one node each layer can be split."""
    numbers = []
    for part in model.modules():
        if isinstance(part, Attention):
            numbers += [part.project.heads, part.project.kv_heads]
        elif isinstance(part, FeedForward):
            numbers.append(part.wide.out_features)
    most = min(devices.per_node, devices.count)
    return [
        n
        for n in divisors(most)
        if devices.count % n == 0 and not any(number % n for number in numbers)
    ]


def layouts(work: TrainingJob, costs: Costs, devices: Devices) -> Iterator[Layout]:
    """Yields every layout. If a step cannot be divided evenly, it has a few samples more."""
    for tensor in tensor_sizes(work.model, devices):
        for stages in divisors(len(costs.blocks) or 1):
            if devices.count % (tensor * stages) or stages > MOST_STAGES:
                continue
            data = devices.count // (tensor * stages)
            each = -(-work.batch_size // data)
            for micro in divisors(each):
                for checkpointing in (False, True):
                    yield Layout(data, tensor, stages, micro, each // micro, checkpointing)


def priced(costs: Costs, devices: Devices, layout: Layout) -> Candidate:
    """Returns a layout with its memory and its time: products and the sharding of weights at the
    same time, then what waits for the network."""
    memory, traffic = costs.memory(layout), costs.traffic(layout)
    again = 4 / 3 if layout.checkpointing else 1.0
    bubble = 1 + (layout.pipeline - 1) / layout.accumulate
    speed = devices.count * devices.flops * devices.efficiency
    repeated = 1 + costs.whole_share * (layout.tensor - 1)
    products = costs.flops(layout.samples) * repeated * again / speed * bubble
    alone = devices.count <= devices.per_node
    between = devices.node_bandwidth if alone else devices.bandwidth
    sharding, handed = traffic.sharding / between, traffic.pipeline / between
    seconds = max(products, sharding) + traffic.tensor / devices.node_bandwidth + handed
    fits = memory.total <= devices.memory * (1 - RESERVE)
    return Candidate(layout, memory, traffic, seconds, fits)


def plan(work: TrainingJob, devices: Devices) -> dict[str, Any]:
    """Returns the candidates and the chosen layout, with what the training comes to."""
    costs = work.costs()
    every = [priced(costs, devices, layout) for layout in layouts(work, costs, devices)]
    fitting = sorted((c for c in every if c.fits), key=rank)
    if not fitting:
        raise too_little(work, costs, devices, every)
    running = [c for c in fitting if c.runs]
    chosen = running[0] if running else fitting[0]
    best: dict[tuple[int, int, bool], Candidate] = {}
    for candidate in [*fitting, *sorted(every, key=lambda c: c.memory.total)]:
        layout = candidate.layout
        best.setdefault((layout.tensor, layout.pipeline, layout.checkpointing), candidate)
    shown = sorted(best.values(), key=lambda c: (not c.fits, *rank(c)))
    tokens = chosen.layout.samples * work.seq_len
    facts: dict[str, Any] = {
        "model": work.name,
        "parameters": work.model.parameter_count(),
        "optimizer": work.optimizer,
        "precision": work.precision,
        "state_bytes_per_parameter": costs.copies * costs.exact,
        "seq_len": work.seq_len,
        "samples": chosen.layout.samples,
        "tokens_per_step": tokens,
        "step_flops": costs.flops(chosen.layout.samples),
        "devices": asdict(devices),
        "chosen": chosen.table(),
        "reason": reason(chosen, fitting, every),
        "candidates": [candidate.table() for candidate in shown[:SHOWN]],
        "layouts": len(every),
        "fitting": len(fitting),
    }
    if work.steps:
        steps = -(-work.batch_size * work.steps // chosen.layout.samples)  # as many samples in all
        facts |= {
            "steps": steps,
            "training_flops": facts["step_flops"] * steps,
            "days": chosen.seconds * steps / 86400,
        }
    return facts


def rank(candidate: Candidate) -> tuple[float, ...]:
    """The faster the better; then the fewer micro-batches, which are larger products."""
    return (round(candidate.seconds, 9), candidate.layout.accumulate, candidate.memory.total)


def reason(chosen: Candidate, fitting: list[Candidate], every: list[Candidate]) -> str:
    """Says why a layout was chosen, and what keeps the faster ones out."""
    parts = [f"the fastest of {counted(sum(c.runs for c in fitting), 'layout')} that fit and run"]
    if not chosen.runs:
        parts = ["only a pipeline fits, which regard does not run: this is on paper alone"]
    faster = [c for c in every if c.runs and not c.fits and c.seconds < chosen.seconds]
    if faster:
        need = min(faster, key=lambda c: c.memory.total)
        parts.append(
            f"{words(need.layout)} would take {need.seconds:.3g} s, but needs "
            f"{need.memory.total / GB:.1f} GB"
        )
    paper = [c for c in fitting if not c.runs and c.seconds < chosen.seconds]
    if paper and chosen.runs:
        best = min(paper, key=rank)
        parts.append(
            f"on paper, a pipeline of {best.layout.pipeline} stages would take "
            f"{best.seconds:.3g} s ({words(best.layout)})"
        )
    return "; ".join(parts)


def words(layout: Layout) -> str:
    """Returns a layout as words, without its pipeline."""
    return (
        f"data {layout.data} × tensor {layout.tensor}, micro-batches of {layout.micro}, "
        f"checkpointing {'on' if layout.checkpointing else 'off'}"
    )


def too_little(
    work: TrainingJob, costs: Costs, devices: Devices, every: list[Candidate]
) -> RegardError:
    """Returns an error that says which memory, or how many devices, would be enough."""
    least = min(every, key=lambda c: c.memory.total)
    need = least.memory.total / (1 - RESERVE) / GB
    count = devices.count
    more = ""
    while count < MOST_DEVICES and not more:
        count *= 2
        larger = Devices(**asdict(devices) | {"count": count})
        small = (each for each in layouts(work, costs, larger) if each.checkpointing)
        tried = (each for each in small if 1 in (each.micro, each.accumulate))
        if any(priced(costs, larger, each).fits for each in tried):
            more = f", or --devices {count}"
    return RegardError(
        f"no layout of {counted(devices.count, 'device')} with {devices.memory / GB:g} GB holds "
        f"{work.name}: the smallest needs {need:.1f} GB in each device ({words(least.layout)}, "
        f"pipeline {least.layout.pipeline}); choose --memory {math.ceil(need)} or more{more}"
    )
