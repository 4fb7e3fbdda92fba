"""What must hold for every objective, and small models to try it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from torch import Tensor

from regard.data.corpus import Corpus
from regard.models import create
from regard.models.state import State
from regard.objectives.base import Loss, Objective, Sample
from tests.objectives.small import VOCABULARY

SHAPES: dict[str, dict[str, Any]] = {
    "gpt": {"heads": 2, "context": 64},
    "lstm": {},
    "bert": {"heads": 2, "hidden": 32, "context": 64},
    "longformer-characters": {"heads": 2, "hidden": 32, "windows": (4, 8)},
    "transformer-xl": {
        "heads": 2, "head_size": 8, "hidden": 32, "cutoffs": (), "ratio": 1, "memory": 8,
        "same_length": False, "clamp": 0,
    },
    "xlnet": {"heads": 2, "head_size": 8, "hidden": 32, "memory": 8},
    "t5": {"heads": 2, "head_size": 8, "hidden": 32},
    "transformer": {"heads": 2, "hidden": 32},
}  # fmt: skip
DROPOUTS = ("dropout", "dropout_attention", "dropout_embedding", "dropout_head")


def few(examples: int) -> Any:
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def tiny(family: str, *, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A small model without dropout; large weights, for small ones hide mistakes."""
    torch.manual_seed(0)
    shape = {"vocabulary": VOCABULARY, "width": 16, "layers": 2} | SHAPES[family] | changes
    model = create(family, initialise=False, **shape)
    still = {name: 0.0 for name in DROPOUTS if hasattr(model.config, name)}
    model = type(model)(model.config.replace(**still)).initialise()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.mul_(3.0)
    return model.to(dtype)


def make(
    kind: type[Objective],
    corpus: Corpus,
    *,
    length: int = 8,
    batch: int = 4,
    seed: int = 0,
    learning: bool = True,
    **options: Any,
) -> Any:
    return kind(
        corpus, kind.Options(**options), length=length, batch=batch, seed=seed, learning=learning
    )


def same(a: Sample, b: Sample) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def check_purity(build: Any) -> None:
    """Of two objects made alike, and asked in another order: the same samples. Other epochs and
    seeds give others; a validation knows no epoch.
    """
    first, second = build(seed=3), build(seed=3)
    places = [(e, i) for e in range(3) for i in range(len(first))]
    found = {place: first.sample(*place) for place in places}
    assert all(same(second.sample(*place), found[place]) for place in reversed(places))
    assert any(not same(found[0, i], found[1, i]) for i in range(len(first)))
    other = build(seed=4)
    assert any(not same(found[0, i], other.sample(0, i)) for i in range(len(first)))
    still = build(seed=3, learning=False)
    assert all(same(still.sample(0, i), still.sample(5, i)) for i in range(len(still)))
    numbers = range(2 * len(first))
    assert all(same(first.get(n), second.get(n)) for n in numbers)
    for epoch in range(2):
        order = first.order(epoch)
        assert order is None or sorted(order) == list(range(len(first)))


def step(objective: Objective, model: Any, numbers: Sequence[int]) -> Loss:
    batch = objective.collate([objective.get(n) for n in numbers])
    return objective.loss(model, batch, objective.begin(model, len(numbers)))


def check_micro_batches(objective: Objective, model: Any, numbers: Sequence[int]) -> None:
    """In any split the sums, the counts and the gradients add up (model in fp64)."""
    sizes = [len(numbers), 1, 2, 3]
    found = []
    for size in sizes:
        model.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        for i in range(0, len(numbers), size):
            part = numbers[i : i + size]
            loss = step(objective, model, part)
            known = objective.counts(objective.collate([objective.get(n) for n in part]))
            assert known == loss.counts
            total = torch.stack([value.double() for value in loss.sums.values()]).sum()
            total.backward()
            for name, value in loss.sums.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
                counts[name] = counts.get(name, 0.0) + loss.counts[name]
        grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        found.append((sums, counts, grads))
    for sums, counts, grads in found[1:]:
        assert counts == found[0][1]
        for name, value in sums.items():
            assert abs(value - found[0][0][name]) < 1e-10 * max(1, abs(value))
        for name, grad in grads.items():
            torch.testing.assert_close(grad, found[0][2][name], rtol=1e-10, atol=1e-10)


def check_learning(objective: Objective, model: Any, steps: int = 50, fall: float = 0.7) -> None:
    """A few steps of Adam, and the loss has fallen to less than a share of what it was."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    state: State | None = None
    losses = []
    for number in range(steps):
        start = number * objective.batch
        if start % len(objective) == 0:
            state = objective.begin(model, objective.batch)
        batch = objective.collate([objective.get(start + i) for i in range(objective.batch)])
        loss = objective.loss(model, batch, state)
        total = torch.stack(
            [
                objective.weights.get(k, 1.0) * value / max(loss.counts[k], 1)
                for k, value in loss.sums.items()
            ]
        ).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(float(total.detach()))
    late = float(np.mean(losses[-5:]))
    assert late < fall * losses[0], f"{losses[0]:.3f} fell only to {late:.3f}"


def totals(objective: Objective, model: Any) -> Loss:
    """A whole validation."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, float] = {}
    state = None
    with torch.no_grad():
        for start in range(0, len(objective), objective.batch):
            numbers = range(start, min(start + objective.batch, len(objective)))
            if start == 0:
                state = objective.begin(model, len(numbers))
            batch = objective.collate([objective.get(n) for n in numbers])
            loss = objective.loss(model, batch, state)
            for name, value in loss.sums.items():
                sums[name] = sums.get(name, torch.zeros(())) + value
                counts[name] = counts.get(name, 0.0) + loss.counts[name]
    return Loss(sums, counts)
