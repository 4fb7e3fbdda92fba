"""One thread for each model: it writes texts and answers questions, in turns with other models.

Models that compute at the same time would share the cores badly: each operation would wait for the
slowest of its threads. So one model computes at a time, with all cores, for one step: a token of
every text, or one batch of questions. If several wait, the model goes first that has computed for
the shortest time: a token takes a hundredth of the time of a large batch, and a text would wait for
a batch at each of its tokens if turns went in the order of asking.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from regard.core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regard.serve.metrics import ServerMetrics
    from regard.serve.options import ServeOptions


class Turns:
    """A lock for which the time counts: of those that wait, the one gets it that has had it for the
    shortest time. Who was idle may not catch up: it begins where the others are."""

    def __init__(self) -> None:
        self.lock, self.taken = threading.Lock(), False
        self.waiting: dict[str, threading.Event] = {}
        self.seconds: dict[str, float] = {}  # of each, counted from the one that had the least
        self.level = 0.0  # of the one whose turn it is, when its turn began

    @contextmanager
    def turn(self, name: str) -> Iterator[Callable[[], bool]]:
        """Waits for a turn. What it yields tells whether the turn may go on, although others wait:
        they have still had more time."""
        mine = threading.Event()
        with self.lock:
            self.seconds[name] = max(self.level, self.seconds.get(name, 0.0))
            self.waiting[name] = mine
            self.hand_on()
        mine.wait()
        begun = time.perf_counter()

        def count() -> None:
            nonlocal begun
            now = time.perf_counter()
            self.seconds[name] += now - begun
            begun = now

        def may_go_on() -> bool:
            with self.lock:
                count()
                others = [self.seconds[other] for other in self.waiting]
                return bool(others) and self.seconds[name] < min(others)

        try:
            yield may_go_on
        finally:
            with self.lock:
                count()
                self.taken = False
                self.hand_on()

    def hand_on(self) -> None:
        """Gives the turn to whoever waits with the least time; called with the lock."""
        if self.waiting and not self.taken:
            name = min(self.waiting, key=self.seconds.__getitem__)
            self.taken, self.level = True, self.seconds[name]
            self.waiting.pop(name).set()


@dataclass(eq=False)
class Job:
    """Work for a model. Its events go to the event loop of the server; the last one is `Done`. The
    jobs of a request share one queue, in which events stand with the number of their job."""

    deadline: float  # time.monotonic() after which nobody waits for it
    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[tuple[int, Any]] = field(default_factory=asyncio.Queue)
    number: int = 0
    result: Any = None  # of a job that is done
    cancelled: bool = False  # set by the server when the client has gone
    begun: float = field(default_factory=time.monotonic)

    def put(self, *events: Any) -> None:
        """Called by the worker's thread."""
        deliver([(self, events)])

    def dead(self) -> bool:
        return self.cancelled or time.monotonic() > self.deadline

    def late(self) -> RequestError:
        seconds = time.monotonic() - self.begun
        return RequestError(
            f"the request was not finished after {seconds:.0f} s, which is its deadline; ask for "
            "less, or start the server with a longer --deadline",
            504,
            "deadline_exceeded",
        )


def deliver(news: Sequence[tuple[Job, Sequence[Any]]]) -> None:
    """Hands the events of jobs to their event loop, which is woken once for all of them."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Job, Sequence[Any]]]] = {}
    for job, events in news:
        loops.setdefault(job.loop, []).append((job, events))

    def put(part: list[tuple[Job, Sequence[Any]]]) -> None:
        for job, events in part:
            for event in events:
                job.events.put_nowait((job.number, event))

    for loop, part in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(put, part)


@dataclass(frozen=True)
class Done:
    """The end of a job: its result, or why there is none."""

    result: Any = None
    error: Exception | None = None


class Lane(Protocol):
    """A kind of work: texts to write, or questions to answer. All methods but `tick` are called
    with the lock of the worker."""

    waiting: list[Any]

    @property
    def busy(self) -> bool: ...  # whether a tick has something to do
    def hurry(self) -> float: ...  # the seconds that a tick may still wait for more work
    def tick(self, take: Callable[[], Any]) -> None: ...
    def fail(self, error: Exception) -> None: ...  # ends what it has begun


class Worker:
    """The thread of one model, and the bounded queue before it."""

    def __init__(
        self, name: str, options: ServeOptions, turns: Turns, metrics: ServerMetrics
    ) -> None:
        from regard.serve.encoding import EncodingLane
        from regard.serve.generation import GenerationLane

        self.name, self.options, self.turns, self.metrics = name, options, turns, metrics
        self.change = threading.Condition()
        self.generation = GenerationLane(self)
        self.encoding = EncodingLane(self)
        self.stopping = False
        self.seconds = 1.0  # of a job, about
        self.thread = threading.Thread(target=self.run, name=f"regard-{name}", daemon=True)
        self.thread.start()

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        return self.generation, self.encoding

    def submit(self, lane: Lane, jobs: list[Any]) -> None:
        """Accepts all jobs of a request, or refuses it."""
        limit = self.options.queue
        if len(jobs) > limit:
            raise RequestError(
                f"the request holds {len(jobs)} texts, and this server queues at most {limit}; "
                "send fewer at once"
            )
        with self.change:
            ahead = len(lane.waiting)
            if ahead + len(jobs) > limit:
                wait = max(1, min(60, round(self.seconds * ahead / self.options.rows)))
                self.metrics.refused.labels(self.name).inc()
                raise RequestError(
                    f"{self.name} has {ahead} requests waiting, and its queue holds {limit}; try "
                    f"again in {wait} s",
                    429,
                    "rate_limit_exceeded",
                    retry_after=wait,
                )
            lane.waiting += jobs
            self.metrics.waiting.labels(self.name).set(ahead + len(jobs))
            self.change.notify()

    def finished(self, job: Job) -> None:
        """Remembers how long jobs take, for Retry-After."""
        self.seconds += 0.1 * (time.monotonic() - job.begun - self.seconds)

    def stop(self) -> None:
        with self.change:
            self.stopping = True
            self.change.notify()
        self.thread.join(10)

    def run(self) -> None:
        import torch

        if self.options.threads:
            torch.set_num_threads(self.options.threads)
        while True:
            with self.change:
                while not self.stopping and not any(lane.busy for lane in self.lanes):
                    self.change.wait()
                if self.stopping:
                    return
                waits = [lane.hurry() for lane in self.lanes if lane.busy]
                if min(waits) > 0:
                    self.change.wait(min(waits))
                    continue
            for lane in self.lanes:
                if lane.busy and lane.hurry() <= 0:
                    try:
                        with self.turns.turn(self.name) as may_go_on, torch.inference_mode():
                            lane.tick(self.taker(lane))
                            while lane.busy and lane.hurry() <= 0 and may_go_on():
                                lane.tick(self.taker(lane))
                    except Exception as error:  # a defect: its requests are lost, the server is not
                        lane.fail(error)
                        waiting = self.taker(lane)()
                        self.started(lane, waiting)
                        for job in waiting:
                            job.put(Done(error=error))

    def taker(self, lane: Lane) -> Callable[[], list[Any]]:
        """Returns a function that removes dead jobs from a queue and returns the others."""

        def take() -> list[Any]:
            with self.change:
                dead = [job for job in lane.waiting if job.dead()]
                lane.waiting = [job for job in lane.waiting if not job.dead()]
                self.metrics.waiting.labels(self.name).set(len(lane.waiting))
                alive = list(lane.waiting)
            for job in dead:
                job.put(Done(error=job.late()))
            return alive

        return take

    def started(self, lane: Lane, jobs: list[Any]) -> None:
        """Removes jobs from a queue: they are being worked on."""
        with self.change:
            lane.waiting = [job for job in lane.waiting if job not in jobs]
