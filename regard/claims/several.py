"""Several claims at once, each in a process of its own with a share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

LAST = 3  # lines of a process that failed


class Several:
    """Runs `regard claim` for many. Ctrl-C is passed on once: every process keeps what it has."""

    def __init__(self, options: Sequence[str], jobs: int) -> None:
        self.options, self.jobs = list(options), jobs
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.threads = max(1, (cores or 1) // jobs)
        self.running: set[subprocess.Popen[str]] = set()
        self.stopped, self.lock = False, Lock()

    def run(self, names: Sequence[str]) -> dict[str, str]:
        """Tries them all; gives what failed, and how."""
        pool = ThreadPoolExecutor(self.jobs)
        try:
            said = list(pool.map(self.one, names))
        except KeyboardInterrupt:
            self.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return {name: error for name, error in zip(names, said, strict=True) if error}

    def one(self, name: str) -> str:
        """A process, its lines under its name; gives what it said last if it failed."""
        command = [sys.executable, "-m", "regard", "claim", name, *self.options]
        with self.lock:
            if self.stopped:
                return ""
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                encoding="utf-8", errors="replace", start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": str(self.threads)},
            )  # fmt: skip
            self.running.add(process)
        assert process.stderr is not None
        last: deque[str] = deque(maxlen=LAST)
        for line in process.stderr:
            last.append(line.strip())
            print(f"{name}: {line.strip()}", file=sys.stderr, flush=True)
        code = process.wait()
        with self.lock:
            self.running.discard(process)
        return "" if code == 0 or self.stopped else " ".join(last) or f"ended with {code}"

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.send_signal(signal.SIGINT)
