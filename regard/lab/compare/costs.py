"""Measures the cost of a forward pass as texts grow longer: seconds and memory.

Every model has new weights of its shape, and enough positions. It reads one text of 64 … 2,048
tokens; an encoder-decoder reads one half in its encoder and the other in its decoder. Memory is the
peak besides the weights and the tokens.

    python -m regard.lab.compare.costs OUT
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.seeding import seed_torch
from regard.formats.directory import load
from regard.lab.compare.comparison import RUNS, again
from regard.models.base import Model

LENGTHS = (64, 128, 256, 512, 1024, 2048)
SECONDS = 0.1  # a pass is repeated for this time
LEAST, MOST = 2, 20  # the fewest and the most repetitions


def measure(out: Path, lengths: tuple[int, ...] = LENGTHS) -> dict[str, Any]:
    """Returns a curve for every entry that has a run."""
    curves = {}
    for entry in again(out).entries:
        run = out / RUNS / f"{entry.name}-1"
        if (run / "config.json").is_file():
            model = fresh(load(run).model, max(lengths))
            curves[entry.name] = [{"length": n, **passed(model, n)} for n in lengths]
    return {"lengths": list(lengths), "threads": torch.get_num_threads(), "curves": curves}


def fresh(model: Any, length: int) -> Model:
    """Returns a model of the same shape with initial weights, and positions for `length` tokens."""
    config = model.config
    if hasattr(config, "context"):
        config = config.replace(context=max(config.context, length))
    with torch.random.fork_rng(devices=[]):
        seed_torch(0, "costs")
        untrained: Model = type(model)(config).initialize()
    return untrained.eval()


def passed(model: Model, length: int) -> dict[str, float]:
    """Returns the seconds of the fastest of several passes, and the peak memory of a pass."""
    read = reading(model, length)
    with torch.inference_mode():
        read()
        best, spent, times = float("inf"), 0.0, 0
        while times < LEAST or (spent < SECONDS and times < MOST):
            began = time.perf_counter()
            read()
            best = min(best, time.perf_counter() - began)
            spent, times = spent + best, times + 1
        return {"seconds": best, "bytes": held_at_once(read)}


def reading(model: Model, length: int) -> Callable[[], Tensor]:
    tokens = torch.arange(length)[None] % model.config.vocab_size
    if model.kind == "encoder-decoder":
        source, target = tokens.chunk(2, 1)
        return lambda: model(source, target)
    return lambda: model(tokens)


def held_at_once(work: Callable[[], Tensor]) -> int:
    """Returns the peak memory in bytes, from the allocations that torch's profiler records."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    current = most = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            current += event.nbytes()
            most = max(most, current)
    return most


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
