"""The process of a server: it listens, and at SIGTERM or Ctrl-C it finishes what it accepted."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from regard.core.errors import ConfigError
from regard.serve.app import create_app
from regard.serve.memory import bound_plans
from regard.serve.models import ServedModels
from regard.serve.options import ServeOptions
from regard.serve.protocol import PatientProtocol

# A model's thread lets go of the interpreter for each of its native calls, and waits this long for
# it if the event loop is busy: with Python's 5 ms, longer than most of its calls take.
SWITCH = 0.0002  # seconds


class Server(uvicorn.Server):
    """A server that refuses new requests (503) and finishes the accepted ones before it ends."""

    def __init__(self, models: ServedModels, options: ServeOptions) -> None:
        self.gate = create_app(models, options)
        protocol: Any = partial(PatientProtocol, patience=options.patience)
        config = uvicorn.Config(
            self.gate,
            http=protocol,
            host=options.host,
            port=options.port,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=5,
            server_header=False,
            proxy_headers=False,
            ws="none",
        )
        super().__init__(config)
        self.grace = options.grace

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the shutdown; the second ends it at once."""
        if self.gate.state.closing:
            super().handle_exit(sig, frame)
        else:
            self.close()

    def close(self) -> None:
        self.gate.state.closing = True
        threading.Thread(target=self.drain, name="regard-drain", daemon=True).start()

    def drain(self) -> None:
        """Waits until nothing is active, but not for ever."""
        end = time.monotonic() + self.grace
        while self.gate.state.active and time.monotonic() < end:
            time.sleep(0.05)
        self.should_exit = True


def listening(options: ServeOptions) -> socket.socket:
    """Returns a socket that listens; a port in use is refused with a sentence."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host.strip("[]"), options.port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen at {options.host}:{options.port}: {error.strerror}; choose another "
            "--port or --host"
        ) from None
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def run(server: Server, listener: socket.socket) -> None:
    """Answers requests until the server ends."""
    sys.setswitchinterval(SWITCH)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))


def serve(paths: Sequence[str], options: ServeOptions, say: Callable[[str], None] = print) -> None:
    """Loads the models and serves them until a signal ends the process."""
    bound_plans()
    listener = listening(options)  # before the models: a port in use is known at once
    try:
        models = ServedModels(paths, options)
        for line in models.lines():
            say(line)
        server = Server(models, options)
        host, port = listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        say(f"listening at http://{address}:{port} · open it in a browser, or /docs for the routes")
        run(server, listener)
    finally:
        listener.close()
