"""Models that compute in turns: one at a time, and each for as long as the others."""

from __future__ import annotations

import threading
import time
from collections import Counter

from regard.serve.worker import Turns

SECONDS = {"reads batches": 0.05, "writes tokens": 0.001}  # of a step


class Contest:
    """Two threads that always want a turn, and what each has had."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.over, self.inside = turns, False, 0
        self.steps: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.overlaps = 0

    def step(self, name: str) -> None:
        begun = time.perf_counter()
        self.inside += 1
        self.overlaps += self.inside > 1
        time.sleep(SECONDS[name])
        self.inside -= 1
        self.steps[name] += 1
        self.seconds[name] += time.perf_counter() - begun

    def compete(self, name: str) -> None:
        while not self.over:
            with self.turns.turn(name) as may_go_on:
                self.step(name)
                while may_go_on():
                    self.step(name)

    def run(self, seconds: float, names: tuple[str, ...] = tuple(SECONDS)) -> None:
        self.over = False
        threads = [threading.Thread(target=self.compete, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.over = True
        for thread in threads:
            thread.join()


def test_a_token_does_not_wait_for_a_batch_each_time() -> None:
    contest = Contest(Turns())
    contest.run(1.5)
    assert not contest.overlaps
    long, short = contest.seconds["reads batches"], contest.seconds["writes tokens"]
    assert 0.5 < short / long < 2
    assert contest.steps["writes tokens"] > 5 * contest.steps["reads batches"]


def test_who_was_idle_does_not_catch_up() -> None:
    turns = Turns()
    alone = Contest(turns)
    alone.run(0.5, ("reads batches",))
    both = Contest(turns)
    both.run(1.0)
    assert both.steps["reads batches"] >= 4  # half of the time is ten


def test_a_step_that_fails_gives_the_turn_back() -> None:
    turns = Turns()
    try:
        with turns.turn("one"):
            raise ValueError
    except ValueError:
        pass
    with turns.turn("two") as may_go_on:
        assert not may_go_on()  # nobody waits
