"""What each part of a comparison took, and the hash of its text.

OUT/facts.json holds both beside the estimate. A comparison that is resumed adds to it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.core.files import read_json, write_json
from regard.data import builtin

FACTS = "facts.json"
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

    def write(self) -> None:
        table = {"estimate": self.estimate, "took": self.took, "text": self.text}
        write_json(self.file, table)

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Adds the seconds of a part, also of one that was stopped."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.took[part] = self.took.get(part, 0.0) + time.monotonic() - began
            self.took["total"] = sum(v for name, v in self.took.items() if name != "total")
            self.write()


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
