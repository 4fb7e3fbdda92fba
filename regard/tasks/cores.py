"""Several batches at once, each on its share of the cores.

A batch that all cores share makes them wait for one another at the end of every operation, and
nothing is computed while Python prepares the next one. Batches of their own do not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch

Given = TypeVar("Given")
Made = TypeVar("Made")
MOST = 16  # batches at once: each has its memory


def side_by_side(
    work: Callable[[Given], Made], items: Sequence[Given], device: torch.device
) -> Iterator[Made]:
    """What `work` makes of each item, in their order. It must not change what others read."""
    cores = torch.get_num_threads()
    workers = min(cores, MOST, len(items)) if device.type == "cpu" else 1
    if workers < 2:
        yield from map(work, items)
        return
    started = Barrier(workers + 1)

    def start() -> None:
        torch.set_num_threads(max(1, cores // workers))  # of this thread, and of those to come
        started.wait()

    pool = ThreadPoolExecutor(workers, "regard-batch")
    try:
        for _ in range(workers):  # none is free before all have started, so each is a new thread
            pool.submit(start)
        started.wait()
        torch.set_num_threads(cores)  # of those to come, as before
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
