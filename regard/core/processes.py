"""What a process that writes a run needs: a lock that no other holds, and signals that wait for a
safe moment (a second Ctrl-C ends it at once).

The lock is our own and not that of `filelock`, which leaves its file in the run and does not say
who holds it. Where a file system has no locks, `filelock` takes the mere existence of a file for a
lock, and after a power cut nobody could write the run again; here a warning says so instead.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from regard.core.errors import StorageError
from regard.core.files import make_directory, recover

NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
OPENED = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
HELD: set[int] = set()  # the descriptors that a forked child must close


def forget_in_child() -> None:
    """Closes the lock in a forked worker, which would hold it after the end of its parent."""
    for handle in HELD:
        os.close(handle)
    HELD.clear()


os.register_at_fork(after_in_child=forget_in_child)


class RunLock:
    """The lock of a run directory while it is written. In a distributed run only the first process
    takes it.

    The kernel frees the lock when its holder ends in any way, so a lock is never stale: a lock file
    that a dead process left is taken over. Between machines the lock is as good as the file
    system's `flock`: NFS may not pass it on, and a file system without locks is used with a
    warning.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.file = Path(run), Path(run) / ".lock"
        self.handle = -1
        self.fresh = False  # True if this lock created the directory

    def __enter__(self) -> Self:
        try:
            recover(self.run)
            self.fresh = not self.run.exists()
            make_directory(self.run)
            self.handle = self.take()
            os.truncate(self.handle, 0)
            os.pwrite(self.handle, json.dumps(details()).encode(), 0)
        except OSError as error:
            self.release()
            raise StorageError(
                f"the run {self.run} cannot be written: {error.strerror or error}; choose another "
                "directory, free disk space, or change the permissions"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.handle in HELD:  # a forked child that leaves the block holds no lock
            with suppress(OSError):
                self.file.unlink(missing_ok=True)
                if self.fresh and error is not None:  # a refused run leaves no empty directory
                    self.run.rmdir()
        self.release()

    def take(self) -> int:
        """Returns a locked descriptor of the file that has the name now. The last holder deletes
        its file when it leaves, perhaps after we opened the file and before we locked it."""
        while True:
            handle = os.open(self.file, OPENED, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise StorageError(self.refusal()) from None
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    os.close(handle)
                    raise
                warnings.warn(
                    f"the file system of {self.run} has no locks; make sure that no other process "
                    "writes this run",
                    stacklevel=3,
                )
            if is_same(handle, self.file):
                HELD.add(handle)
                return handle
            os.close(handle)

    def release(self) -> None:
        if self.handle in HELD:
            HELD.remove(self.handle)
            with suppress(OSError):  # a disk that fails has no say: the kernel frees the lock
                os.close(self.handle)
        self.handle = -1

    def refusal(self) -> str:
        try:
            facts = json.loads(self.file.read_text(encoding="utf-8"))
            holder = f"process {facts['process']} on {facts['host']}, since {facts['since']},"
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            holder = "another process"
        return (
            f"the run {self.run} is in use: {holder} writes it; wait until it ends, end it, "
            "or choose another directory"
        )


def is_same(handle: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def details() -> dict[str, object]:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return {"process": os.getpid(), "host": socket.gethostname(), "since": since}


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
