"""Tensor parallelism by PyTorch's DTensor plans: every process has a part of each large matrix.

Which part of a model is split, and how, stands on the card of its family (`tensor_plan`). Here each
word of a plan becomes a style: those of torch.distributed.tensor.parallel for plain matrices and
embeddings, and our own for what they do not know: the fused projection of queries, keys and values,
the vectors of a Score, and an output that never holds all logits.

Between the split matrices activations are plain tensors, so that kernels need not know of it.
Dropout inside a split part draws the mask of the whole and keeps its own part, so that the masks
are those of an unsplit model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

from regard.attention.attention import Attention, Kernel, Projection
from regard.attention.block import FeedForward
from regard.attention.dropout import Draw, keep_mask
from regard.attention.kernels import AttentionArgs
from regard.attention.linear import linear
from regard.attention.pattern import Pattern
from regard.core.errors import ConfigError
from regard.models.output import Output, SoftTarget
from regard.training.vocab_surprisal import split_surprisal

WHOLE = (Replicate(),)


def split(model: Any, mesh: DeviceMesh) -> None:
    """Splits a model over the processes of a mesh, by the plan on the card of its family."""
    check(model, mesh.size())
    output, tied = getattr(model, "output", None), None
    for name, (part, style) in planned(model).items():
        if isinstance(part, Output):
            continue
        parent, _, own = name.rpartition(".")
        same = isinstance(part, nn.Embedding) and part.weight is getattr(output, "weight", None)
        new = STYLES[style](part, mesh)
        setattr(model.get_submodule(parent), own, new)
        tied = new.weight if same else tied
    if isinstance(output, Output) and "output" in planned(model):
        model.output = SplitOutput(output, mesh, tied)
    draw = partial(drawn_part, mesh.get_local_rank(), mesh.size())
    for part in model.modules():
        if isinstance(part, Attention):
            part.kernel = partial(attend_own_heads, part.kernel, partial(draw, 1))
        elif isinstance(part, FeedForward):
            part.dropout.draw = partial(draw, -1)


def attend_own_heads(
    kernel: Kernel, draw: Draw, pattern: Pattern, q: Tensor, k: Tensor, v: Tensor,
    how: AttentionArgs,
) -> Tensor:  # fmt: skip
    """A kernel that draws the dropout of its heads as one process draws that of all."""
    return kernel(pattern, q, k, v, how._replace(draw=draw))


def planned(model: Any) -> dict[str, tuple[nn.Module, str]]:
    """Returns the parts that a model's plan names, by their names: (module, how it is split)."""
    plan: Mapping[str, str] = model.family.tensor_plan
    return {
        name: (part, style)
        for name, part in model.named_modules()
        for pattern, style in plan.items()
        if fnmatchcase(name, pattern)
    }


def check(model: Any, count: int) -> None:
    """Refuses a model that `count` processes cannot divide."""
    advice = f"choose engine.tensor=N with an N that divides it, not {count}"
    if model.extensions:
        raise ConfigError(
            f"engine.tensor is {count}, and the extension {next(iter(model.extensions))} cannot be "
            "split; leave one of them out"
        )
    for name, (part, style) in planned(model).items():
        if isinstance(part, Projection):
            for what, number in (("heads", part.heads), ("key/value heads", part.kv_heads)):
                if number % count:
                    raise ConfigError(f"{name} has {number} {what}; {advice}")
        elif isinstance(part, nn.Linear | nn.Embedding) and style in ("colwise", "rowwise"):
            size = part.weight.size(0 if style == "colwise" and part.weight.dim() == 2 else 1)
            size = part.weight.size(1) if isinstance(part, nn.Embedding) else size
            if size % count:
                raise ConfigError(f"{name} has a side of {size:,}; {advice}")
        elif isinstance(part, nn.Embedding):
            if part.num_embeddings < count:
                raise ConfigError(f"{name} has {part.num_embeddings} rows; {advice}")
            if part.padding_idx is not None:
                raise ConfigError(
                    f"engine.tensor is {count}, and {name} never learns its padding, which split "
                    "embeddings do not support; set shape.learns_padding=true"
                )


def check_dropout(model: Any, device: torch.device) -> None:
    """Refuses dropout inside split parts where its masks are drawn by a fused kernel: only on a CPU
    are they those of an unsplit model."""
    rates = [part.dropout for part in model.modules() if isinstance(part, Attention)]
    rates += [part.dropout.rate for part in model.modules() if isinstance(part, FeedForward)]
    if device.type != "cpu" and any(rates):
        raise ConfigError(
            f"engine.tensor needs its own random numbers for dropout inside split layers, which "
            f"{device.type} does not have; set the dropout of attention and feed-forward layers to "
            "0, such as shape.dropout_attention=0"
        )


def drawn_part(
    rank: int, count: int, dim: int, shape: torch.Size, rate: float, device: torch.device
) -> Tensor:
    """Draws the keep mask of the whole, and returns the part of this process along `dim`."""
    sizes = list(shape)
    sizes[dim] *= count
    return keep_mask(torch.Size(sizes), rate, device).chunk(count, dim)[rank].contiguous()


# -- how a part is split


def by_torch(style: Callable[[], ParallelStyle]) -> Callable[[nn.Module, DeviceMesh], nn.Module]:
    """Returns a function that splits a part by a style of torch. Every process has the same weights
    already, so none are sent."""

    def apply(part: nn.Module, mesh: DeviceMesh) -> nn.Module:
        return parallelize_module(part, mesh, style(), src_data_rank=None)

    return apply


def by_heads(part: nn.Module, mesh: DeviceMesh) -> nn.Module:
    if isinstance(part, Projection):
        return SplitProjection(part, mesh)
    for name, parameter in list(part.named_parameters(recurse=False)):
        part.register_parameter(name, dealt(parameter, mesh, parameter.dim() - 2))  # [.., H, D]
    part.register_forward_pre_hook(use_local)
    part.register_forward_hook(forget_local, always_call=True)
    return part


def use_local(part: nn.Module, inputs: Any) -> None:
    """Lets a module's forward see its own part of each parameter as a plain tensor."""
    for name, parameter in part.named_parameters(recurse=False):
        vars(part)[name] = local(parameter)


def forget_local(part: nn.Module, inputs: Any, output: Any) -> None:
    for name in part._parameters:
        vars(part).pop(name, None)


STYLES: dict[str, Callable[[nn.Module, DeviceMesh], nn.Module]] = {
    "heads": by_heads,
    "colwise": by_torch(ColwiseParallel),
    "rowwise": by_torch(RowwiseParallel),
    "shared": by_torch(partial(PrepareModuleInput, input_layouts=WHOLE,
                               desired_input_layouts=WHOLE)),
    "vocabulary": by_torch(partial(RowwiseParallel, input_layouts=Replicate())),
}  # fmt: skip


def dealt(parameter: Tensor, mesh: DeviceMesh, dim: int) -> nn.Parameter:
    """Returns a parameter that is split along one dimension."""
    parts = distribute_tensor(parameter.detach(), mesh, [Shard(dim)], src_data_rank=None)
    return nn.Parameter(parts, parameter.requires_grad)


def local(tensor: Any) -> Tensor:
    """Returns this process's part of a tensor, with its gradient."""
    part: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return part


def entering(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Returns x, whose gradient is the sum over the processes: each has split weights behind it."""
    whole = DTensor.from_local(x, mesh, WHOLE, run_check=False)
    return whole.to_local(grad_placements=[Partial()])


class SplitProjection(Projection):
    """The queries, keys and values of this process's heads.

    The rows of the whole matrix are stored in another `order`, the first process's queries, keys
    and values before those of the second, so that each process holds one stretch of them.
    """

    def __init__(self, whole: Projection, mesh: DeviceMesh) -> None:
        nn.Module.__init__(self)
        count = mesh.size()
        self.heads, self.kv_heads, self.size = (
            whole.heads // count, whole.kv_heads // count, whole.size,
        )  # fmt: skip
        self.in_features, self.out_features = whole.in_features, whole.out_features // count
        self.mesh, self.whole_parts = mesh, whole.parts()
        thirds = torch.arange(whole.out_features).split(self.whole_parts)
        stretches = zip(*(third.chunk(count) for third in thirds), strict=True)
        self.order = torch.cat([part for stretch in stretches for part in stretch])
        self.weight = dealt(whole.weight[self.order], mesh, 0)
        self.bias = None if whole.bias is None else dealt(whole.bias[self.order], mesh, 0)
        for new, old in ((self.weight, whole.weight), (self.bias, whole.bias)):
            if new is not None:
                new.requires_grad_(old.requires_grad)

    def rows(self, x: Tensor, start: int, end: int) -> Tensor:
        weight = local(self.weight)[start:end]
        bias = None if self.bias is None else local(self.bias)[start:end]
        return linear(entering(x, self.mesh), weight, bias)


class SplitOutput(Output):
    """An output of which every process computes the logits of its own words."""

    def __init__(self, whole: Output, mesh: DeviceMesh, tied: Any = None) -> None:
        nn.Module.__init__(self)
        self.weight = dealt(whole.weight, mesh, 0) if tied is None else tied
        self.bias: Tensor | None = None
        if isinstance(whole.bias, nn.Parameter):
            self.bias = dealt(whole.bias, mesh, 0)
        elif whole.bias is not None:
            del self.bias
            self.register_buffer("bias", whole.bias)
        self.scale, self.transform, self.mesh = whole.scale, whole.transform, mesh
        self.words = whole.weight.size(0)
        each = -(-self.words // mesh.size())
        self.first = min(each * mesh.get_local_rank(), self.words)  # as torch.chunk divides

    def parts(self) -> tuple[Tensor, Tensor | None]:
        """Returns the weights and the biases of this process's words."""
        weight, bias = local(self.weight), self.bias
        if bias is None or isinstance(bias, DTensor):
            return weight, None if bias is None else local(bias)
        return weight, bias[self.first : self.first + weight.size(0)]

    def forward(self, hidden: Tensor) -> Tensor:
        part = F.linear(entering(self.prepare(hidden), self.mesh), *self.parts())
        shape = torch.Size((*part.shape[:-1], self.words))
        stride = torch.empty(shape, device="meta").stride()
        logits = DTensor.from_local(
            part, self.mesh, [Shard(part.dim() - 1)], run_check=False, shape=shape, stride=stride
        )
        return logits.full_tensor()

    def surprisal(self, hidden: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        return self.softened(hidden, targets, None, shares)

    def softened(
        self,
        hidden: Tensor,
        targets: Tensor,
        soft: SoftTarget | None,
        shares: Tensor | None = None,
    ) -> Tensor:
        weight, bias = self.parts()
        place, group = targets - self.first, self.mesh.get_group()
        return split_surprisal(
            self.prepare(hidden), weight, bias, place, shares, soft, self.words, self.first, group
        )


# -- the order of rows in checkpoints


def orders_of(model: nn.Module) -> dict[str, Tensor]:
    """Returns the order of rows of every parameter that is stored in another one, by its names: a
    checkpoint has a layer of T5 under two."""
    return {
        f"{name}.{own}": part.order
        for name, part in model.named_modules(remove_duplicate=False)
        if isinstance(part, SplitProjection)
        for own, _ in part.named_parameters()
    }


class InOrder:
    """A split tensor whose contents are gathered in the order of an unsplit model."""

    def __init__(self, tensor: Any, order: Tensor) -> None:
        self.tensor, self.order = tensor, order

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)  # its shape, dtype, …, which no order changes

    def detach(self) -> InOrder:
        return self

    def full_tensor(self) -> Tensor:
        rows: Tensor = self.tensor.full_tensor()
        return torch.empty_like(rows).index_copy_(0, self.order.to(rows.device), rows)


def in_order(tensors: dict[str, Tensor], orders: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns tensors of the model, or of the optimizer ("name/key"), which are gathered in the
    order of an unsplit model."""
    return {
        name: InOrder(value, orders[of]) if stored_apart(value, orders.get(of)) else value
        for name, value in tensors.items()
        for of in [name.partition("/")[0]]
    }


def reordered(tensors: dict[str, Tensor], orders: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns whole tensors with their rows in the order in which a split model stores them."""
    return {
        name: value[orders[of]] if stored_apart(value, orders.get(of)) else value
        for name, value in tensors.items()
        for of in [name.partition("/")[0]]
    }


def stored_apart(value: Tensor, order: Tensor | None) -> bool:
    return order is not None and value.dim() > 0 and value.size(0) == len(order)
