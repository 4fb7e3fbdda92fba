"""Far more clients than the server can serve, some of them broken or gone: no wrong answer, no 5xx,
no growing memory, and back to normal at once. REGARD_OVERLOAD_SECONDS sets how long."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.running import Running, running
from tests.tasks import tuning
from tests.tasks.world import World

SECONDS = float(os.environ.get("REGARD_OVERLOAD_SECONDS", "20"))
CLIENTS = 32
TEXTS = [record["text"] for record in tuning.reviews(8, 4)]


def resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def expectations(server: Running) -> list[tuple[str, dict[str, Any], Any]]:
    """Requests with their right answers."""
    rows: list[tuple[str, dict[str, Any], Any]] = []
    gpt, reviewer = server.loaded("gpt"), server.loaded("reviewer")
    for number, text in enumerate(TEXTS):
        prompt = " ".join(text.split()[: 1 + number % 5])
        body = {"model": "gpt", "prompt": prompt, "max_tokens": 20 + 10 * number, "seed": number,
                "temperature": 1.2}  # fmt: skip
        one = gpt.generate(prompt, max_new_tokens=body["max_tokens"], seed=number, temperature=1.2)
        rows.append(("/v1/completions", body, one.text))
        body = {"model": "reviewer", "texts": text}
        rows.append(("/classify", body, reviewer.classify(text).value))
    return rows


class Crowd:
    """Clients that ask without a pause, and what they saw."""

    def __init__(self, server: Running, work: list[tuple[str, dict[str, Any], Any]]) -> None:
        self.server, self.work = server, work
        self.end = time.monotonic() + SECONDS
        self.statuses: Counter[int] = Counter()
        self.wrong: list[Any] = []
        self.address = server.url.removeprefix("http://").split(":")

    def run(self) -> None:
        threads = [threading.Thread(target=self.client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def client(self, seed: int) -> None:
        dice = random.Random(seed)
        with httpx.Client(base_url=self.server.url, timeout=60) as client:
            while time.monotonic() < self.end:
                route, body, right = dice.choice(self.work)
                match dice.randrange(10):
                    case 0:
                        self.vanish(route, body)
                    case 1:
                        answer = client.post(route, content=b'{"model": ')
                        self.statuses[answer.status_code] += 1
                    case _:
                        self.ask(client, route, body, right)

    def ask(self, client: httpx.Client, route: str, body: dict[str, Any], right: Any) -> None:
        answer = client.post(route, json=body)
        self.statuses[answer.status_code] += 1
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            time.sleep(0.02)
        elif answer.status_code == 200:
            table = answer.json()
            value = table["choices"][0]["text"] if "choices" in table else table["results"][0][
                "value"]  # fmt: skip
            if value != right:
                self.wrong.append((body, value, right))

    def vanish(self, route: str, body: dict[str, Any]) -> None:
        """Sends a request and closes the connection without reading."""
        content = json.dumps(body).encode()
        head = f"POST {route} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n"
        with socket.create_connection((self.address[0], int(self.address[1]))) as gone:
            gone.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + content)


@pytest.mark.slow
def test_overload(world: World) -> None:
    paths = [world.model("gpt"), world.run("reviewer")]
    with running(paths, rows=4, queue=6, patience=5.0) as server:
        work = expectations(server)
        warm = Crowd(server, work)
        warm.end = time.monotonic() + 3
        warm.run()
        before = resident()
        crowd = Crowd(server, work)
        crowd.run()
        assert not crowd.wrong and not warm.wrong
        assert set(crowd.statuses) <= {200, 400, 429}, crowd.statuses
        assert crowd.statuses[200] > 50 and crowd.statuses[429] > 10, crowd.statuses
        assert resident() - before < 64 * 2**20
        begun = time.monotonic()
        assert server.client.post("/v1/completions", json=work[0][1]).status_code == 200
        assert time.monotonic() - begun < 2
        generation = server.models.models["gpt"].worker.generation
        server.wait(lambda: not generation.busy, 10)
        assert not generation.batcher.table.slots  # nobody who has gone holds a row
