"""The options of `regard serve`, which also bound its memory."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from regard.core.errors import ConfigError
from regard.core.options import ALLOW_NAN, CACHE, DOWNLOAD, Option

KEY_VARIABLE = "REGARD_API_KEY"
Precision = Literal["fp32", "bf16", "int8", "int8-dynamic"]


@dataclass(frozen=True)
class ServeOptions:
    """Where the server listens, and what it allows."""

    host: Annotated[str, Option("Listen at this address.", metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Option("Listen at this port; 0 chooses a free one.", metavar="N")] = 8000
    api_key: Annotated[
        str | None,
        Option("Require this key of every client, as 'Authorization: Bearer KEY'.", metavar="KEY",
               default=f"the variable {KEY_VARIABLE}; needed unless only this machine can connect"),
    ] = None  # fmt: skip
    precision: Annotated[
        Precision,
        Option("Compute in fp32 or bf16, or quantize the matrices to int8; a model may have its "
               "own, as DIR:NAME.", metavar="NAME"),
    ] = "fp32"  # fmt: skip
    cache: Annotated[Literal["bf16", "int8"] | None, CACHE] = None
    keep: Annotated[
        float,
        Option("Unload a model that nobody has used for this many seconds; 0: never.",
               metavar="SECONDS"),
    ] = 0.0  # fmt: skip
    rows: Annotated[
        int, Option("The most texts that a model writes at once; beams and samples count each.")
    ] = 32
    queue: Annotated[
        int, Option("The most requests that wait for a model; others are refused (429).")
    ] = 64
    deadline: Annotated[
        float, Option("Give up a request after this many seconds (504).", metavar="SECONDS")
    ] = 120.0
    max_new_tokens: Annotated[
        int, Option("The most tokens that a request may ask for.", "--max-new-tokens")
    ] = 1024
    max_input_tokens: Annotated[
        int,
        Option("The most tokens of a text, for models that know no limit.", "--max-input-tokens"),
    ] = 4096
    max_body: Annotated[
        int, Option("Refuse a request of more bytes (413).", "--max-body", "BYTES")
    ] = 2**20
    gather: Annotated[
        float,
        Option("Wait this many milliseconds for more texts that an encoder reads in one batch.",
               metavar="MS"),
    ] = 3.0  # fmt: skip
    grace: Annotated[
        float,
        Option("At shutdown, finish accepted requests for up to this many seconds.",
               metavar="SECONDS"),
    ] = 60.0  # fmt: skip
    patience: Annotated[
        float,
        Option("Drop a client that takes longer to send its request, or to read what it gets.",
               metavar="SECONDS"),
    ] = 20.0  # fmt: skip
    threads: Annotated[
        int | None, Option("Compute with N threads.", metavar="N", default="one for each core")
    ] = None
    download: Annotated[bool, DOWNLOAD] = False
    allow_nan: Annotated[bool, ALLOW_NAN] = False

    def __post_init__(self) -> None:
        for name in ("rows", "queue", "max_new_tokens", "max_input_tokens", "max_body"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("deadline", "patience"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0 seconds")
        for name in ("keep", "gather", "grace"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}; it must be from 0 to 65535")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads is {self.threads}; it must be at least 1")
        if self.api_key is not None and not self.api_key.strip():
            raise ConfigError("the API key is empty; give one, or leave it out")
        if self.api_key is None and not is_loopback(self.host):
            raise ConfigError(
                f"{self.host} can be reached from other machines, and there is no key; give "
                f"--api-key or {KEY_VARIABLE}, or listen at 127.0.0.1"
            )

    def requests(self, models: int) -> int:
        """Returns how many requests are answered at once: those that wait for a model to write or
        to read, and those that it works on."""
        return 2 * models * (self.queue + max(self.queue, self.rows))


def precision_of(path: str) -> tuple[str, Precision | None]:
    """Splits DIR:NAME into a directory and the precision of its model; None: that of all models."""
    place, _, last = path.rpartition(":")
    for precision in get_args(Precision):
        if place and last == precision:
            return place, precision
    return path, None


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name: who can reach it is not known
