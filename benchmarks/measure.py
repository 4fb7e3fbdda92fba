"""What the benchmarks share: interleaved timing, the machine's peak, memory of a process."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Step = Callable[[], Any]


def seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def interleaved(steps: dict[str, Step], repeats: int, warmup: int = 2) -> dict[str, list[float]]:
    """Times several steps in turn, so that what disturbs the machine disturbs all of them."""
    for _ in range(warmup):
        for step in steps.values():
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            times[name].append(seconds(step))
    return times


def median(values: list[float]) -> float:
    return statistics.median(values)


def gemm_peak(dtype: torch.dtype, size: int = 2048, repeats: int = 8) -> float:
    """Floating-point operations a second of the best of several large matrix products."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    a @ b
    return 2 * size**3 / min(seconds(lambda: a @ b) for _ in range(repeats))


def slope(sizes: list[int], values: list[float]) -> float:
    """The exponent of growth: the slope of a line through the logarithms."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(values).double().log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())


def peak_memory(build: Callable[..., Step], *arguments: Any, runs: int = 2) -> int:
    """Bytes by which `runs` steps raise the peak of a fresh process that has built them."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_watch, args=(theirs, build, arguments, runs))
    child.start()
    theirs.close()
    try:
        result = ours.recv()
    except EOFError:
        result = 0
    child.join()
    return int(result)


def _watch(pipe: Any, build: Callable[..., Step], arguments: tuple[Any, ...], runs: int) -> None:
    step = build(*arguments)
    before = _resident()
    for _ in range(runs):
        step()
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
