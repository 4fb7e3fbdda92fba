"""What a model says of many rows: in batches of similar length, in bounded memory.

On a CPU several batches run at once, each on its share of the cores. A batch that all cores share
makes them wait for one another at the end of every operation, and nothing is computed while Python
prepares the next one. Batches of their own do not wait.
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

from regard.training.train_module import autocast, evaluating, moved

if TYPE_CHECKING:
    from regard.tasks.labeled import LabeledObjective

T = TypeVar("T")
R = TypeVar("R")
TOKENS = 8192  # of a batch, padding included
FEW = 2048  # of a batch on a CPU, where what is still in its caches is fast
ROWS = 256  # of a batch
MOST = 16  # batches at once: each has its memory
DIVIDING = Lock()  # torch has one number of threads for all who have not yet asked for theirs


def said_of(objective: LabeledObjective, model: Any, precision: str = "fp32") -> list[Any]:
    """What a model says of each row of an objective."""
    like = next(model.parameters())

    def ask(places: list[int]) -> list[Any]:
        batch = objective.collate([objective.sample(0, place) for place in places])
        with torch.no_grad(), autocast(like.device, precision):
            return objective.predict(model, moved(batch, like.device, like.dtype))

    outputs: list[Any] = [None] * len(objective)
    batches = list(by_tokens(objective.rows.sizes, fitting(like.device)))
    with evaluating(model):
        for places, rows in zip(batches, side_by_side(ask, batches, like.device), strict=True):
            for place, one in zip(places, rows, strict=True):
                outputs[place] = one
    return outputs


def fitting(device: torch.device) -> int:
    """Tokens of a batch with which a device is fast."""
    return FEW if device.type == "cpu" else TOKENS


def portions(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def by_tokens(sizes: np.ndarray, tokens: int = TOKENS) -> Iterator[list[int]]:
    """Rows of similar size, as many as fit a batch."""
    batch: list[int] = []
    for place in np.argsort(-sizes, kind="stable").tolist():  # the widest first: it sets the memory
        if batch and (len(batch) == ROWS or (len(batch) + 1) * sizes[batch[0]] > tokens):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def side_by_side(work: Callable[[T], R], items: Sequence[T], device: torch.device) -> Iterator[R]:
    """What `work` makes of each item, in their order. It must not change what others read."""
    if device.type != "cpu" or torch.get_num_threads() == 1 or len(items) < 2:
        yield from map(work, items)
        return
    pool, caller = pool_of(len(items)), copy_context()  # a recording is the caller's
    try:
        yield from pool.map(lambda item: caller.copy().run(work, item), items)
    finally:
        pool.shutdown(cancel_futures=True)


def pool_of(items: int) -> ThreadPoolExecutor:
    """Threads that share the cores of the caller, who keeps them all, as do threads to come."""
    with DIVIDING:
        cores = torch.get_num_threads()
        workers = min(cores, MOST, items)
        started = Barrier(workers + 1)

        def start() -> None:
            torch.get_num_threads()  # a thread takes over the number of all when it first asks
            torch.set_num_threads(max(1, cores // workers))
            started.wait()

        pool = ThreadPoolExecutor(workers, "regard-batch")
        for _ in range(workers):  # none is free before all have started, so each is a new thread
            pool.submit(start)
        started.wait()
        torch.set_num_threads(cores)  # of those to come, as before
    return pool
