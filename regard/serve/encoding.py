"""Questions to a model that it answers in one pass: classes, tags, answers, blanks, embeddings.

Questions of one kind that arrive within a few milliseconds, or while the model computes, are
answered in one call of the Python method, which sorts them by length into batches. The rule of
equality: a label, span or word is the same as alone, and a number differs by no more than the
rounding of sums in another order does (in fp32 about 1e-6 of its size).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.core.errors import RegardError
from regard.serve.worker import Done, Job

if TYPE_CHECKING:
    from regard.serve.worker import Worker

TEXTS = 256  # the most texts of one call, so that texts being written do not wait long


@dataclass(eq=False)
class AskingJob(Job):
    """Inputs for one method of a model: `call` answers the inputs of several jobs at once."""

    call: Callable[[list[Any]], Sequence[Any]] = list
    inputs: Sequence[Any] = ()
    kind: Hashable = None  # jobs of one kind may be answered together


class EncodingLane:
    """The questions that wait for a model."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.waiting: list[AskingJob] = []

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def hurry(self) -> float:
        if not self.waiting or sum(len(job.inputs) for job in self.waiting) >= TEXTS:
            return 0.0
        gather = self.worker.options.gather / 1000
        return self.waiting[0].begun + gather - time.monotonic()

    def tick(self, take: Callable[[], list[Any]]) -> None:
        """Answers the oldest question, and others of its kind."""
        waiting = take()
        if not waiting:
            return
        chosen: list[AskingJob] = []
        for job in waiting:
            texts = sum(len(one.inputs) for one in [*chosen, job])
            if job.kind == waiting[0].kind and (not chosen or texts <= TEXTS):
                chosen.append(job)
        self.worker.started(self, chosen)
        self.worker.metrics.batch.labels(self.worker.name).observe(len(chosen))
        self.answer(chosen)

    def fail(self, error: Exception) -> None:
        """Nothing is half done between two ticks."""

    def answer(self, jobs: list[AskingJob]) -> None:
        """Answers jobs together. If that fails, each is answered alone: an error is that of its
        own input."""
        inputs = [one for job in jobs for one in job.inputs]
        try:
            results = list(jobs[0].call(inputs))
        except Exception as error:
            if len(jobs) == 1 or not isinstance(error, RegardError):
                for job in jobs:
                    job.put(Done(error=error))
                return
            for job in jobs:
                self.answer([job])
            return
        at = 0
        for job in jobs:
            job.put(Done(results[at : at + len(job.inputs)]))
            at += len(job.inputs)
            self.worker.finished(job)
