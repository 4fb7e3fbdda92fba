"""What every request passes: the key, its size, the time it takes to arrive, shutdown, figures.

Every refusal has the shape of OpenAI's errors, in one line, and tells nothing about the machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, InputError, RequestError, UnknownName
from regard.serve.models import ServedModels
from regard.serve.options import ServeOptions

LOG = logging.getLogger("regard.serve")
OPEN = {"/health", "/ready"}  # need no key, for probes
ALWAYS = {*OPEN, "/metrics"}  # are answered during shutdown
TYPES = {
    401: "authentication_error",
    429: "rate_limit_error",
    **dict.fromkeys((500, 503, 504), "server_error"),
}
GONE = 499  # the status of a client that has gone, in the figures alone
JOBS = "regard.jobs"  # where the jobs of a request stand in its scope
Message = dict[str, Any]


class ServerState:
    """What the parts of a server share."""

    def __init__(self, models: ServedModels, options: ServeOptions) -> None:
        self.models, self.options = models, options
        self.closing = False  # True: new requests are refused, accepted ones are finished
        self.active = 0  # requests that are being answered

    @property
    def metrics(self) -> Any:
        return self.models.metrics


def error_body(error: RequestError) -> dict[str, Any]:
    """Returns an error in OpenAI's shape."""
    kind = TYPES.get(error.status, "invalid_request_error")
    message = " ".join(str(error).split())
    return {
        "error": {"message": message, "type": kind, "param": error.param, "code": error.code},
    }


def as_request_error(error: BaseException, state: ServerState) -> RequestError:
    """Returns what a client is told of an error. Errors that a client can fix are told, with the
    name of a model instead of its path; all others are only logged."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, InputError | ConfigError | UnknownName):
        message = str(error)
        for model in state.models.models.values():
            for path in (str(Path(model.path).resolve()), model.path):
                message = message.replace(path, model.name)
        return RequestError(message, 400)
    LOG.error("a request failed", exc_info=error)
    return RequestError("the server failed to answer; its log says why", 500, "internal_error")


def error_headers(error: RequestError) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status in (408, 413, 503):
        headers["connection"] = "close"  # what is still being sent is not read
    return headers


class ClientGone(Exception):
    """The client has closed the connection, or does not read."""


class RequestGate:
    """The outermost part of the application (ASGI)."""

    def __init__(self, app: Any, state: ServerState) -> None:
        self.app, self.state, self.options = app, state, state.options
        key = self.options.api_key
        self.key = None if key is None else hashlib.sha256(key.encode()).digest()

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(send, self.options.patience)
        begun, path = time.perf_counter(), scope["path"]
        self.state.active += 1
        try:
            self.check(scope, path)
            body = await self.body(scope, receive)
            await self.app(scope, replayed(body, receive), exchange.send)
        except ClientGone:
            exchange.status = exchange.status or GONE
        except Exception as error:
            if not exchange.finished:  # else it was answered and logged
                refusal = as_request_error(error, self.state)
                if exchange.status:  # too late for another: the connection is closed
                    raise
                await exchange.refuse(refusal)
        finally:
            self.state.active -= 1
            for job in scope.get(JOBS, ()):  # whatever nobody waits for any more
                job.cancelled = True
            route = getattr(scope.get("route"), "path", "other")
            self.state.metrics.requests.labels(route, str(exchange.status)).inc()
            self.state.metrics.seconds.labels(route).observe(time.perf_counter() - begun)

    def check(self, scope: Message, path: str) -> None:
        headers = dict(scope["headers"])
        if self.state.closing and path not in ALWAYS:
            raise RequestError(
                "the server is shutting down; try again soon", 503, "shutting_down", retry_after=5
            )
        if self.key is not None and path not in OPEN:
            scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
            right = hmac.compare_digest(hashlib.sha256(key.strip()).digest(), self.key)
            if scheme.lower() != b"bearer" or not right:
                raise RequestError(
                    "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'",
                    401,
                    "invalid_api_key",
                )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.options.max_body:
            raise self.too_large(f"{int(length):,}")

    def too_large(self, size: str) -> RequestError:
        return RequestError(
            f"the request has {size} bytes, and this server reads at most "
            f"{self.options.max_body:,}; send less at once, or start it with a larger --max-body",
            413,
            "request_too_large",
        )

    async def body(self, scope: Message, receive: Any) -> bytes:
        """Reads the whole body, in bounded time and memory."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.options.patience):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self.options.max_body:
                        raise self.too_large(f"more than {self.options.max_body:,}")
                    parts.append(part)
                    if not message.get("more_body"):
                        return as_utf8(b"".join(parts))
        except TimeoutError:
            raise RequestError(
                f"the request did not arrive within {self.options.patience:g} s", 408, "too_slow"
            ) from None


def as_utf8(body: bytes) -> bytes:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8 text at byte {error.start + 1}") from None
    return body


def replayed(body: bytes, receive: Any) -> Any:
    """Returns a `receive` that gives the body once, and then what the client does."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        message: Message = messages.pop() if messages else await receive()
        return message

    return again


class Exchange:
    """Sends an answer, and drops a client that does not read it."""

    def __init__(self, send: Any, patience: float) -> None:
        self.raw, self.patience, self.status, self.finished = send, patience, 0, False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        try:
            async with asyncio.timeout(self.patience):
                await self.raw(message)
        except (TimeoutError, OSError):
            raise ClientGone from None
        self.finished = message["type"] == "http.response.body" and not message.get("more_body")

    async def refuse(self, error: RequestError) -> None:
        body = json.dumps(error_body(error), ensure_ascii=False).encode()
        headers = error_headers(error) | {"content-length": str(len(body))}
        await self.send(
            {
                "type": "http.response.start",
                "status": error.status,
                "headers": encoded(headers),
            }
        )
        await self.send({"type": "http.response.body", "body": body})


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
