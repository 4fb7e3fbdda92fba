"""What must hold for every objective, and small models to try it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import settings

from regard.data.corpus import Corpus
from regard.models import create
from regard.models.output import Heads
from regard.models.state import State
from regard.objectives.base import Loss, Objective, Sample
from tests.objectives.small import VOCABULARY

SHAPES: dict[str, dict[str, Any]] = {
    "gpt": {"heads": 2, "context": 64},
    "lstm": {},
    "bert": {"heads": 2, "ffn_size": 32, "context": 64},
    "longformer": {"heads": 2, "ffn_size": 32, "context": 64, "window": 4},
    "longformer-characters": {"heads": 2, "ffn_size": 32, "windows": (4, 8)},
    "transformer-xl": {
        "heads": 2, "head_size": 8, "ffn_size": 32, "cutoffs": (), "ratio": 1, "mem_len": 8,
        "same_length": False, "clamp_len": 0,
    },
    "xlnet": {"heads": 2, "head_size": 8, "ffn_size": 32, "mem_len": 8},
    "t5": {"heads": 2, "head_size": 8, "ffn_size": 32},
    "transformer": {"heads": 2, "ffn_size": 32},
}  # fmt: skip
DROPOUTS = ("dropout", "dropout_attention", "dropout_embedding", "dropout_head")


def few(examples: int) -> Any:
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def tiny(
    family: str,
    *,
    dtype: torch.dtype = torch.float32,
    heads_of: Heads | None = None,
    scale: float = 3.0,
    **changes: Any,
) -> Any:
    """A small model without dropout; large weights, for small ones hide mistakes."""
    torch.manual_seed(0)
    shape = {"vocab_size": VOCABULARY, "width": 16, "layers": 2} | SHAPES[family] | changes
    model = create(family, initialize=False, **shape)
    still = {name: 0.0 for name in DROPOUTS if hasattr(model.config, name)}
    config = model.config.replace(**still)
    model = (type(model)(config, heads_of) if heads_of else type(model)(config)).initialize()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.mul_(scale)
    return model.to(dtype)


def make(
    kind: type[Objective],
    corpus: Corpus,
    *,
    seq_len: int = 8,
    batch_size: int = 4,
    seed: int = 0,
    learning: bool = True,
    **options: Any,
) -> Any:
    return kind(
        corpus,
        kind.Options(**options),
        seq_len=seq_len,
        batch_size=batch_size,
        seed=seed,
        learning=learning,
    )


def same(a: Sample, b: Sample) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def check_purity(build: Any) -> None:
    """Of two objects made alike, and asked in another order: the same samples. Other epochs and
    seeds give others; a validation knows no epoch.
    """
    first, second, other = build(seed=3), build(seed=3), build(seed=4)
    size = len(first)
    samples = [first.get(n) for n in range(3 * size)]
    assert all(same(second.get(n), samples[n]) for n in reversed(range(3 * size)))
    assert any(not same(samples[n], samples[size + n]) for n in range(size))
    assert any(not same(samples[n], other.get(n)) for n in range(size))
    for epoch in range(2):
        order = first.order(epoch)
        assert order is None or sorted(order) == list(range(size))
        places = range(size) if order is None else order
        drawn = [second.sample(epoch, int(place)) for place in places]
        assert all(same(drawn[n], samples[epoch * size + n]) for n in range(size))
    still = build(seed=3, learning=False)
    assert all(same(still.sample(0, i), still.sample(5, i)) for i in range(len(still)))


def check_micro_batches(
    objective: Objective,
    model: Any,
    numbers: Sequence[int],
    sizes: Sequence[int] = (1, 2, 3),
    steps: int = 1,
) -> None:
    """In any split the sums, the counts and the gradients add up (model in fp64), also where a
    state goes along from step to step.
    """
    results = []
    for size in (len(numbers), *sizes):
        model.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        for i in range(0, len(numbers), size):
            places = objective.arrange(list(numbers[i : i + size]))
            state = objective.begin(model, len(places))
            for step in range(steps):
                samples = [objective.get(step * len(numbers) + place) for place in places]
                batch = objective.collate(samples)
                loss = objective.loss(model, batch, state)
                assert objective.counts(batch) == loss.counts
                torch.stack([value.double() for value in loss.sums.values()]).sum().backward()
                for name, value in loss.sums.items():
                    sums[name] = sums.get(name, 0.0) + float(value.detach())
                    counts[name] = counts.get(name, 0.0) + loss.counts[name]
        grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        results.append((sums, counts, grads))
    for sums, counts, grads in results[1:]:
        assert counts == results[0][1]
        for name, value in sums.items():
            assert abs(value - results[0][0][name]) < 1e-10 * max(1, abs(value))
        for name, grad in grads.items():
            torch.testing.assert_close(grad, results[0][2][name], rtol=1e-10, atol=1e-10)


def check_learning(
    objective: Objective, model: Any, steps: int = 50, fall: float = 0.7, lr: float = 2e-2
) -> None:
    """A few steps of Adam, and the loss has fallen to less than a share of what it was."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state: State | None = None
    losses = []
    for number in range(steps):
        start = number * objective.batch_size
        if start % len(objective) == 0:
            state = objective.begin(model, objective.batch_size)
        places = objective.arrange(list(range(objective.batch_size)))
        batch = objective.collate([objective.get(start + place) for place in places])
        loss = objective.loss(model, batch, state)
        parts = [
            objective.weights.get(k, 1.0) * value / max(loss.counts[k], 1)
            for k, value in loss.sums.items()
        ]
        total = torch.stack(parts).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(float(total.detach()))
    late = float(np.mean(losses[-5:]))
    assert late < fall * losses[0], f"{losses[0]:.3f} fell only to {late:.3f}"


def totals(objective: Objective, model: Any) -> Loss:
    """A whole validation, as `validate` adds it up."""
    summed: dict[str, dict[str, Any]] = {"sums": {}, "counts": {}, "hits": {}, "of": {}}
    state = None
    with torch.no_grad():
        for start in range(0, len(objective), objective.batch_size):
            stop = min(start + objective.batch_size, len(objective))
            places = objective.arrange(list(range(start, stop)))
            if start == 0:
                state = objective.begin(model, len(places))
            batch = objective.collate([objective.get(n) for n in places])
            loss = objective.loss(model, batch, state)
            hits = {name: pair[0] for name, pair in loss.seen.items()}
            of = {name: pair[1] for name, pair in loss.seen.items()}
            for kind, new in zip(summed, (loss.sums, loss.counts, hits, of), strict=True):
                for name, value in new.items():
                    summed[kind][name] = summed[kind].get(name, 0.0) + value
    seen = {name: (hits, summed["of"][name]) for name, hits in summed["hits"].items()}
    return Loss(summed["sums"], summed["counts"], seen)
