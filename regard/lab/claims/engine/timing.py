"""Seconds and bytes of a pass, for claims about costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def seconds(work: Callable[[], Any], least: float = 0.2, rounds: int = 3) -> float:
    """The shortest of several passes: what disturbs only ever adds."""
    work()
    best, spent, count = float("inf"), 0.0, 0
    while spent < least or count < rounds:
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
        best, spent, count = min(best, took), spent + took, count + 1
    return best
