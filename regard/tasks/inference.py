"""Runs a model over many rows, in batches of similar length and in bounded memory.

On a CPU several batches run at once, each on its share of the cores. If all cores shared one batch,
they would wait for one another at the end of every operation, and nothing would be computed while
Python prepares the next one. Separate batches do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from threading import Barrier, Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from regard.data.batching import by_tokens
from regard.models.packed import packed
from regard.training.train_module import autocast, evaluating, moved

if TYPE_CHECKING:
    from regard.tasks.labeled import LabeledObjective

T = TypeVar("T")
R = TypeVar("R")
FEW = 2048  # the most tokens of a batch on a CPU, where a small batch stays in the caches
ALONE = 256  # with fewer tokens, all cores compute one batch
MOST = 16  # the maximum number of batches at once: each needs memory
DIVIDING = Lock()  # torch shares one number among all threads that have not yet read theirs


def predict_rows(objective: LabeledObjective, model: Any, precision: str = "fp32") -> list[Any]:
    """Returns the prediction of a model for each row of an objective."""
    like = next(model.parameters())

    def ask(places: list[int]) -> list[Any]:
        batch = objective.collate([objective.sample(0, place) for place in places])
        with torch.no_grad(), autocast(like.device, precision):
            return objective.predict(reads, moved(batch, like.device, like.dtype))

    outputs: list[Any] = [None] * len(objective)
    batches = batches_of(objective.rows.sizes, like.device)
    reads = packed(model, precision)
    with evaluating(model):
        for places, rows in zip(batches, side_by_side(ask, batches, like.device), strict=True):
            for place, one in zip(places, rows, strict=True):
                outputs[place] = one
    return outputs


def batches_of(sizes: np.ndarray, device: torch.device) -> list[list[int]]:
    """Returns batches of similar length with which the device is fast: on a CPU about as many as a
    multiple of its cores, so that all of them end at about the same time."""
    if len(sizes) == 0 or device.type != "cpu":
        return list(by_tokens(sizes))
    cores, total = torch.get_num_threads(), int(sizes.sum())
    rounds = max(1, -(-total // (FEW * cores)))
    share = total // (rounds * cores) + int(sizes.max()) // 2
    return list(by_tokens(sizes, min(FEW, max(ALONE, share))))


def portions(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def side_by_side(work: Callable[[T], R], items: Sequence[T], device: torch.device) -> Iterator[R]:
    """Yields the result of `work` for each item, in order. `work` runs in threads, so it must not
    change shared data."""
    if device.type != "cpu" or torch.get_num_threads() == 1 or len(items) < 2:
        yield from map(work, items)
        return
    pool, caller = pool_of(len(items)), copy_context()  # a recording is the caller's
    try:
        yield from pool.map(lambda item: caller.copy().run(work, item), items)
    finally:
        pool.shutdown(cancel_futures=True)


def pool_of(items: int) -> ThreadPoolExecutor:
    """Returns threads that share the cores of the caller. The caller itself, and threads that start
    later, keep all cores."""
    with DIVIDING:
        cores = torch.get_num_threads()
        workers = min(cores, MOST, items)
        started = Barrier(workers + 1)

        def start() -> None:
            torch.get_num_threads()  # the first call in a thread copies the shared number
            torch.set_num_threads(max(1, cores // workers))
            started.wait()

        pool = ThreadPoolExecutor(workers, "regard-batch")
        for _ in range(workers):  # none is free before all have started, so each starts a thread
            pool.submit(start)
        started.wait()
        torch.set_num_threads(cores)  # restores the number for threads that start later
    return pool
