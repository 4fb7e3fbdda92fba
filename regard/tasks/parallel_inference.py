"""Several batches at once, each on its share of the cores.

A batch that all cores share makes them wait for one another at the end of every operation, and
nothing is computed while Python prepares the next one. Batches of their own do not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import TypeVar

import torch

Given = TypeVar("Given")
Made = TypeVar("Made")
MOST = 16  # batches at once: each has its memory
DIVIDING = Lock()  # torch has one number of threads for all who have not yet asked for theirs


def side_by_side(
    work: Callable[[Given], Made], items: Sequence[Given], device: torch.device
) -> Iterator[Made]:
    """What `work` makes of each item, in their order. It must not change what others read."""
    if device.type != "cpu" or torch.get_num_threads() == 1 or len(items) < 2:
        yield from map(work, items)
        return
    pool = divided(len(items))
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


def divided(items: int) -> ThreadPoolExecutor:
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
