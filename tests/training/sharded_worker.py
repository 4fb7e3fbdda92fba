"""One of two processes that train a tiny model under FSDP2; started by test_sharded."""

from __future__ import annotations

import gc
import json
import resource
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from regard.core.errors import StorageError
from regard.methods.runs import data_for
from regard.training.checkpoint import Checkpoints
from regard.training.parallel import ProcessGroup
from regard.training.plan import prepare
from regard.training.progress import SilentProgress
from regard.training.run import TrainingRun
from tests.training.small import STILL, recipe

# The usual ε of Adafactor, 1e-30, lets the rounding of a gradient that is truly 0 (key biases) grow
OPTIMIZERS = {"adamw": 1e-8, "bert-adam": 1e-6, "adafactor": 1e-12, "muon": 1e-8}


def build(kind: str, directory: Path, out: Path) -> TrainingRun:
    """A run before its first step, in as many processes as there are."""
    joined = dist.is_initialized()
    group = ProcessGroup(dist.get_rank(), dist.get_world_size()) if joined else ProcessGroup()
    run_recipe = recipe(
        "gpt",
        directory / "data",
        shape=STILL["gpt"],
        optimizer={"name": kind, "eps": OPTIMIZERS[kind]},
        engine={"parallel": "fsdp", "precision": "fp64"},
    )
    watch = SilentProgress()
    plan = prepare(run_recipe, group, torch.device("cpu"), watch.note, data=data_for(run_recipe))
    return TrainingRun(plan, out, group, watch, "")


def learn(run: TrainingRun, steps: int) -> None:
    for _ in range(steps):
        run.loop.step(6)
    run.plan.batches.drop()


def everything(run: TrainingRun) -> dict[str, Tensor]:
    """Weights and the state of the optimizer as one process would have them."""
    files = run.loop.tensors()
    tensors = {f"{kind} {k}": v for kind, one in files.items() for k, v in one.items()}
    return {
        name: (value.full_tensor() if hasattr(value, "full_tensor") else value).clone()
        for name, value in tensors.items()
    }


def note(run: TrainingRun, file: Path) -> None:
    tensors = everything(run)
    if run.group.first:
        save_file(tensors, file)


def begin(directory: Path) -> None:
    """Learns, saves at step 3, goes on to step 6; then a save that fails in the first process."""
    for kind in OPTIMIZERS:
        run = build(kind, directory, directory / kind)
        learn(run, 3)
        with torch.no_grad():  # leaves weights whole
            batch = run.plan.objective.collate([run.plan.objective.get(0)])
            run.loop.engine.evaluator()(batch)
        run.save(best=True)
        note(run, directory / f"{kind}-3.safetensors")
        learn(run, 3)
        note(run, directory / f"{kind}-6.safetensors")
    if run.group.first:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**12, resource.RLIM_INFINITY))
    try:
        run.save()
        words = "saved"
    except StorageError as error:
        words = str(error)
    (directory / f"failure-{run.group.rank}.json").write_text(json.dumps(words))


def go_on(directory: Path) -> None:
    """Fresh processes go on from step 3, of two processes and of one; and refuse what is not
    whole.
    """
    for kind in OPTIMIZERS:
        for source in (kind, f"{kind}-alone"):
            run = build(kind, directory, directory / source)
            learn(run, 1)  # must leave no trace
            run.restore()
            assert run.loop.progress.step == 3
            learn(run, 3)
            note(run, directory / f"{source}-resumed.safetensors")
    run.checkpoints = Checkpoints(directory / "damaged" / "checkpoints")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run.newest()
            words = "loaded"
        except StorageError as error:
            words = str(error)
    heard = [str(w.message) for w in caught]
    (directory / f"damaged-{run.group.rank}.json").write_text(json.dumps([words, heard]))
    run.checkpoints = Checkpoints(directory / "nothing")
    assert run.newest() is None


if __name__ == "__main__":
    action, where, rank = sys.argv[1:]
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    store = Path(where) / f"store-{action}"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=2)
    {"begin": begin, "go_on": go_on}[action](Path(where))
    dist.barrier()
    gc.collect()  # tensors that are freed by gloo's threads after Python has ended abort it
    dist.destroy_process_group()
