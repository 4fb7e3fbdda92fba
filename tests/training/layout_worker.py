"""Measures what a step of a small model really needs: bytes of weights, gradients, optimizer state
and activations, and bytes that are sent. test_layouts compares them with `regard plan`'s formulas.

    torchrun --nproc-per-node 4 tests/training/layout_worker.py OUT RECIPE.toml…
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from regard.methods.runs import data_for
from regard.training import recipe as recipes
from regard.training.layout_costs import ring
from regard.training.parallel import join, leave
from regard.training.plan import extent, prepare
from regard.training.train_module import autocast

SMALL = 1024  # bytes: sums of losses, counts and norms, which are no activations


class SentBytes(TorchDispatchMode):
    """Counts the bytes that this process sends in collectives, if these run in rings: FSDP gathers
    weights and scatters gradients, and tensor parallelism sums activations."""

    def __init__(self, data: int, tensor: int) -> None:
        super().__init__()
        self.data, self.parts = data, tensor
        self.sharding = self.tensor = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional"):
            tensors = [t for t in tree_leaves((args, out)) if isinstance(t, torch.Tensor)]
            largest = max((t.nbytes for t in tensors), default=0)
            name = func._overloadpacket.__name__
            if "gather" in name or "scatter" in name:
                self.sharding += largest * ring(self.data)
            elif "reduce" in name and largest > SMALL:
                self.tensor += 2 * largest * ring(self.parts)
        return out


def plain(tensor: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in memory that a DTensor or an unfinished sum stands for; its own storage
    has a size, but no memory."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from plain(getattr(tensor, name))
    elif isinstance(tensor, torch.Tensor):
        yield tensor


class LiveStorages(TorchDispatchMode):
    """Knows the memory that operations have returned, and keeps none of it alive."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            for part in plain(tensor):
                ref = StorageWeakRef(part.untyped_storage())
                self.storages[ref.cdata] = ref
        return out

    def nbytes(self) -> int:
        storages = (torch.UntypedStorage._new_with_weak_ptr(key) for key in self.storages)
        return sum(storage.nbytes() for storage in storages if storage is not None)


def kept_bytes(loop: Any, batch: Any) -> int:
    """Returns the bytes that a forward pass has left alive at its end, with what autocast keeps.
    The allocator's own record would not do: what a thread of a message frees is missing in it."""
    live = LiveStorages()
    with live, autocast(loop.device, loop.precision):
        parts, _ = loop.engine.module(batch, loop.states[0])
        gc.collect()
        torch.distributed.barrier()  # all messages have arrived
        alive = live.nbytes()
    loop.total(parts, dict.fromkeys(parts, 1.0)).backward()
    return alive


def measured(file: Path) -> dict[str, Any]:
    group = join(torch.device("cpu"))
    recipe = recipes.make(recipes.read(file))
    plan = prepare(recipe, group, torch.device("cpu"), lambda text: None, data=data_for(recipe))
    loop, group = plan.loop, plan.loop.group
    loop.optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
    mode = SentBytes(group.data_world, group.tensor)
    loop.begin_epoch(0)
    with mode:
        loop.step(1)
    model = loop.model
    tensors = [p for p in model.parameters() if p.requires_grad and p.dim() > 0]
    states = [v for p in tensors for v in loop.optimizer.state[p].values() if torch.is_tensor(v)]
    grads = [p.grad for p in tensors if p.grad is not None]
    own = [getattr(t, "to_local", lambda t=t: t)() for t in [*tensors, *grads, *states]]
    facts = {"states": sum(t.nbytes for t in own if t.dim() > 0)}
    for p in tensors:
        p.grad = None
    loop.engine.sync(True).__enter__()
    batch = plan.batches.make(1)[0]
    plan.batches.close()
    kept_bytes(loop, batch)
    facts["kept"] = kept_bytes(loop, batch)
    facts["sharding"], facts["tensor"] = mode.sharding, mode.tensor
    facts |= {
        "targets": extent(model, plan.objective)["targets"],
        "longest": plan.objective.longest,
    }
    return facts


def main() -> None:
    torch.set_num_threads(1)
    out, *files = map(Path, sys.argv[1:])
    group = join(torch.device("cpu"))
    facts = {file.stem: measured(file) for file in files}
    if group.first:
        out.write_text(json.dumps(facts))
    leave(together=True)


if __name__ == "__main__":
    main()
