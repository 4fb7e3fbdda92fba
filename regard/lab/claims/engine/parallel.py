"""Several claims at once, each in a process of its own with a share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock

from regard.lab.compare.comparison import die_with_parent

LAST = 3  # lines of a process that failed
GRACE = 15  # seconds to stop


class ParallelClaims:
    """Runs `regard claims run` for many. Ctrl-C is passed on: every process keeps what it has."""

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
            errors = list(pool.map(self.one, names))
        except KeyboardInterrupt:
            self.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return {name: error for name, error in zip(names, errors, strict=True) if error}

    def one(self, name: str) -> str:
        """A process, its lines under its name; gives what it said last if it failed."""
        command = [sys.executable, "-m", "regard", "claims", "run", name, *self.options]
        with self.lock:
            if self.stopped:
                return ""
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                encoding="utf-8", errors="replace", process_group=0,  # Ctrl-C comes from `stop`
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
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
        """Twice kindly: one that has just started may lose the first. What is measured is kept."""
        with self.lock:
            self.stopped, running = True, list(self.running)
        for kind in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            alive = [process for process in running if process.poll() is None]
            for process in alive:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, kind)  # with what it has started itself
            end = time.monotonic() + GRACE
            while any(process.poll() is None for process in alive) and time.monotonic() < end:
                time.sleep(0.05)
