"""The threads of a step wait for each other, also where other programs have the processors."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from regard.attention.native.decode import step_kernel
from regard.models.gpt import GPT, GPTConfig
from regard.models.step import stepper_for

pytestmark = pytest.mark.skipif(step_kernel() is None, reason="there is no native code here")
STEPS, ROUNDS = 20, 3
MOST = 25  # times the time of one thread; threads that spin for ever need some fifty


@pytest.fixture
def busy() -> Iterator[None]:
    """Keeps every processor busy."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(len(os.sched_getaffinity(0)))]
    yield
    for other in others:
        other.kill()
        other.wait()


@torch.inference_mode()
def seconds(model: GPT, threads: int) -> float:
    """Returns the time of the fastest of several rounds of steps."""
    state, stepper, rounds = model.start(4, 100), stepper_for(model), []
    tokens, before = torch.ones(4, dtype=torch.long), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert stepper is not None
        stepper.read(tokens, state)
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            for _ in range(STEPS):
                stepper.read(tokens, state)
            rounds.append(time.perf_counter() - begun)
    finally:
        torch.set_num_threads(before)
    return min(rounds)


@pytest.mark.slow
def test_two_threads_do_not_collapse_where_both_processors_are_busy(busy: None) -> None:
    config = GPTConfig(vocab_size=2000, context=256, width=256, layers=4, heads=4)
    model = GPT(config).initialize().eval()
    ratios = (seconds(model, 2) / seconds(model, 1) for _ in range(3))  # the others come and go
    assert any(ratio < MOST for ratio in ratios)


def test_more_threads_than_processors_come_to_the_same() -> None:
    model = GPT(GPTConfig(vocab_size=2000, context=64, width=256, layers=2, heads=4)).initialize()
    tokens, threads, results = torch.arange(4), torch.get_num_threads(), []
    try:
        for count in (1, 4 * (os.cpu_count() or 1)):
            torch.set_num_threads(count)
            with torch.inference_mode():
                state, stepper = model.eval().start(4, 9), stepper_for(model)
                assert stepper is not None
                results.append(torch.stack([stepper.read(tokens, state) for _ in range(8)]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)
