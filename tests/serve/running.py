"""A real server on loopback, in a thread of this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from regard.serve.models import ServedModels
from regard.serve.options import ServeOptions
from regard.serve.server import Server, listening, run


class Running:
    """A server, its address, and a client for it."""

    def __init__(self, paths: list[str], send_buffer: int = 0, **options: Any) -> None:
        chosen = ServeOptions(port=0, **options)
        listener = listening(chosen)
        if send_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.models = ServedModels(paths, chosen)
        self.server = Server(self.models, chosen)
        self.thread = threading.Thread(target=run, args=(self.server, listener), daemon=True)
        self.thread.start()
        headers = {"authorization": f"Bearer {chosen.api_key}"} if chosen.api_key else {}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=60)
        self.wait(lambda: self.server.started)

    def wait(self, holds: Any, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it does not come true"
            time.sleep(0.01)

    def loaded(self, name: str) -> Any:
        return self.models.models[name].load()

    def post(self, route: str, **body: Any) -> Any:
        """The answer to a body, which must be right."""
        answer = self.client.post(route, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, status: int, route: str, *parts: object, **body: Any) -> dict[str, Any]:
        """A refusal in OpenAI's shape, whose message mentions every part."""
        return refusal(self.client.post(route, json=body), status, *parts)

    def figure(self, name: str) -> float:
        """The sum of a figure of /metrics over its labels."""
        lines = self.client.get("/metrics").text.splitlines()
        rows = [line for line in lines if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.rpartition(" ")[2]) for line in rows)

    def stop(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()


def refusal(answer: httpx.Response, status: int, *parts: object) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert "\n" not in error["message"]
    assert [part for part in parts if str(part) not in error["message"]] == [], error["message"]
    return error


@contextmanager
def running(paths: list[str], **options: Any) -> Iterator[Running]:
    server = Running(paths, **options)
    try:
        yield server
    finally:
        server.stop()
