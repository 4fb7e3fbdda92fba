"""Shows the progress of long work: one changing line on a terminal, else an occasional line."""

from __future__ import annotations

import sys
import time

from regard.core.text import visible


class Progress:
    """Prints progress to stderr. Work that is finished soon prints nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet, self.live = quiet, sys.stderr.isatty()
        self.pause = 0.5 if self.live else 15.0
        self.last = time.monotonic()
        self.shown = False

    def step(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self.quiet or now - self.last < self.pause:
            return
        self.last = now
        self.say(f"{what}: {done / 1e6:,.0f} MB ({done / total:.0%})" if total else f"{what} …")

    def say(self, line: str) -> None:
        self.shown, line = self.live, visible(line)
        print(f"\r{line:<60}" if self.live else line, end="" if self.live else "\n",
              file=sys.stderr, flush=True)  # fmt: skip

    def close(self) -> None:
        if self.shown:
            print(f"\r{'':<60}\r", end="", file=sys.stderr, flush=True)
            self.shown = False
