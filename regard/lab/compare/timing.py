"""What each part of a comparison took, and the hash of its text.

OUT/facts.json holds both beside the estimate. A comparison that is resumed adds to it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.core.files import read_json, write_json
from regard.data import builtin

FACTS, TOTAL = "facts.json", "total"
FACT_KINDS: dict[str, Any] = {
    "estimate": dict[str, float], "took": dict[str, float], "text": dict[str, str],
}  # fmt: skip


class ComparisonFacts:
    """The content of OUT/facts.json."""

    def __init__(self, out: Path) -> None:
        self.file = out / FACTS
        known = read_json(self.file, kinds=FACT_KINDS) or {}
        self.estimate: dict[str, float] = known.get("estimate", {})
        self.took: dict[str, float] = known.get("took", {})
        self.text: dict[str, str] = known.get("text", {})
        self.lock = threading.Lock()
        self.running: Counter[str] = Counter()  # how many times each part runs at this moment
        self.since = time.monotonic()

    def write(self) -> None:
        table = {"estimate": self.estimate, "took": self.took, "text": self.text}
        write_json(self.file, table)

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Adds the seconds of a part, also of one that was stopped. What several threads do in the
        same part at the same time counts once."""
        with self.lock:
            self.add()
            self.running[part] += 1
        try:
            yield
        finally:
            with self.lock:
                self.add()
                self.running[part] -= 1
                self.took[TOTAL] = self.took.pop(TOTAL, 0.0)  # stands last
                self.write()

    def add(self) -> None:
        """Adds the time since the last call to every part that is running, and to the total."""
        now, running = time.monotonic(), [*+self.running]
        for part in [*running, TOTAL] if running else []:
            self.took[part] = self.took.get(part, 0.0) + now - self.since
        self.since = now


def text_hashes(sources: tuple[str, ...], data: Path) -> dict[str, str]:
    """Returns the SHA-256 of the tokens of all splits and, for the built-in text, of its documents:
    each version of Python has another one."""
    tokens = hashlib.sha256()
    for file in sorted(data.glob("*.tokens")):
        with file.open("rb") as stream:
            while block := stream.read(2**20):
                tokens.update(block)
    own = {"tokens": tokens.hexdigest()}
    return own | ({builtin.NAME: builtin.fingerprint()} if builtin.NAME in sources else {})
