"""Texts that are written token by token: requests join the batch of a model at the next token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.core.errors import RegardError
from regard.decoding.batcher import Batcher, Continuation, NewToken
from regard.serve.worker import Done, Job, deliver

if TYPE_CHECKING:
    from regard.serve.worker import Worker


@dataclass(eq=False)
class WritingJob(Job):
    """One prompt. Its events are those of its Continuation (NewToken, Ended), then Done."""

    continuation: Continuation = None  # type: ignore[assignment]


class GenerationLane:
    """The prompts that wait, and the batch of those that are continued."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.waiting: list[WritingJob] = []
        self.running: list[WritingJob] = []
        self.batcher: Batcher | None = None

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def hurry(self) -> float:
        return 0.0

    def forget(self) -> None:
        """Lets go of the model, which is unloaded."""
        self.batcher = None

    def tick(self, take: Callable[[], list[Any]]) -> None:
        """Lets prompts join, and writes one token of every text."""
        waiting = take()
        for job in [job for job in self.running if job.dead()]:
            self.end(job, job.late())
        if waiting:
            self.join(waiting)
        if not self.running or self.batcher is None:
            return
        try:
            done = self.batcher.choose()
            self.tell([job for job in self.running if job.continuation not in done])
            self.batcher.read()
            # An end is told after the others' step: the next requests then join together.
            self.tell([job for job in self.running if job.continuation in done], ended=True)
        except Exception as error:  # memory, or a defect: the batch is lost, the server is not
            self.fail(error)

    def tell(self, jobs: list[WritingJob], ended: bool = False) -> None:
        """Hands out the new tokens of texts, which clients get while they are read."""
        assert self.batcher is not None
        metrics, name = self.worker.metrics, self.worker.name
        metrics.rows.labels(name).set(sum(one.rows for one in self.batcher.running))
        news: list[tuple[Job, list[Any]]] = []
        for job in jobs:
            events: list[Any] = job.continuation.events
            job.continuation.events = []
            if ended:
                self.running.remove(job)
                self.worker.finished(job)
                events.append(Done(error=job.continuation.error))
            news.append((job, events))
        deliver(news)
        new = sum(isinstance(event, NewToken) for _, events in news for event in events)
        metrics.tokens.labels(name, "completion").inc(new)

    def join(self, waiting: list[WritingJob]) -> None:
        model = waiting[0].continuation.decoder.model
        if self.batcher is None or (not self.running and self.batcher.table.model is not model):
            self.batcher = Batcher(model, self.worker.options.rows)
        fitting = self.batcher.fitting([job.continuation for job in waiting])
        chosen = [job for job in waiting if job.continuation in fitting]
        if not chosen:
            return
        self.worker.started(self, chosen)
        try:
            self.batcher.join([job.continuation for job in chosen])
        except RegardError as error:  # of reading a prompt: nothing has joined yet
            for job in chosen:
                job.put(Done(error=error))
            return
        except Exception as error:
            self.running += chosen
            self.fail(error)
            return
        for job in chosen:
            if job.continuation.error is None:
                self.running.append(job)
            else:
                job.put(Done(error=job.continuation.error))

    def end(self, job: WritingJob, error: Exception) -> None:
        """Takes a text out of the batch before its end."""
        assert self.batcher is not None
        self.batcher.leave(job.continuation)
        self.running.remove(job)
        job.put(Done(error=error))

    def fail(self, error: Exception) -> None:
        """Ends the texts of the batch, which is lost."""
        jobs, self.running, self.batcher = self.running, [], None
        for job in jobs:
            job.put(Done(error=error))
