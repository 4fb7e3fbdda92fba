"""Makes Ctrl-C and SIGTERM end a run at the next safe moment; a second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopSignal:
    """Stores a signal until it is safe to stop: `with StopSignal() as stop`, `if stop.asked`."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = ""  # the name of the signal that arrived
        self.before: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self.ask) for number in self.SIGNALS}
        return self

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
