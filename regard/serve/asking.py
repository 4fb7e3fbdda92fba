"""From a request to jobs, and from jobs to what they answer, while the client is there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from typing import Any, TypeVar

from fastapi import Request

from regard.core.errors import RequestError
from regard.decoding.batcher import Continuation, Ended, NewToken
from regard.decoding.generation import Decoder, Generation
from regard.serve.encoding import AskingJob
from regard.serve.gate import JOBS, ClientGone, ServerState
from regard.serve.generation import WritingJob
from regard.serve.models import ServedModel
from regard.serve.worker import Done, Job

T = TypeVar("T")
SILENCE = object()  # stands among the events of a job
Event = tuple[int, NewToken | Ended]  # with the number of the prompt


def state_of(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Runs what takes a while (tokenizers, templates) beside the event loop."""
    return await asyncio.to_thread(function, *arguments)


def deadline_of(served: ServedModel) -> float:
    return time.monotonic() + served.options.deadline


async def ask(
    request: Request,
    served: ServedModel,
    call: Callable[[list[Any]], Sequence[Any]],
    inputs: Sequence[Any],
    kind: Hashable,
) -> list[Any]:
    """Answers inputs together with those of other requests of the same kind."""
    if not inputs:
        return []
    job = AskingJob(
        deadline_of(served), asyncio.get_running_loop(), call=call, inputs=inputs, kind=kind
    )
    served.worker.submit(served.worker.encoding, [job])
    request.scope.setdefault(JOBS, []).append(job)
    async for _ in watched(request, [job]):
        pass
    results: list[Any] = job.result
    return results


def write(
    request: Request, served: ServedModel, continuations: Sequence[Continuation]
) -> list[WritingJob]:
    """Hands prompts to the worker of a model."""
    deadline, loop = deadline_of(served), asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
    jobs = [
        WritingJob(deadline, loop, queue, number, continuation=each)
        for number, each in enumerate(continuations)
    ]
    served.worker.submit(served.worker.generation, jobs)
    request.scope.setdefault(JOBS, []).extend(jobs)
    read = sum(len(each.prompt) for each in continuations)
    served.metrics.tokens.labels(served.name, "prompt").inc(read)
    return jobs


async def written(request: Request, served: ServedModel, jobs: list[WritingJob]) -> list[Event]:
    return [event async for event in events(request, served, jobs)]


async def generations(
    request: Request, served: ServedModel, jobs: list[WritingJob]
) -> list[list[Generation]]:
    """Returns the texts of each prompt."""
    texts: list[list[Generation]] = [[] for _ in jobs]
    ended = [(n, e) for n, e in await written(request, served, jobs) if isinstance(e, Ended)]
    for number, event in sorted(ended, key=lambda pair: pair[1].index):
        texts[number].append(event.generation)
    return texts


async def events(
    request: Request, served: ServedModel, jobs: list[WritingJob], ping: float | None = None
) -> AsyncIterator[Event]:
    """Yields what happens to the texts, as it happens."""
    first = True
    async for number, event in watched(request, jobs, ping):
        if first and isinstance(event, NewToken):
            seconds = time.monotonic() - jobs[number].begun
            served.metrics.first_token.labels(served.name).observe(seconds)
            first = False
        yield number, event


async def watched(
    request: Request, jobs: Sequence[Job], ping: float | None = None
) -> AsyncIterator[tuple[int, Any]]:
    """Yields the events of jobs until all are done, and (0, None) after `ping` seconds of silence.
    An error of one is raised, and so is that the client has gone or the deadline has passed; the
    gate then cancels what is left."""
    queue, left = jobs[0].events, len(jobs)
    watcher = asyncio.create_task(gone(request, queue))
    alarm = Alarm(jobs[0], ping)
    try:
        while left:
            number, event = await queue.get()
            if event is SILENCE:
                if jobs[0].dead():
                    raise jobs[0].late()
                yield 0, None
                continue
            alarm.last = time.monotonic()
            if isinstance(event, ClientGone):
                raise event
            if not isinstance(event, Done):
                yield number, event
                continue
            left -= 1
            if event.error is not None:
                raise event.error
            jobs[number].result = event.result
    finally:
        watcher.cancel()
        alarm.timer.cancel()


class Alarm:
    """Puts SILENCE among the events of a job when its deadline has passed, and whenever there was
    nothing for `ping` seconds. One timer for a request costs less than one for each token."""

    def __init__(self, job: Job, ping: float | None) -> None:
        self.job, self.ping, self.last = job, ping, time.monotonic()
        self.timer = self.armed()

    def due(self) -> float:
        end = self.job.deadline + 0.05
        return end if self.ping is None else min(end, self.last + self.ping)

    def armed(self) -> asyncio.TimerHandle:
        return self.job.loop.call_later(max(0.01, self.due() - time.monotonic()), self.ring)

    def ring(self) -> None:
        if time.monotonic() >= self.due():
            self.job.events.put_nowait((0, SILENCE))
            self.last = time.monotonic()
        self.timer = self.armed()


async def gone(request: Request, queue: asyncio.Queue[tuple[int, Any]]) -> None:
    """Reports that the client has closed the connection."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            queue.put_nowait((0, ClientGone()))
            return


# -- checks that several routes share


def check_rows(served: ServedModel, decoder: Decoder) -> None:
    rows = max(decoder.options.num_samples, decoder.options.num_beams)
    if rows > served.options.rows:
        raise RequestError(
            f"the request asks for {rows} texts or beams at once, and this server writes at most "
            f"{served.options.rows}; ask for fewer",
            param="n",
        )


def check_input(served: ServedModel, ids: Sequence[int], limit: int | None, what: str) -> None:
    most = limit or served.options.max_input_tokens
    if len(ids) > most:
        raise RequestError(
            f"the {what} has {len(ids):,} tokens, and {served.name} reads at most {most:,}; "
            "shorten it",
            400,
            "context_length_exceeded",
        )
