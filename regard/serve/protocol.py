"""A connection: the head of a request has to arrive in time, and to be short.

uvicorn waits for the end of a head for ever, and stores whatever comes. What comes after the head
is bounded by gate.py.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from regard.core.errors import RequestError
from regard.serve.gate import error_body, error_headers

HEAD = 2**16  # the most bytes of the first line and the headers of a request


class PatientProtocol(HttpToolsProtocol):
    """The protocol of uvicorn, which drops clients that are too slow, or send no HTTP."""

    def __init__(self, *arguments: Any, patience: float, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.patience, self.size = patience, 0
        self.timer: asyncio.TimerHandle | None = None  # while a head has not arrived

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.expect_head()

    def expect_head(self) -> None:
        if self.timer is None:
            self.size, self.timer = 0, self.loop.call_later(self.patience, self.too_slow)

    def head_arrived(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        super().data_received(data)
        if self.timer is not None and self.size > HEAD:
            self.refuse(RequestError(f"the headers have more than {HEAD:,} bytes; send less", 431))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.expect_head()

    def on_headers_complete(self) -> None:
        self.head_arrived()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.head_arrived()
        super().connection_lost(exc)

    def too_slow(self) -> None:
        if self.size == 0:  # a browser that has connected in advance
            self.transport.close()
            return
        self.refuse(
            RequestError(f"the request did not arrive within {self.patience:g} s", 408, "too_slow")
        )

    def send_400_response(self, msg: str) -> None:
        self.refuse(RequestError("this is not HTTP, or no version of it that this server reads"))

    def refuse(self, error: RequestError) -> None:
        """Answers in OpenAI's shape and closes the connection. An answer that is being sent, to a
        request before this one, is cut off."""
        self.head_arrived()
        if self.transport.is_closing():
            return
        body = json.dumps(error_body(error)).encode()
        headers = error_headers(error) | {"content-length": str(len(body)), "connection": "close"}
        lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", body]))
        self.transport.close()
