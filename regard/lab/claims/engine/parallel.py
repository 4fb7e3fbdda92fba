"""Runs several claims at once, each in its own process with a share of the cores."""

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

from regard.core.text import visible
from regard.lab.compare.children import die_with_parent

LAST = 3  # last lines of a failed process that are shown
GRACE = 15  # seconds that a process has to stop


class ParallelClaims:
    """Runs `regard claims run` for many claims. Ctrl-C is passed on, and every process keeps its
    finished cells."""

    def __init__(self, options: Sequence[str], jobs: int) -> None:
        self.options, self.jobs = list(options), jobs
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.threads = max(1, (cores or 1) // jobs)
        self.running: set[subprocess.Popen[str]] = set()
        self.stopped, self.lock = False, Lock()

    def run(self, names: Sequence[str]) -> dict[str, str]:
        """Tries all claims; returns the ones that failed, with their errors."""
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
        """Runs one process and prints its lines with the claim's name; returns its last lines if it
        failed."""
        command = [sys.executable, "-m", "regard", "claims", "run", name, *self.options]
        with self.lock:
            if self.stopped:
                return ""
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                encoding="utf-8", errors="replace", process_group=0,  # `stop` sends Ctrl-C
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
                env=os.environ | {"OMP_NUM_THREADS": str(self.threads)},
            )  # fmt: skip
            self.running.add(process)
        assert process.stderr is not None
        last: deque[str] = deque(maxlen=LAST)
        for line in process.stderr:
            last.append(line.strip())
            print(visible(f"{name}: {line.strip()}"), file=sys.stderr, flush=True)
        code = process.wait()
        with self.lock:
            self.running.discard(process)
        return "" if code == 0 or self.stopped else " ".join(last) or f"ended with {code}"

    def stop(self) -> None:
        """Sends SIGINT twice, because a process that has just started may miss the first, and then
        SIGKILL. Finished cells are kept."""
        with self.lock:
            self.stopped, running = True, list(self.running)
        for kind in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            alive = [process for process in running if process.poll() is None]
            for process in alive:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, kind)  # with its own child processes
            end = time.monotonic() + GRACE
            while any(process.poll() is None for process in alive) and time.monotonic() < end:
                time.sleep(0.05)
