"""Trains in one process or many, on PyTorch's own engines.

`torchrun` starts the processes and sets their ranks in the environment. An engine wraps the
training module; all engines have the same methods: `sync(last)` around each micro-batch, and
`average` after a step.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.core.errors import ConfigError
from regard.training.train_module import blocks

PATIENCE = timedelta(minutes=30)  # how long a process waits for the others
CALL = 5.0  # the seconds for which a process tries one address


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together."""

    rank: int = 0
    world: int = 1
    local: int = 0  # the rank on this machine
    tensor: int = 1  # so many neighboring processes hold one model together and read the same data

    @property
    def data_rank(self) -> int:
        """Which part of the data this process reads, of `data_world` parts."""
        return self.rank // self.tensor

    @property
    def data_world(self) -> int:
        return self.world // self.tensor

    def split(self, tensor: int | None) -> ProcessGroup:
        """Returns the same processes, of which every `tensor` hold a model together. A process that
        is alone holds the whole model."""
        if self.world == 1 or tensor is None:
            return self
        if tensor < 1 or self.world % tensor:
            raise ConfigError(
                f"engine.tensor is {tensor}, and there are {self.world} processes; start a number "
                "of processes that it divides, or choose another engine.tensor"
            )
        return replace(self, tensor=tensor)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Sums over all processes, in double precision."""
        if self.world == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=home())
        dist.all_reduce(tensor)
        return [float(x) for x in tensor.tolist()]

    def sum_data(self, values: list[float]) -> list[float]:
        """Sums what was computed from the data: processes that read the same count once."""
        return [value / self.tensor for value in self.sum(values)]

    def share(self, values: list[float]) -> list[float]:
        """Returns the values of the first process to all processes."""
        return self.sum(values if self.first else [0.0] * len(values))

    def gather(self, tensor: Tensor) -> Tensor:
        """Concatenates the tensors of all parts of the data along the first dimension."""
        if self.world == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts[:: self.tensor])

    def first_does(
        self,
        action: Callable[[], object],
        kind: type[Exception],
        others: Callable[[], object] = lambda: None,
    ) -> None:
        """Runs `action` in the first process and `others` in all others; if it fails, all fail."""
        failure: Exception | None = None
        try:
            action() if self.first else others()
        except kind as error:
            failure = error
        if self.sum([float(failure is not None)])[0]:
            raise failure or kind("the first process failed; its message says why")

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()


def home() -> torch.device:
    """Returns the device on which the processes exchange numbers."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def join(device: torch.device) -> ProcessGroup:
    """Joins the processes that torchrun started; without torchrun the process is alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        return ProcessGroup()
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            rank = int(os.environ["RANK"])
            store = meeting_point(rank, world)
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=world, timeout=PATIENCE
            )
        else:
            dist.init_process_group(backend, timeout=PATIENCE)
    return ProcessGroup(
        dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0"))
    )


def meeting_point(rank: int, world: int) -> dist.Store:
    """Returns a store of this start alone. torchrun's own store still holds what the processes of
    an earlier start wrote, and a process that reads it would connect to dead ones."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    board = dist.TCPStore(host, port, is_master=False, timeout=PATIENCE)
    if rank == 0:
        with socket.create_connection((host, port)) as line:
            here = line.getsockname()[0]  # the address at which the others can reach us
        store = dist.TCPStore(here, 0, world, is_master=True, wait_for_workers=False)
        board.set("regard", f"{here} {store.port}")
        return store
    while True:
        there, number = board.get("regard").decode().split()
        try:
            socket.create_connection((there, int(number)), CALL).close()
        except OSError:  # the address is of an earlier start; the new store is not up yet
            time.sleep(0.2)
        else:
            return dist.TCPStore(there, int(number), is_master=False, timeout=PATIENCE)


def is_joined() -> bool:
    return dist.is_initialized()


def leave(together: bool) -> None:
    """Leaves the process group. An orderly exit waits for the others and frees its tensors first:
    gloo's threads must not do so after Python has ended."""
    if not dist.is_initialized():
        return
    if together:
        dist.barrier()
        gc.collect()
    dist.destroy_process_group()


class SingleProcess:
    """The engine of a single process."""

    scale = 1  # the factor of the loss, because the engine divides the gradients by it
    sharded = False

    def __init__(self, learner: nn.Module, group: ProcessGroup) -> None:
        self.learner, self.group = learner, group
        self.module: Any = learner

    def sync(self, last: bool) -> AbstractContextManager[Any]:
        """Wraps a micro-batch; gradients are synchronized with the last one only."""
        return nullcontext()

    def average(self, step: int) -> None:
        """Runs after the optimizer's step."""

    def evaluator(self) -> Any:
        """Returns the module that a validation calls."""
        return self.learner


class DataParallel(SingleProcess):
    """DistributedDataParallel: every process has all weights, and gradients are averaged.

    With `find_unused_parameters` the buckets are never rebuilt after the first step, so that a
    resumed run adds its gradients in the same order as a run that never stopped. One parameter that
    really is unused keeps DDP from warning that there is none.
    """

    def __init__(self, learner: nn.Module, group: ProcessGroup) -> None:
        super().__init__(learner, group)
        self.scale = group.world
        learner.register_parameter("unused", nn.Parameter(torch.zeros((), device=home())))
        self.module = nn.parallel.DistributedDataParallel(
            learner, find_unused_parameters=True, gradient_as_bucket_view=True
        )

    def sync(self, last: bool) -> AbstractContextManager[Any]:
        quiet: AbstractContextManager[Any] = self.module.no_sync()
        return nullcontext() if last else quiet


class LocalSGD(DataParallel):
    """Post-local SGD (Lin et al. 2018) for slow networks: every process trains by itself, and the
    weights are averaged every few steps. The first steps are synchronous."""

    def __init__(self, learner: nn.Module, group: ProcessGroup, every: int, warmup: int) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as hooks
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

        super().__init__(learner, group)
        alone = [dist.new_group([rank]) for rank in range(group.world)][group.rank]
        self.hook = hooks.PostLocalSGDState(
            process_group=None,
            subgroup=alone,
            start_localSGD_iter=warmup,
            post_local_gradient_allreduce=False,
        )
        self.module.register_comm_hook(self.hook, hooks.post_localSGD_hook)
        self.averager = PeriodicModelAverager(period=every, warmup_steps=warmup)

    def average(self, step: int) -> None:
        self.averager.step = self.hook.iter = step  # a resumed run continues the count
        self.averager.average_parameters(self.learner.parameters())


class Sharded(SingleProcess):
    """FSDP2: weights, gradients and optimizer state are sharded over the processes.

    With `group.tensor`, neighboring processes first split each layer among themselves (tensor
    parallelism), and their parts are sharded over the processes that read other data.
    """

    sharded = True

    def __init__(self, learner: Any, group: ProcessGroup) -> None:
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        super().__init__(learner, group)
        self.scale = group.data_world
        sizes, names = (group.data_world, group.tensor), ("data", "tensor")
        both = dist.device_mesh.init_device_mesh(home().type, sizes, mesh_dim_names=names)
        mesh = both["data"]
        refuse_shared(learner.model)
        if group.tensor > 1:
            from regard.training.tensor_parallel import check_dropout, split

            check_dropout(learner.model, home())
            split(learner.model, both["tensor"])
            both._flatten("all")  # so that sums over both dimensions are one operation
            # gathering what is split twice takes two operations, and torch warns of each
            logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
        for block in blocks(learner.model):
            if hasattr(block, "cross"):  # it reads the source before its block is called
                project = fully_shard(block.cross.layer.project, mesh=mesh)
                for method in ("pairs", "queries"):
                    register_fsdp_forward_method(project, method)
            fully_shard(block, mesh=mesh)
        self.module = fully_shard(learner, mesh=mesh)

    def sync(self, last: bool) -> AbstractContextManager[Any]:
        self.module.set_requires_gradient_sync(last)
        return nullcontext()

    def evaluator(self) -> Any:
        return self.module


def refuse_shared(model: nn.Module) -> None:
    """Refuses a model whose layers share a parameter: FSDP would train a copy of it per layer."""
    owner: dict[int, Any] = {}
    for block in blocks(model):
        for name, parameter in block.named_parameters():
            if owner.setdefault(id(parameter), block) is not block:
                raise ConfigError(
                    f"several layers of this model share their {name}, which fsdp cannot keep the "
                    "same; set shape.untied=true, or engine.parallel=ddp"
                )


def engine(
    kind: str, learner: nn.Module, group: ProcessGroup, every: int, warmup: int
) -> SingleProcess:
    """Returns the engine that a recipe names."""
    if group.world == 1:
        return SingleProcess(learner, group)
    if group.tensor > 1 and kind != "fsdp":
        raise ConfigError(
            f"engine.tensor is {group.tensor}, which goes with fsdp alone; set engine.parallel=fsdp"
        )
    if kind == "ddp":
        return DataParallel(learner, group)
    if kind == "local-sgd":
        return LocalSGD(learner, group, every, warmup)
    if kind == "fsdp":
        return Sharded(learner, group)
    raise ConfigError(f"engine.parallel is {kind!r}; it must be ddp, fsdp or local-sgd")
