"""One of two processes that train a tiny model under FSDP2; started by test_sharded."""

from __future__ import annotations

import gc
import json
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import regard
from regard.core.errors import StorageError
from regard.training.checkpoint import Checkpoints
from regard.training.optimizer import Adafactor
from regard.training.sharded import latest_together, load_sharded, save_sharded

BATCH = 4
OPTIMIZERS = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=1e-2, fused=True),
    # its usual ε, 1e-30, lets the rounding of a gradient that is truly 0 (key biases) grow
    "adafactor": lambda groups: Adafactor(groups, lr=1e-2, eps=1e-12),
}


class Learner(nn.Module):
    """What FSDP2 wraps: the weights are whole only inside its forward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.model(rows[:, :-1]).flatten(0, 1)
        total: Tensor = self.model.output.surprisal(hidden, rows[:, 1:].flatten())
        return total / hidden.size(0)


def build(kind: str = "adamw", *, shard: bool = False) -> tuple[Learner, torch.optim.Optimizer]:
    torch.manual_seed(0)
    size = {"layers": 2, "width": 32, "heads": 2, "vocabulary": 63, "context": 16}
    still = {"dropout": 0.0, "dropout_attention": 0.0, "dropout_embedding": 0.0}
    model = regard.create("gpt2", **size, **still).double()
    learner = Learner(model)
    if shard:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(learner)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    return learner, OPTIMIZERS[kind](groups)


def learn(learner: Learner, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    """Steps `first` to `last`, each on rows that follow from its number."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    for step in range(first, last):
        rows = torch.randint(63, (BATCH, 16), generator=torch.Generator().manual_seed(step))
        mine = rows[rank::world]
        optimizer.zero_grad()
        learner(mine).backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * 0.9


def whole(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights and optimiser state as one process would have them."""
    names = {p: name for name, p in model.named_parameters()}
    found = {name: p.detach() for p, name in names.items()}
    for parameter, state in optimizer.state.items():
        found |= {f"{key} of {names[parameter]}": value for key, value in state.items()}
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).clone()
        for name, value in found.items()
    }


def note(out: Path, name: str, tensors: dict[str, Tensor]) -> None:
    if dist.get_rank() == 0:
        save_file(tensors, out / f"{name}.safetensors")


def begin(out: Path) -> None:
    """Learns, saves at step 3, goes on to step 6; then a save that fails in one process."""
    for kind in OPTIMIZERS:
        checkpoints = Checkpoints(out / kind)
        learner, optimizer = build(kind, shard=True)
        learn(learner, optimizer, 0, 3)
        with torch.no_grad():
            learner(torch.zeros(2, 5, dtype=torch.long))  # leaves weights whole
        memory = {"hidden.0": torch.arange(6.0)}
        save_sharded(checkpoints, 3, learner.model, optimizer, {"loss": 0.5}, memory, best=True)
        note(out, f"{kind}-3", whole(learner.model, optimizer))
        learn(learner, optimizer, 3, 6)
        note(out, f"{kind}-6", whole(learner.model, optimizer))
    if dist.get_rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**15, resource.RLIM_INFINITY))
    try:
        save_sharded(Checkpoints(out / "adamw"), 6, learner.model, optimizer, {})
        said = "saved"
    except StorageError as error:
        said = str(error)
    (out / f"failure-{dist.get_rank()}.json").write_text(json.dumps(said))


def go_on(out: Path) -> None:
    """Fresh processes go on from step 3, of two processes and of one; and refuse what is not
    whole.
    """
    for kind in OPTIMIZERS:
        for source in (kind, f"{kind}-alone"):
            saved = latest_together(Checkpoints(out / source))
            assert saved is not None and saved.step == 3
            learner, optimizer = build(kind, shard=True)
            learn(learner, optimizer, 90, 91)  # must leave no trace
            load_sharded(saved, learner.model, optimizer)
            learn(learner, optimizer, 3, 6)
            note(out, f"{source}-resumed", whole(learner.model, optimizer))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            latest_together(Checkpoints(out / "damaged"))
            said = "loaded"
        except StorageError as error:
            said = str(error)
    heard = [str(w.message) for w in caught]
    (out / f"damaged-{dist.get_rank()}.json").write_text(json.dumps([said, heard]))
    assert latest_together(Checkpoints(out / "nothing")) is None


if __name__ == "__main__":
    action, directory, rank = sys.argv[1:]
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    store = Path(directory) / f"store-{action}"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=2)
    {"begin": begin, "go_on": go_on}[action](Path(directory))
    dist.barrier()
    gc.collect()  # tensors that are freed by gloo's threads after Python has ended abort it
    dist.destroy_process_group()
