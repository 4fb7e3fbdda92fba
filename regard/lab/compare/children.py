"""The processes of a comparison: several run at once, and all of them are stopped together."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from regard.core.errors import RegardError

LOOK = 0.5  # seconds between two looks at what a process has written
PATIENCE = 60.0  # seconds that the processes have to save themselves


class Children:
    """Runs commands of ours, each in its own process, so that its peak memory is that of one
    model."""

    def __init__(self) -> None:
        self.running: set[subprocess.Popen[str]] = set()
        self.lock, self.stopped = threading.Lock(), False

    def run(self, words: list[str], look: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Runs Python with these words and returns the JSON object that it prints; `look` is
        called now and then. Any thread may call it."""
        process = self.start(words)
        try:
            while True:
                try:
                    out, error = process.communicate(timeout=LOOK)
                    break
                except subprocess.TimeoutExpired:
                    look()
        finally:
            with self.lock:
                if process.poll() is not None:
                    self.running.discard(process)
        if process.returncode == 130:
            raise KeyboardInterrupt
        if process.returncode:
            last = error.strip().splitlines()[-1:] or ["no message"]
            if process.returncode < 0:  # killed by the system, for instance without memory
                last = [f"killed by {signal.Signals(-process.returncode).name}"]
            raise RegardError(f"{' '.join(words[1:4])} ended with an error: {last[0]}")
        answer: dict[str, Any] = json.loads(out)
        return answer

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        with self.lock:
            if self.stopped:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace",
                process_group=0,  # only `stop` sends Ctrl-C: a second one would kill the run
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip
            self.running.add(process)
        return process

    def stop(self) -> None:
        """Passes Ctrl-C on to every process, once, so that it saves itself, and waits for it."""
        with self.lock:
            running = [] if self.stopped else list(self.running)
            self.stopped = True
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Stops all processes when Ctrl-C or SIGTERM ends the block, or an error does. Python lets
        only its main thread receive signals."""

        def interrupt(number: int, frame: Any) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, interrupt)
        try:
            yield
        except BaseException:
            self.stop()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


def die_with_parent() -> None:
    """Asks the kernel (Linux only) to send SIGTERM to the run when the comparison is killed, so
    that the run saves itself."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
