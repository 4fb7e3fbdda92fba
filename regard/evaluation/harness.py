"""Runs tasks of lm-evaluation-harness on a model: the extra `harness`.

The tasks are those of a directory with task files (YAML), or those that the library brings. Nothing
is downloaded unless it is asked for.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, InputError, UnknownName
from regard.core.files import make_directory, storing, write_json
from regard.evaluation.preflight import check_place
from regard.metrics.figures import jsonable

OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
RESULT, SAMPLES = "harness.json", "samples.json"


@dataclass(frozen=True)
class HarnessPlan:
    """What is asked of the harness."""

    tasks: Sequence[str]
    directory: Path | None = None  # of task files; None: the tasks that the library brings
    shots: int | None = None  # None: as many as the task says
    limit: int = 0  # examples of each task; 0: all
    seed: int = 0
    out: Path | None = None
    download: bool = False

    def place(self, run: str) -> Path:
        """Returns the directory of the results."""
        name = f"harness-{'-'.join(self.tasks)}"[:80].replace("/", "-")
        return self.out or (Path(run) if Path(run).is_dir() else Path()) / name


def run_harness(run: str, plan: HarnessPlan) -> dict[str, Any]:
    """Measures a model on tasks of the harness, and writes the figures and every answer."""
    if find_spec("lm_eval") is None:
        raise InputError(
            "--harness needs the library 'lm_eval', which is not installed; install it with: "
            "pip install 'regard[harness]'"
        )
    if plan.directory is not None and not plan.directory.is_dir():
        raise InputError(f"{plan.directory} is no directory; --harness-tasks names one with YAML")
    out = plan.place(run)
    check_place(out)
    began = time.monotonic()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    with offline(not plan.download), redirect_stdout(sys.stderr):  # the library prints
        from lm_eval.tasks import TaskManager

        manager = TaskManager(
            include_path=None if plan.directory is None else str(plan.directory),
            include_defaults=plan.directory is None,
        )
        for name in plan.tasks:
            if name not in manager.all_tasks:
                raise UnknownName("task of the harness", name, manager.all_tasks)
        results, model = evaluated(run, plan, manager)
    samples = results.pop("samples", {})
    result = {
        "task": "lm-evaluation-harness",
        "measure": model.measure,
        "harness": {name: figures(table) for name, table in results["results"].items()},
        "examples": {name: n["effective"] for name, n in results["n-samples"].items()},
        "versions": {"lm_eval": version("lm_eval"), **results.get("versions", {})},
        "shots": results.get("n-shot", {}),
        "limit": plan.limit, "seed": plan.seed, "model": run, "out": str(out),
        "notes": notes(model),
        "seconds": round(time.monotonic() - began, 3),
    }  # fmt: skip
    plain: dict[str, Any] = jsonable(result)
    with storing(out):
        make_directory(out)
    write_json(out / SAMPLES, jsonable(samples))
    write_json(out / RESULT, plain)
    return plain


def evaluated(run: str, plan: HarnessPlan, manager: Any) -> tuple[dict[str, Any], Any]:
    from lm_eval import simple_evaluate

    from regard.evaluation.harness_model import HarnessModel

    model = HarnessModel(run)
    try:
        results = simple_evaluate(
            model=model, tasks=list(plan.tasks), task_manager=manager, num_fewshot=plan.shots,
            limit=plan.limit or None, log_samples=True, bootstrap_iters=1000,
            random_seed=plan.seed, numpy_random_seed=plan.seed, torch_random_seed=plan.seed,
            fewshot_random_seed=plan.seed,
        )  # fmt: skip
    except (ConnectionError, FileNotFoundError, ValueError) as error:
        advice = "" if plan.download else "; --download lets it fetch what is not on this machine"
        raise ConfigError(f"the harness cannot run {', '.join(plan.tasks)}: {error}{advice}") from (
            error
        )
    assert results is not None  # only other processes of several get None
    return results, model


def figures(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the figures of a task with their standard errors, by name and filter."""
    rows: dict[str, dict[str, Any]] = {}
    for key, value in table.items():
        name, comma, kind = key.partition(",")
        if not comma or name.endswith("_stderr"):
            continue
        error = table.get(f"{name}_stderr,{kind}")
        label = name if kind == "none" else f"{name} ({kind})"
        rows[label] = {"value": value, "stderr": error if isinstance(error, float) else None}
    return rows


def notes(model: Any) -> list[str]:
    if model.filler is None:
        return []
    return [
        f"a {type(model.model).__name__} has no likelihoods: the scores are pseudo-log-likelihoods "
        "(each token hidden in turn), which cannot be compared with likelihoods"
    ]


@contextmanager
def offline(wanted: bool) -> Iterator[None]:
    """Keeps the libraries of Hugging Face from the network, whether they are imported already or
    not."""
    if not wanted:
        yield
        return
    before = {name: os.environ.get(name) for name in OFFLINE}
    os.environ.update(dict.fromkeys(OFFLINE, "1"))
    import datasets
    import huggingface_hub

    owners = (datasets.config, huggingface_hub.constants)
    states = [owner.HF_HUB_OFFLINE for owner in owners]
    for owner in owners:
        owner.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for owner, state in zip(owners, states, strict=True):
            owner.HF_HUB_OFFLINE = state
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
