"""Writes metrics for TensorBoard, in the thread that has them: if the disk is full, the run that
writes them says so. (TensorBoard's own writer fails in a thread of its own.)"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from regard.core.files import make_directory, open_new, storing


class EventLog:
    """A new event file in `directory`; what older ones say of this step and later is forgotten."""

    def __init__(self, directory: Path, step: int) -> None:
        now = time.time_ns()  # TensorBoard reads the files in the order of their names
        name = (
            f"{now // 10**9:010d}.{socket.gethostname()}.{os.getpid()}.{now}{secrets.token_hex(4)}"
        )
        self.path = directory / f"events.out.tfevents.{name}"
        with storing(self.path):
            make_directory(directory)
            self.file = open_new(self.path)
        self.records: Any = RecordWriter(self.file)
        self.write(file_version="brain.Event:2")
        self.write(step=step, session_log=SessionLog(status=SessionLog.START))
        self.flush()

    def add(self, step: int, scalars: Iterable[tuple[str, float]]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars]
        self.write(step=step, summary=Summary(value=values))

    def write(self, **fields: Any) -> None:
        with storing(self.path):
            self.records.write(Event(wall_time=time.time(), **fields).SerializeToString())

    def flush(self) -> None:
        with storing(self.path):
            self.file.flush()

    def close(self) -> None:
        with storing(self.path):
            self.file.close()
