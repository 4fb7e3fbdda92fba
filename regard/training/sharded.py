"""Checkpoints of a model whose weights are dealt out over processes (FSDP2).

Every process writes its own part through `torch.distributed.checkpoint` with its safetensors
storage (the default storage is a pickle); any number of processes, or a plain model, reads them.
Only tensors with dimensions go there: numbers, such as the optimiser's steps and its groups, stand
in `sharded/scalars.json`, because that storage would write them in a way it cannot read.

All machines must see the run's directory.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor import empty as empty_dtensor

from regard.core.errors import StorageError
from regard.training.checkpoint import DTYPES, Checkpoints, Draft, Saved, digest

PARTS = "sharded"
SCALARS = f"{PARTS}/scalars.json"
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")  # what compiling and the like add to names
ALONE = "torch.distributed is disabled"  # said even when one process is what was asked for
TORCH = {name: dtype for dtype, name in DTYPES.items()}

T = TypeVar("T")
Box = tuple[Sequence[int], Sequence[int]]  # where a part begins, and its shape


def save_sharded(
    checkpoints: Checkpoints,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    facts: Mapping[str, Any],
    memory: Mapping[str, Tensor] | None = None,
    *,
    best: bool = False,
) -> Path:
    """All processes call it together; all get the path, or all a StorageError. `facts` and `memory`
    are those of the first process; `memory`, if any, is whole and a file of its own.
    """
    tensors, scalars = collected(model, optimizer)
    files = {} if memory is None else {"memory": memory}
    needed = sum(t.nbytes for one in (tensors, *files.values()) for t in one.values())
    ranks = Ranks.of(tensors)
    drafts: list[Draft] = []
    with ExitStack() as stack:

        def begin() -> Path:
            drafts.append(stack.enter_context(checkpoints.draft(step, needed, facts, best)))
            drafts[0].doing = "the parts of all processes"
            return drafts[0].path

        def finish() -> Path:
            draft = drafts[0]
            for parts in written:
                draft.files |= parts
            check_parts(path / PARTS, scalars["tensors"])
            draft.write_bytes(SCALARS, json.dumps(scalars).encode())
            for name, one in files.items():
                draft.write(name, one)
            return draft.finish()

        if ranks.rank > 0:
            stack.enter_context(plainly(step))
        path = ranks.first(begin)
        write_parts(tensors, path / PARTS, ranks)
        written = ranks.each(lambda: digests(path, ranks.rank))
        return ranks.first(finish)


def load_sharded(
    saved: Saved, model: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Fills a model, dealt out or whole, and its optimiser in place. How many processes wrote the
    checkpoint does not matter; where the model is dealt out, all call it together.
    """
    scalars = read_scalars(saved)
    held = named(model)
    targets = {f"model.{name}": tensor.detach() for name, tensor in held.items()}
    compare(saved, scalars, targets)
    groups = [] if optimizer is None else matched(saved, scalars["groups"], optimizer, held)
    states: dict[str, dict[str, Any]] = {name: {} for group, _ in groups for name in group}
    for key, value in scalars["tensors"].items():
        where, field, name = split(key)
        if where == "optimizer" and name in states:
            targets[key] = states[name][field] = room_for(value, held[name])
    for key in scalars["numbers"]:
        targets.pop(key, None)
    read_parts(saved, scalars, targets)
    for key, value in scalars["numbers"].items():
        where, field, name = split(key)
        if where == "model":
            held[name].data.fill_(value["value"])
        elif name in states:
            states[name][field] = number_from(value)
    if optimizer is not None:
        restore(optimizer, groups, held, states)


def latest_together(checkpoints: Checkpoints) -> Saved | None:
    """The newest intact checkpoint, the same one in every process; the first one looks for it."""
    mine: list[Saved] = []

    def look() -> Path | None:
        mine.extend(filter(None, [checkpoints.latest()]))
        return mine[0].path if mine else None

    path = Ranks.all().first(look)
    if mine or path is None:
        return mine[0] if mine else None
    return Saved.open(path, verify=False)


# -- processes that act together


@dataclass(frozen=True)
class Ranks:
    """Processes that write or read one checkpoint; what fails in one fails in all."""

    rank: int = 0
    world: int = 1

    @classmethod
    def all(cls) -> Ranks:
        return cls(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else cls()

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Ranks:
        """Those that hold the tensors: all if they are dealt out, else this one."""
        return cls.all() if any(isinstance(t, DTensor) for t in tensors.values()) else cls()

    def each(self, action: Callable[[], T]) -> list[T]:
        """What it gives in each process, for all of them."""
        if self.world == 1:
            return [action()]
        value, failure = None, None
        try:
            value = action()
        except Exception as error:
            failure = error
        said: list[Any] = [None] * self.world
        dist.all_gather_object(said, (value, failure and f"{failure}"))
        if failure is not None:
            raise failure
        for _, reason in said:
            if reason is not None:
                raise StorageError(reason)
        return [value for value, _ in said]

    def first(self, action: Callable[[], T]) -> T:
        """Done by the first process, for all of them."""
        return self.each(action if self.rank == 0 else lambda: None)[0]  # type: ignore[return-value]


@contextmanager
def plainly(step: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"step {step} cannot be saved: {error.strerror or error}") from error


def cause(error: CheckpointException) -> Exception:
    """The failure of the first process that had one."""
    _, (found, _) = min(error.failures.items())
    return found if isinstance(found, OSError) else StorageError(f"{type(found).__name__}: {found}")


# -- the parts on disk


def write_parts(tensors: dict[str, Tensor], directory: Path, ranks: Ranks) -> None:
    """Each process its own file, flushed."""
    writer = dcp.HuggingFaceStorageWriter(str(directory), save_distributed=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ALONE)
            dcp.save(dict(tensors), storage_writer=writer, no_dist=ranks.world == 1)
    except CheckpointException as error:
        raise cause(error) from error


def digests(path: Path, rank: int) -> dict[str, dict[str, Any]]:
    """Of the files this process wrote, by name."""
    mine = sorted((path / PARTS).glob(f"shard-{rank + 1:05d}-*.safetensors"))
    return {file.relative_to(path).as_posix(): digest(file) for file in mine}


def read_parts(saved: Saved, scalars: dict[str, Any], targets: dict[str, Tensor]) -> None:
    directory = saved.path / PARTS
    ranks = Ranks.of(targets)
    ranks.first(lambda: check_parts(directory, scalars["tensors"]))
    reader = dcp.HuggingFaceStorageReader(str(directory))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ALONE)
            dcp.load(dict(targets), storage_reader=reader, no_dist=ranks.world == 1)
    except CheckpointException as error:
        raise StorageError(f"{directory} cannot be read: {cause(error)}") from error


def check_parts(directory: Path, expected: Mapping[str, Mapping[str, Any]]) -> None:
    """Reads the headers back: every tensor must be there, of its kind, each number once."""
    boxes: dict[str, list[Box]] = {}
    for file in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as opened:
                begins = json.loads((opened.metadata() or {})["DCP_SHARDING_INFO"])
                for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                    part = opened.get_slice(name)
                    if name not in expected or part.get_dtype() != expected[name]["dtype"]:
                        raise StorageError(f"{file} holds {name}, which does not belong there")
                    box = begins[name]["saved_offsets"], part.get_shape()
                    boxes.setdefault(name, []).append(box)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{file} is damaged or cut short ({error})") from None
    for name, said in expected.items():
        if not covers(said["shape"], boxes.get(name, [])):
            raise StorageError(
                f"parts of {name} are missing in {directory}; the files of all processes must be "
                "there, and all machines must see the same directory"
            )


def covers(shape: Sequence[int], boxes: Sequence[Box]) -> bool:
    """Whether boxes fill a tensor, each cell of the grid that their edges make exactly once."""
    edges = [
        np.unique([0, size] + [x for o, n in boxes for x in (o[d], o[d] + n[d])])
        for d, size in enumerate(shape)
    ]
    if any(e[0] < 0 or e[-1] > size for e, size in zip(edges, shape, strict=True)):
        return False
    count = np.zeros([len(e) - 1 for e in edges], dtype=int)
    for begin, lengths in boxes:
        ends = zip(edges, begin, lengths, strict=True)
        count[tuple(slice(*np.searchsorted(e, [o, o + n])) for e, o, n in ends)] += 1
    return bool((count == 1).all())


# -- what a model and its optimiser hold


def named(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers themselves, a shared one under its first name. `state_dict` also
    brings back to its parts what a forward pass has left whole.
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            for wrapper in WRAPPERS:
                name = name.replace(wrapper, "")
            seen.add(id(tensor))
            found[name] = tensor
    return found


def collected(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors with dimensions, and everything else as JSON."""
    held = named(model)
    names = {id(tensor): name for name, tensor in held.items()}
    values: dict[str, Any] = {f"model.{name}": tensor.detach() for name, tensor in held.items()}
    for parameter, state in optimizer.state.items():
        for field, value in state.items():
            values[f"optimizer.{field}.{names[id(parameter)]}"] = value
    tensors = {k: v for k, v in values.items() if isinstance(v, Tensor) and v.dim() > 0}
    groups = [
        {"names": [names[id(p)] for p in group["params"]]}
        | {"values": {k: number(v) for k, v in group.items() if k != "params"}}
        for group in optimizer.param_groups
    ]
    scalars = {
        "world": Ranks.of(tensors).world,
        "tensors": {key: described(key, tensor) for key, tensor in tensors.items()},
        "numbers": {key: number(value) for key, value in values.items() if key not in tensors},
        "groups": groups,
    }
    return tensors, scalars


def described(key: str, tensor: Tensor) -> dict[str, Any]:
    if tensor.dtype not in DTYPES:
        raise StorageError(f"{key} holds {tensor.dtype}, which checkpoints do not store")
    found = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)}
    if not isinstance(tensor, DTensor):
        return found
    for placement in tensor.placements:
        if type(placement) not in (Shard, Replicate):
            raise StorageError(f"{key} is dealt out as {placement}, which checkpoints do not store")
    dims = [p.dim if isinstance(p, Shard) else None for p in tensor.placements]
    return found | {"dealt": dims}


def number(value: Any) -> dict[str, Any]:
    if not isinstance(value, Tensor):
        return {"value": value}
    whole = value.full_tensor() if isinstance(value, DTensor) else value
    return {"value": whole.item(), "dtype": DTYPES[value.dtype]}


def number_from(said: dict[str, Any]) -> Any:
    return (
        torch.tensor(said["value"], dtype=TORCH[said["dtype"]])
        if "dtype" in said
        else said["value"]
    )


def split(key: str) -> tuple[str, str, str]:
    """Of whom (model or optimizer), which field of the optimiser's state, of which parameter."""
    where, _, rest = key.partition(".")
    field, _, name = ("", "", rest) if where == "model" else rest.partition(".")
    return where, field, name


def read_scalars(saved: Saved) -> dict[str, Any]:
    try:
        return dict(json.loads((saved.path / SCALARS).read_bytes()))
    except FileNotFoundError:
        raise StorageError(
            f"{saved.path} was not written by a run of this kind: it has no {SCALARS}"
        ) from None


def compare(saved: Saved, scalars: dict[str, Any], targets: Mapping[str, Tensor]) -> None:
    """The model must be the one that was saved, in the same precision."""
    said = {k: (v["shape"], v["dtype"]) for k, v in scalars["tensors"].items()}
    said |= {k: ([], v.get("dtype")) for k, v in scalars["numbers"].items()}
    said = {k: v for k, v in said.items() if k.startswith("model.")}
    here = {k: (list(t.shape), DTYPES.get(t.dtype)) for k, t in targets.items()}
    for key in sorted(said.keys() | here.keys()):
        if said.get(key) != here.get(key):
            raise StorageError(
                f"{key.removeprefix('model.')} is {said.get(key, 'not')} in {saved.path} and "
                f"{here.get(key, 'not')} in the model; resume with the recipe it was saved with"
            )


Groups = list[tuple[list[str], dict[str, Any]]]


def matched(
    saved: Saved,
    groups: list[dict[str, Any]],
    optimizer: torch.optim.Optimizer,
    held: Mapping[str, Tensor],
) -> Groups:
    """The saved groups, which must be those of the optimiser."""
    names = {id(tensor): name for name, tensor in held.items()}
    here = [[names.get(id(p)) for p in group["params"]] for group in optimizer.param_groups]
    if here != [group["names"] for group in groups]:
        raise StorageError(
            f"the optimiser in {saved.path} has other groups of parameters than this one; "
            "resume with the recipe it was saved with"
        )
    return [(group["names"], group["values"]) for group in groups]


def room_for(said: dict[str, Any], parameter: Tensor) -> Tensor:
    """An empty tensor of the optimiser's state, dealt out as its parameter is."""
    dtype, shape = TORCH[said["dtype"]], torch.Size(said["shape"])
    if shape == parameter.shape:
        return torch.empty_like(parameter.detach(), dtype=dtype)
    if not isinstance(parameter, DTensor):
        return torch.empty(shape, dtype=dtype, device=parameter.device)
    mesh = parameter.device_mesh
    dims = said.get("dealt", [None] * mesh.ndim)
    placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
    return empty_dtensor(*shape, dtype=dtype, device_mesh=mesh, placements=placements)


def restore(
    optimizer: torch.optim.Optimizer,
    groups: Groups,
    held: Mapping[str, Tensor],
    states: Mapping[str, dict[str, Any]],
) -> None:
    optimizer.state.clear()
    for group, (names, values) in zip(optimizer.param_groups, groups, strict=True):
        for field, said in values.items():
            if isinstance(group.get(field), Tensor):  # the same tensor, for compiled steps
                group[field].fill_(said["value"])
            else:
                value = number_from(said)
                group[field] = tuple(value) if isinstance(group.get(field), tuple) else value
        beside = group.get("fused") or group.get("capturable")  # where steps are counted
        for name in names:
            home = held[name].device if beside else torch.device("cpu")
            for field, value in states[name].items():
                if isinstance(value, Tensor) and value.dim() == 0:
                    states[name][field] = value.to(home)
            if states[name]:
                optimizer.state[held[name]] = states[name]
