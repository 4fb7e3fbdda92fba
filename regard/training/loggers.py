"""Where a run's metrics are shown, beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow and
Trackio, each by its own library.

Nothing goes over the network by itself: each writes into the directory of the run. The user's own
variable of a library (WANDB_MODE=online, MLFLOW_TRACKING_URI, TRACKIO_DIR) decides otherwise.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from regard.core.errors import InputError, UnknownName
from regard.core.files import make_directory, open_new, parse_json, storing, write_json

Scalars = Sequence[tuple[str, float]]
IDENTITIES = "loggers.json"  # under which name each library knows this run
PROJECT = "regard"
# No library may report on itself; a variable that the user has set stays.
QUIET = {
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "DO_NOT_TRACK": "true",
}
# A word of a name that says its value is secret, and a password in an address.
SECRETS = {"token", "password", "passwd", "secret", "credential", "credentials", "auth"}
ADDRESS = re.compile(r"(?<=://)[^/\s@]+@")


class MetricsLogger(Protocol):
    """The interface of a library that shows metrics."""

    forgets: bool  # does a resumed run replace the steps that it repeats?

    def add(self, step: int, scalars: Scalars) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class TensorBoardLogger:
    """A new event file in RUN/tensorboard, written in the thread that has the metrics: if the disk
    is full, the run says so. (TensorBoard's own writer fails in a thread of its own.)"""

    forgets = True

    def __init__(self, run: Path, step: int, recipe: dict[str, Any]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event, self.summary = event_pb2.Event, summary_pb2.Summary
        now = time.time_ns()  # TensorBoard reads the files in the order of their names
        name = (
            f"{now // 10**9:010d}.{socket.gethostname()}.{os.getpid()}.{now}{secrets.token_hex(4)}"
        )
        self.path = run / "tensorboard" / f"events.out.tfevents.{name}"
        with storing(self.path):
            make_directory(self.path.parent)
            self.file = open_new(self.path)
        self.records: Any = RecordWriter(self.file)
        self.write(file_version="brain.Event:2")
        # what older files say of the next step and later is forgotten
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self.write(step=step + 1, session_log=start)
        self.flush()

    def add(self, step: int, scalars: Scalars) -> None:
        values = [self.summary.Value(tag=name, simple_value=value) for name, value in scalars]
        self.write(step=step, summary=self.summary(value=values))

    def write(self, **fields: Any) -> None:
        with storing(self.path):
            self.records.write(self.event(wall_time=time.time(), **fields).SerializeToString())

    def flush(self) -> None:
        with storing(self.path):
            self.file.flush()

    def close(self) -> None:
        with storing(self.path):
            self.file.close()


class WandbLogger:
    """Weights & Biases, offline, in RUN/wandb; `wandb sync` sends it, if the user wants that."""

    forgets = False

    def __init__(self, run: Path, step: int, recipe: dict[str, Any]) -> None:
        import wandb

        settings = wandb.Settings(
            console="off", save_code=False, disable_git=True, disable_code=True,
            disable_job_creation=True, x_disable_meta=True, x_disable_stats=True,
        )  # fmt: skip
        self.run = wandb.init(
            project=PROJECT, name=run.name, dir=str(run), config=recipe, resume="allow",
            id=identity(run, "wandb", secrets.token_hex(8)), settings=settings,
            mode=os.environ.get("WANDB_MODE", "offline"),
        )  # fmt: skip

    def add(self, step: int, scalars: Scalars) -> None:
        self.run.log(dict(scalars), step=step)

    def flush(self) -> None: ...  # a process of the library's own writes

    def close(self) -> None:
        self.run.finish()


class MlflowLogger:
    """An MLflow file store in RUN/mlruns. MLflow asks for MLFLOW_ALLOW_FILE_STORE=true before it
    opens one, also in `mlflow ui --backend-store-uri RUN/mlruns`."""

    forgets = False

    def __init__(self, run: Path, step: int, recipe: dict[str, Any]) -> None:
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI") or (run.absolute() / "mlruns").as_uri()
        self.client, self.metric = MlflowClient(tracking_uri=uri), Metric
        self.id = identity(run, "mlflow", "")
        if not self.id:
            known = self.client.get_experiment_by_name(PROJECT)
            place = known.experiment_id if known else self.client.create_experiment(PROJECT)
            self.id = self.client.create_run(place, run_name=run.name).info.run_id
            identity(run, "mlflow", self.id)
            for name, value in flat(recipe):
                self.client.log_param(self.id, name, str(value)[:500])
        self.client.set_terminated(self.id, status="RUNNING")

    def add(self, step: int, scalars: Scalars) -> None:
        now = time.time_ns() // 10**6
        rows = [self.metric(name, value, now, step) for name, value in scalars]
        self.client.log_batch(self.id, metrics=rows)

    def flush(self) -> None: ...  # every call writes

    def close(self) -> None:
        self.client.set_terminated(self.id)


class TrackioLogger:
    """Trackio's database in RUN/trackio; `TRACKIO_DIR=RUN/trackio trackio show` shows it."""

    forgets = False

    def __init__(self, run: Path, step: int, recipe: dict[str, Any]) -> None:
        os.environ.setdefault("TRACKIO_DIR", str(run.absolute() / "trackio"))
        import trackio

        with redirect_stdout(sys.stderr):  # standard output is for results
            name = identity(run, "trackio", f"{run.name}-{secrets.token_hex(4)}")
            self.run = trackio.init(
                project=PROJECT, name=name, config=recipe, resume="allow", embed=False,
                auto_log_gpu=False,
            )  # fmt: skip

    def add(self, step: int, scalars: Scalars) -> None:
        self.run.log(dict(scalars), step=step)

    def flush(self) -> None: ...  # a thread of the library writes

    def close(self) -> None:
        from trackio import context_vars

        with redirect_stdout(sys.stderr):
            self.run.finish()
        context_vars.current_run.set(None)  # else it is finished again at exit, and prints


LOGGERS: dict[str, type[MetricsLogger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
    "trackio": TrackioLogger,
}
EXTRAS = {"tensorboard": "board"}  # the extra of a library whose name is another


def check_loggers(names: Sequence[str] | None) -> list[str]:
    """Returns the loggers of a run. Unknown and missing ones are refused before any work; if none
    is named, it is TensorBoard where that is installed."""
    if names is None:
        return ["tensorboard"] if find_spec("tensorboard") else []
    for name in names:
        if name not in LOGGERS:
            raise UnknownName("logger (--log)", name, LOGGERS)
        try:
            import_module(name) if name == "tensorboard" else find_spec(name) or import_module(name)
        except ImportError as error:
            raise InputError(
                f"--log {name} needs the library {name!r} ({error}); install it with: pip install "
                f"'regard[{EXTRAS.get(name, name)}]'"
            ) from None
    return list(dict.fromkeys(names))


def open_loggers(
    names: Sequence[str], run: Path, step: int, recipe: dict[str, Any]
) -> list[MetricsLogger]:
    """Opens the loggers of a run that has done `step` steps. A resumed run goes on in the same
    record."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    public = without_secrets(recipe)
    try:
        return [LOGGERS[name](run, step, public) for name in names]  # type: ignore[call-arg]
    except ImportError as error:
        raise InputError(
            f"a library of --log {','.join(names)} is installed and cannot be imported ({error}); "
            "install it again, or leave it out of --log"
        ) from None


def identity(run: Path, name: str, new: str) -> str:
    """Returns the name under which a library knows this run; the first one that is given stays."""
    file = run / IDENTITIES
    known = parse_json(file.read_bytes(), str(file)) if file.is_file() else {}
    if name not in known and new:
        known[name] = new
        write_json(file, known)
    return str(known.get(name, new))


def without_secrets(table: dict[str, Any]) -> dict[str, Any]:
    """Returns the table without values whose names say that they are secret, and without the
    passwords of addresses."""
    public: dict[str, Any] = {}
    for name, value in table.items():
        words = re.split(r"[^a-z0-9]+", name.lower())
        if SECRETS.intersection(words) or "apikey" in "".join(words):
            continue
        if isinstance(value, dict):
            public[name] = without_secrets(value)
        elif isinstance(value, list | tuple):
            public[name] = [ADDRESS.sub("", v) if isinstance(v, str) else v for v in value]
        else:
            public[name] = ADDRESS.sub("", value) if isinstance(value, str) else value
    return public


def flat(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        inner = isinstance(value, dict)
        rows += flat(value, f"{prefix}{name}.") if inner else [(f"{prefix}{name}", value)]
    return rows
