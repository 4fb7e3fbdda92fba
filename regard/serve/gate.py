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
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regard.core.errors import ConfigError, InputError, RequestError, UnknownName
from regard.serve.models import ServedModels
from regard.serve.options import ServeOptions, is_loopback

LOG = logging.getLogger("regard.serve")
PROBES = {"/health", "/ready"}
OPEN = {*PROBES, "/"}  # need no key; the page asks for it
ALWAYS = {*PROBES, "/metrics"}  # are answered during shutdown
TYPES = {
    401: "authentication_error",
    429: "rate_limit_error",
    **dict.fromkeys((500, 503, 504), "server_error"),
}
LINGER = 2.0  # seconds in which the body of a refused request is still read
GONE = 499  # the status of a client that has gone, in the figures alone
JOBS = "regard.jobs"  # where the jobs of a request stand in its scope
Message = dict[str, Any]


class ServerState:
    """What the parts of a server share."""

    def __init__(self, models: ServedModels, options: ServeOptions) -> None:
        self.models, self.options = models, options
        self.closing = False  # True: new requests are refused, accepted ones are finished
        self.active = 0  # requests that are being answered
        self.most = options.requests(len(models.models))

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
            async with exchange.read():
                await self.app(scope, replayed(body, receive), exchange.send)
        except ClientGone:
            exchange.status = exchange.status or GONE
        except Exception as error:
            if not exchange.finished:  # else it was answered and logged
                refusal = as_request_error(error, self.state)
                if exchange.status:  # too late for another: the connection is closed
                    raise
                await exchange.refuse(refusal, receive)
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
        if self.state.active > self.state.most and path not in ALWAYS:
            raise RequestError(
                f"the server is answering {self.state.most} requests, and takes no more at once; "
                "try again in 1 s", 429, "rate_limit_exceeded", retry_after=1,
            )  # fmt: skip
        if self.key is None and path not in PROBES:
            check_site(headers)
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


def check_site(headers: Mapping[bytes, bytes]) -> None:
    """Refuses what pages of other sites send from the browser of a person at this machine. A site
    may even give its own name the address of this machine (DNS rebinding) to read the answers. A
    server with a key need not care: such a page does not know it."""
    host, origin = (headers.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
    try:
        known = not host or is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:  # brackets without an address
        known = False
    if known and (not origin or origin.lower() == f"http://{host}".lower()):
        return
    what = f"the page of {origin[:100]}" if known else f"the name {host[:100]!r}"
    raise RequestError(
        f"this server has no key, so it answers this machine and its own page alone, and not {what}"
        "; start it with --api-key, or ask http://127.0.0.1",
        403,
        "other_site",
    )


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
        self.stuck: float | None = None  # the time since which the client reads nothing

    @asynccontextmanager
    async def read(self) -> AsyncIterator[None]:
        """Ends what is inside if the client does not read. The time is looked at now and then: a
        timer for each message would cost more than the message."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        def look(limit: asyncio.Timeout) -> None:
            nonlocal timer
            if self.stuck is not None and loop.time() - self.stuck >= self.patience:
                limit.reschedule(loop.time())
            else:
                timer = loop.call_later(self.patience / 4, look, limit)

        limit = asyncio.timeout(None)
        try:
            async with limit:
                look(limit)
                yield
        except TimeoutError:
            if limit.expired():
                raise ClientGone from None
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.stuck = asyncio.get_running_loop().time()
        try:
            await self.raw(message)
        except OSError:
            raise ClientGone from None
        self.stuck = None
        self.finished = message["type"] == "http.response.body" and not message.get("more_body")

    async def refuse(self, error: RequestError, receive: Any) -> None:
        """Sends a refusal. Where it closes the connection, what the client is still sending is
        read and dropped for a while: else the system would cut it off before it has the answer,
        and a proxy would say 502."""
        body = json.dumps(error_body(error), ensure_ascii=False).encode()
        headers = error_headers(error) | {"content-length": str(len(body))}
        start = {
            "type": "http.response.start", "status": error.status, "headers": encoded(headers),
        }  # fmt: skip
        closes = "connection" in headers
        async with self.read():
            await self.send(start)
            await self.send({"type": "http.response.body", "body": body, "more_body": closes})
            if closes:
                await drained(receive)
                await self.send({"type": "http.response.body", "body": b""})


async def drained(receive: Any) -> None:
    """Reads until the body ends or the client goes, for a bounded time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while (message := await receive())["type"] == "http.request":
                if not message.get("more_body"):
                    return


def encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
