"""The figures of a server, in the format of Prometheus, at /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class ServerMetrics:
    """One registry for each server, so that several may run in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "regard_requests", "Requests by route and status.", ["route", "status"],
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "regard_request_seconds", "Seconds from a request to the end of its answer.", ["route"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.first_token = Histogram(
            "regard_first_token_seconds", "Seconds from a request to its first token.", ["model"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.tokens = Counter(
            "regard_tokens", "Tokens read (prompt) and written (completion).", ["model", "kind"],
            registry=registry,
        )  # fmt: skip
        self.refused = Counter(
            "regard_refused", "Requests refused because the queue was full.", ["model"],
            registry=registry,
        )  # fmt: skip
        self.waiting = Gauge(
            "regard_waiting", "Requests that wait for a model.", ["model"], registry=registry
        )
        self.rows = Gauge(
            "regard_rows", "Texts that a model writes at the moment.", ["model"], registry=registry
        )
        self.batch = Histogram(
            "regard_batch", "Questions that an encoder answered together.", ["model"],
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256), registry=registry,
        )  # fmt: skip
        self.loaded = Gauge(
            "regard_loaded", "Whether a model is in memory.", ["model"], registry=registry
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
