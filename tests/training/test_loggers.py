"""Loggers: each library gives back the numbers that a run wrote, also of a run that was resumed."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import InputError, UnknownName
from regard.training.loggers import check_loggers, without_secrets
from regard.training.progress import Metrics, scalars
from regard.training.recipe import make
from tests.refusals import refuses

ROOT = Path(__file__).parent.parent.parent
NAMES = ("tensorboard", "wandb", "mlflow", "trackio")
RECIPE: dict[str, Any] = {
    "model": "gpt", "data": "https://me:hidden-word@example.org/text", "seed": 3,
    "engine": {"device": "cpu", "hf_token": "hidden-word", "api-key": "hidden-word"},
    "shape": {"width": 16}, "budget": {"tokens": 500},
}  # fmt: skip
EXPECTED = {
    "loss": [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0)],
    "valid/perplexity": [(4, 7.0)],
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection but to this machine, and none of the user's variables."""
    plain = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            pytest.fail(f"a logger connects to {address}")
        plain(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI", "TRACKIO_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # for what is read here


def run(place: Path, log: list[str], start: int, steps: int) -> None:
    metrics = Metrics(place / "metrics.jsonl", log=log, recipe=RECIPE)
    metrics.begin(start)
    for step in range(start + 1, steps + 1):
        metrics.write({"step": step, "loss": float(step)})
        if step == 4:
            metrics.write({"step": step, "valid": {"perplexity": 7.0}})
    metrics.flush()
    metrics.close()


def of_tensorboard(place: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(place / "tensorboard"))
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in names}


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a file of wandb: after 7 bytes LevelDB's log format, blocks of 32 kB whose
    pieces have a checksum, a length and a kind (whole, first, middle, last)."""
    at, record = 7, b""
    while at + 7 <= len(data):
        if (room := 32768 - at % 32768) < 7:
            at += room
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield record
            record = b""


def of_wandb(place: Path) -> dict[str, list[tuple[int, float]]]:
    from wandb.proto.wandb_internal_pb2 import Record

    table: dict[str, list[tuple[int, float]]] = {}
    ids = set()
    for file in sorted(place.glob("wandb/offline-run-*/*.wandb")):
        for data in wandb_records(file.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.run.run_id:
                ids.add(record.run.run_id)
            values = {item.key or "/".join(item.nested_key): json.loads(item.value_json)
                      for item in record.history.item}  # fmt: skip
            step = values.get("_step", record.history.step.num)
            for name, value in values.items():
                if not name.startswith("_"):
                    table.setdefault(name, []).append((int(step), float(value)))
    assert len(ids) == 1  # the same record
    return table


def of_mlflow(place: Path) -> dict[str, list[tuple[int, float]]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(place / "mlruns").as_uri())
    (experiment,) = [e for e in client.search_experiments() if e.name == "regard"]
    (known,) = client.search_runs([experiment.experiment_id])
    assert known.data.params["shape.width"] == "16"
    return {
        name: [(m.step, m.value) for m in client.get_metric_history(known.info.run_id, name)]
        for name in known.data.metrics
    }


def of_trackio(place: Path) -> dict[str, list[tuple[int, float]]]:
    """In a process of its own: the library reads its variable once."""
    code = f"import json; from {__name__} import trackio_rows; print(json.dumps(trackio_rows()))"
    env = os.environ | {"TRACKIO_DIR": str(place / "trackio")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, cwd=ROOT)
    rows = json.loads(done.stdout.splitlines()[-1])
    names = ("loss", "valid/perplexity")
    return {name: [(row["step"], row[name]) for row in rows if name in row] for name in names}


def trackio_rows() -> list[dict[str, Any]]:
    from trackio.sqlite_storage import SQLiteStorage

    (known,) = SQLiteStorage.get_runs("regard")
    rows: list[dict[str, Any]] = SQLiteStorage.get_logs("regard", known)
    return rows


READERS = {"tensorboard": of_tensorboard, "wandb": of_wandb, "mlflow": of_mlflow,
           "trackio": of_trackio}  # fmt: skip


def run_apart(place: Path, log: list[str], start: int, steps: int) -> None:
    """A run that goes on is another process, and libraries count on that."""
    code = f"from {__name__} import run, Path; run(Path({str(place)!r}), {log}, {start}, {steps})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "standard output is for results"


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_goes_on_in_the_same_record(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    run_apart(tmp_path, [name], 0, 4)
    run_apart(tmp_path, [name], 2, 5)  # it was killed after step 4, and its checkpoint is of step 2
    assert READERS[name](tmp_path) == EXPECTED


@pytest.mark.parametrize("name", NAMES)
def test_no_secret_is_logged(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name)
    monkeypatch.setenv("HF_TOKEN", "hidden-word")
    run(tmp_path, [name], 0, 2)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"hidden-word" not in file.read_bytes(), file


def test_secrets_are_left_out_and_nothing_else() -> None:
    public = without_secrets(RECIPE)
    assert public["engine"] == {"device": "cpu"}
    assert public["data"] == "https://example.org/text"
    assert (public["budget"], public["shape"]) == ({"tokens": 500}, {"width": 16})


def test_several_at_once_and_none(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run(tmp_path / "none", [], 0, 4)
    assert [file.name for file in (tmp_path / "none").iterdir()] == ["metrics.jsonl"]
    run(tmp_path / "twice", ["tensorboard", "tensorboard"], 0, 5)
    assert of_tensorboard(tmp_path / "twice") == EXPECTED


def test_a_recipe_names_its_loggers() -> None:
    assert make({"model": "gpt", "log": ["tensorboard"]}).log == ["tensorboard"]
    assert "log" not in make({"model": "gpt"}).table()


def test_unknown_and_missing_loggers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with refuses(UnknownName, "tensorbord", "tensorboard"):
        check_loggers(["tensorbord"])
    monkeypatch.setattr("regard.training.loggers.find_spec", lambda name: None)
    monkeypatch.setattr("regard.training.loggers.import_module", missing)
    with refuses(InputError, "wandb", "pip install 'regard[wandb]'"):
        check_loggers(["wandb"])
    with refuses(InputError, "pip install 'regard[board]'"):
        check_loggers(["tensorboard"])
    assert check_loggers(None) == []


def missing(name: str) -> Any:
    raise ImportError(f"No module named {name!r}")


def test_only_numbers_are_shown() -> None:
    record = {"step": 3, "loss": 1.5, "valid": {"accuracy": 1, "note": "x"}, "done": True}
    assert scalars(record) == [("loss", 1.5), ("valid/accuracy", 1.0)]
    assert os.environ.get("MLFLOW_TRACKING_URI") is None
