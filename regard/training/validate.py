"""A whole validation: every sample once, dealt out over the processes, sums over all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from regard.core.errors import RegardError
from regard.objectives.base import Loss, Objective
from regard.training.parallel import Group
from regard.training.train_module import autocast, evaluating, moved


class Interrupted(RegardError):
    """Somebody asked to stop in the middle."""


def validate(
    learner: Any,
    objective: Objective,
    group: Group,
    device: torch.device,
    precision: str,
    *,
    samples: int = 0,
    asked: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """The figures of `objective` (built for validation) with the learner's weights.

    `samples` limits it to the first so many; 0 takes all. `asked` is looked at between batches.
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
                if sum(group.sum([float(asked())])):
                    raise Interrupted("stopped in the middle of a validation")
                batch = moved(objective.collate([objective.get(p) for p in places]), device, dtype)
                with autocast(device, precision):
                    found, shown = learner(batch, state)
                for table, new in (
                    (sums, found),
                    (seen, shown),
                    (counts, objective.counts(batch)),
                ):
                    for name, value in new.items():
                        table[name] += float(value) * counted
    finally:
        learner.objective = learned
    return objective.measure(added(sums, counts, seen, group))


def steps(
    objective: Objective, group: Group, samples: int
) -> Iterator[tuple[bool, list[int], bool]]:
    """(is it the first?, which samples, do they count?) of each batch of this process.

    Engines want the same number of calls from every process: where a process has nothing left it
    computes a sample whose result is not counted.
    """
    total = min(samples, len(objective)) if samples else len(objective)
    if objective.recurrent:  # all streams go on together
        total = max(total // objective.batch, 1) * objective.batch
    share = max(1, objective.batch // group.world)
    for start in range(0, total, share * group.world):
        mine = range(start + group.rank * share, start + (group.rank + 1) * share)
        places = objective.arrange([p for p in mine if p < total])
        yield start == 0, places or [0], bool(places)


def added(
    sums: dict[str, float], counts: dict[str, float], seen: dict[str, float], group: Group
) -> Loss:
    """The sums of all processes, which have the same names."""
    names = sorted({*sums, *counts, *seen})
    found = group.sum([table.get(n, 0.0) for table in (sums, counts, seen) for n in names])
    size = len(names)
    all_sums, all_counts, all_seen = (
        dict(zip(names, found[i * size : (i + 1) * size], strict=True)) for i in range(3)
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
