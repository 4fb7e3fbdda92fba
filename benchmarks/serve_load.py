"""The clients of benchmarks/serve.py: threads that ask one thing after the other, and only note
when bytes arrive. What the bytes say is read afterwards, so that the clients leave the cores to the
servers."""

from __future__ import annotations

import http.client
import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Read = tuple[float, bytes]  # the time of a piece of an answer, and the piece
Ask = tuple[str, dict[str, Any]]  # the route of a request, and its body


def exchange(port: int, ask: Ask) -> list[Read]:
    """Sends a request and returns the pieces of its answer; the first is the time of asking."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = json.dumps(ask[1])
    reads: list[Read] = [(time.perf_counter(), b"")]
    connection.request("POST", ask[0], body, {"content-type": "application/json"})
    answer = connection.getresponse()
    while piece := answer.read1(65536):
        reads.append((time.perf_counter(), piece))
    connection.close()
    if answer.status != 200:
        text = b"".join(piece for _, piece in reads).decode(errors="replace")
        raise RuntimeError(f"{ask[0]} on port {port}: {answer.status} {text[:500]}")
    return reads


def crowd(port: int, asks: list[list[Ask]]) -> tuple[float, list[list[Read]]]:
    """Lets a client for each list ask its questions; returns the seconds and all answers."""
    answers: list[list[Read]] = []
    errors: list[Exception] = []

    def client(own: list[Ask]) -> None:
        try:
            for ask in own:
                answers.append(exchange(port, ask))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(own,)) for own in asks]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    if errors:
        raise errors[0]
    return seconds, answers


def events(reads: list[Read]) -> list[tuple[float, dict[str, Any]]]:
    """Returns the events of a stream (SSE), each with the time at which its last byte came."""
    timed, rest = [], b""
    for at, piece in reads:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                timed.append((at, json.loads(line[6:])))
    return timed


def written(port: int, asks: list[list[Ask]]) -> dict[str, float]:
    """Returns the figures of clients whose texts are streamed."""
    seconds, answers = crowd(port, asks)
    first, between, tokens = [], [], 0
    for reads in answers:
        before, count, usage = reads[0][0], 0, 0
        for at, event in events(reads):
            if event.get("error"):
                raise RuntimeError(f"port {port}: {event['error']}")
            usage = (event.get("usage") or {}).get("completion_tokens") or usage
            if not any(choice.get("text") for choice in event.get("choices") or []):
                continue
            (between if count else first).append(at - before)
            before, count = at, count + 1
        tokens += usage or count
    return {"tokens": tokens, "per_second": tokens / seconds, **quantiles("first", first),
            **quantiles("between", between)}  # fmt: skip


def answered(port: int, asks: list[list[Ask]]) -> dict[str, float]:
    """Returns the figures of clients whose questions are answered at once."""
    seconds, answers = crowd(port, asks)
    waits = [reads[-1][0] - reads[0][0] for reads in answers]
    return {"per_second": len(answers) / seconds, **quantiles("answer", waits)}


def whole(reads: list[Read]) -> Any:
    return json.loads(b"".join(piece for _, piece in reads))


def quantiles(name: str, seconds: list[float]) -> dict[str, float]:
    """Returns the median and the 99th percentile, in milliseconds."""
    ordered = sorted(seconds) or [0.0]
    last = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {f"{name}_p50": 1000 * statistics.median(ordered), f"{name}_p99": 1000 * last}


class Others:
    """The share of the processors that other programs use inside of a `with` block (Linux)."""

    def __enter__(self) -> Others:
        self.share, self.begun = 0.0, (used(), own(), time.perf_counter())
        return self

    def __exit__(self, *_: object) -> None:
        everything, mine, at = self.begun
        seconds = (time.perf_counter() - at) * (os.cpu_count() or 1)
        self.share = max(0.0, (used() - everything - (own() - mine)) / seconds)


def used() -> float:
    """Returns the seconds in which a processor did something, for whomever."""
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return 0.0
    busy = [int(word) for number, word in enumerate(words[1:9]) if number not in (3, 4)]
    return sum(busy) / os.sysconf("SC_CLK_TCK")


def own() -> float:
    """Returns the seconds that this process, its children and theirs have computed."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(file.parent.name)
        parents[pid] = int(words[1])
        seconds[pid] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def mine(pid: int) -> bool:
        while pid and pid != os.getpid():
            pid = parents.get(pid, 0)
        return bool(pid)

    return sum(value for pid, value in seconds.items() if mine(pid))


Figures = Callable[[int, list[list[Ask]]], dict[str, float]]
