"""The code that benchmarks share: interleaved timing, the machine's peak, the memory of a
process."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.training.hardware import quick_malloc

Step = Callable[..., Any]
PEAK_SIZES = (768, 1024, 1536, 2048)  # of the matrices that the peak is measured with


def seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def interleaved(steps: dict[str, Step], repeats: int, warmup: int = 2) -> dict[str, list[float]]:
    """Times several steps in turn, so that a disturbance of the machine affects all of them."""
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


def gemm_peak(dtype: torch.dtype, repeats: int = 8) -> float:
    """Returns the floating-point operations per second of the best of several matrix products, by
    each of the libraries in torch: it asks MKL for fp32, and never oneDNN by itself."""
    best = 0.0
    for size in PEAK_SIZES:
        a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
        ways: list[Step] = [partial(torch.mm, a, b)]
        if torch.backends.mkldnn.is_available():
            ways.append(partial(torch.ops.mkldnn._linear_pointwise, a, b, None, "none", [], ""))
        for way in ways:
            way()
            best = max(best, 2 * size**3 / min(seconds(way) for _ in range(repeats)))
    return best


def reading_rate(threads: int, size: int = 2**28, repeats: int = 8) -> float:
    """Returns the bytes per second that these threads read from memory: the best of several sums
    of many numbers, and of products of a row with them, which are in large pages."""
    from regard.attention.native.int8 import native_bf16, placed, ready_bits

    torch.set_num_threads(threads)
    weight = placed(torch.zeros(size // 1024, 512, dtype=torch.int16))
    ready, row, numbers = ready_bits(weight, None), torch.zeros(1, 512), weight.view(torch.int64)
    ways: tuple[Step, ...] = (numbers.sum, lambda: native_bf16(row, ready))
    return size / min(seconds(way) for way in ways for _ in range(repeats))


def slope(sizes: list[int], values: list[float]) -> float:
    """Returns the exponent of growth: the slope of a line through the logarithms."""
    x, y = torch.tensor(sizes).double().log(), torch.tensor(values).double().log()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())


class Apart:
    """A step in a separate process: a call takes one step there, with its arguments, while the
    others wait.

    `keep` lets that process keep the memory it frees, as `regard train` does.
    """

    def __init__(self, build: Callable[..., Step], *arguments: Any, keep: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, build, arguments, keep))
        self.process.start()
        theirs.close()

    def __call__(self, *case: Any) -> None:
        self.ask("step", *case)

    def ask(self, what: str, *case: Any) -> int:
        """Returns the "operations" of a step, or the "memory" (bytes) that steps added to the
        peak."""
        try:
            self.pipe.send((what, *case))
            return int(self.pipe.recv())
        except (EOFError, ConnectionError):
            raise RuntimeError("the other process ended; is there enough memory?") from None

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def serve(pipe: Any, build: Callable[..., Step], arguments: tuple[Any, ...], keep: bool) -> None:
    if keep:
        quick_malloc()
    step = build(*arguments)
    before = resident()
    while True:
        try:
            request, *case = pipe.recv()
        except EOFError:
            return
        if request == "operations":
            pipe.send(operations(step))
            continue
        if request == "step":
            step(*case)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pipe.send(peak - before)


def in_place(a: Any, x: Any, y: Any, *rest: Any, **more: Any) -> int:
    """Counts an operation that torch does not count: a product that is added in place."""
    return 2 * x[0] * x[1] * y[1]


def operations(step: Step) -> int:
    """Returns the floating-point operations of the matrix products of one step."""
    extra = {torch.ops.aten.addmm_: in_place}
    with FlopCounterMode(display=False, custom_mapping=extra) as counter:
        step()
    return int(counter.get_total_flops())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
