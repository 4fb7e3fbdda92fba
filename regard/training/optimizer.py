"""Builds optimizers by name, and converts their state to named tensors."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.attention.native import library, passes
from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.training.recipe import Resolved
from regard.training.train_module import blocks

HIDDEN = "hidden"  # the name of the groups whose matrices Muon changes
UNDECAYED_RANK = 1  # norms and biases are vectors
DECAYED_VECTORS = {
    "query"
}  # XLNet's query vector stands for a word; its authors exclude only norms and biases


def groups_of(
    model: nn.Module, weight_decay: float, layer_decay: float = 1.0, hidden: Collection[Tensor] = ()
) -> list[dict[str, Any]]:
    """Returns the groups "decay" and "plain": norms and biases have no weight decay. The matrices
    in `hidden` form groups named "hidden", and decay.

    A group's learning rate is the schedule's times its `scale`. With layer decay, layer m of n has
    layer_decay to the power n - m, the embeddings are layer 0, and weights above the layers have
    the whole rate (Yang et al. 2019, table 8). Weights that are split over processes in different
    ways are in different groups, since torch does not compute with both at once.
    """
    scales: dict[int, float] = {}
    if layer_decay != 1.0:
        lower = levels(model)
        scales = {
            id(p): layer_decay ** (len(lower) - 1 - m)
            for m, level in enumerate(lower)
            for p in level
        }
    matrices = set(map(id, hidden))
    members: dict[tuple[str, float, int], list[Tensor]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            vector = p.dim() <= UNDECAYED_RANK and name.rpartition(".")[2] not in DECAYED_VECTORS
            kind = HIDDEN if id(p) in matrices else "plain" if vector else "decay"
            key = kind, scales.get(id(p), 1.0), mesh_of(p)
            members.setdefault(key, []).append(p)
    return [
        {
            "name": name,
            "params": params,
            "scale": scale,
            "weight_decay": weight_decay * (name != "plain"),
        }
        for (name, scale, _), params in sorted(members.items(), key=lambda kind: kind[0])
    ]


def mesh_of(tensor: Any) -> int:
    """Returns over how many dimensions of the processes a tensor is split: 0 if it is whole."""
    return tensor.device_mesh.ndim if hasattr(tensor, "device_mesh") else 0


NAMES = ("adam", "adamw", "bert-adam", "adafactor", "sgd", "muon")


class AdamW(torch.optim.AdamW):
    """torch's AdamW with the same state, by native code on a CPU; its next step takes the gradients
    `shrink` times, so clipping needs no pass of its own. Weights that are not fp32 on a CPU, or
    that are split, use torch's own step."""

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, **options)
        self.shrink = 1.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        shrink, self.shrink = self.shrink, 1.0
        weights = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        if not all(map(serves, weights)) or getattr(self, "found_inf", None) is not None:
            scale(weights, shrink)
            super().step()
            return
        for group in self.param_groups:
            learning = [p for p in group["params"] if p.grad is not None]
            if learning:
                self.update(learning, group, shrink)

    def update(self, weights: list[Tensor], group: dict[str, Any], shrink: float) -> None:
        states = [self.state[p] or self.begin(p) for p in weights]
        torch._foreach_add_([state["step"] for state in states], 1)
        (first, second), lr = group["betas"], float(group["lr"])
        steps = [float(state["step"]) for state in states]
        tensors: list[list[Any]] = [
            weights,
            [p.grad.contiguous() for p in weights if p.grad is not None],
            *([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq")),
        ]
        count = len(weights)
        pointers = ((ctypes.c_void_p * count)(*(t.data_ptr() for t in each)) for each in tensors)
        native: Any = library()
        native.adamw(
            *pointers,
            (ctypes.c_int64 * count)(*(p.numel() for p in weights)),
            (ctypes.c_float * count)(*(-lr / (1 - first**step) for step in steps)),
            (ctypes.c_float * count)(*(math.sqrt(1 - second**step) for step in steps)),
            ctypes.c_int64(count),
            *map(ctypes.c_float, (shrink, 1 - lr * group["weight_decay"], 1 - first)),
            *map(ctypes.c_float, (second, 1 - second, group["eps"])),
            torch.get_num_threads(),
        )

    def begin(self, p: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[p]
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        return state


def serves(weight: Tensor) -> bool:
    grad = weight.grad
    fp32 = grad is not None and grad.dtype == weight.dtype == torch.float32 and not grad.is_sparse
    return fp32 and weight.is_contiguous() and passes.serves(weight) and passes.serves(grad)  # type: ignore[arg-type]


def scale(weights: list[Tensor], shrink: float) -> None:
    grads = [p.grad for p in weights if p.grad is not None]
    if shrink != 1.0 and grads:
        torch._foreach_mul_(grads, shrink)


def optimizer(
    name: str,
    model: nn.Module,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    layer_decay: float = 1.0,  # a layer's rate is this factor times that of the layer above
    momentum: float = 0.0,  # for "sgd"
    products: torch.dtype | None = None,  # for "muon": dtype of its products; None: the weights'
    keep_zeros: bool = False,  # for "muon"; others do not move a weight without a gradient
) -> Optimizer:
    """Builds an optimizer; call it after the model has been moved or sharded.

    "adamw" decouples the decay from the gradient; "adam" has none. In Adafactor, `eps` is added to
    the squared gradient (T5: 1e-30). "muon" is for the matrices of the layers; all other weights
    get AdamW with the same learning rate, the `betas` and the `eps`.
    """
    check(name, lr, betas, eps, weight_decay)
    if not 0 < layer_decay <= 1:
        raise ConfigError(
            f"optimizer.layer_decay is {layer_decay:g}; it must be over 0 and at most 1"
        )
    own: Any = None
    if name not in ("adam", "adamw", "sgd"):
        import regard.training.own_optimizers as own
    parts = dict(own.hidden_matrices(model)) if name == "muon" else {}
    groups = groups_of(model, weight_decay, layer_decay, parts)
    if not groups:
        raise ConfigError("the model has no weight that learns; unfreeze at least one")
    fused = all(p.device.type in ("cpu", "cuda") for g in groups for p in g["params"])
    adamw = partial(AdamW, lr=lr, betas=betas, eps=eps, fused=fused)
    built: Optimizer
    if name == "bert-adam":
        built = own.BertAdam(groups, lr, betas, eps)
    elif name == "adafactor":
        built = own.Adafactor(groups, lr, eps)
    elif name == "sgd":
        built = torch.optim.SGD(groups, lr, momentum, foreach=True)
    elif name == "muon":
        orders = own.orders_of(model)
        built = own.Muon(
            groups, adamw, lr, parts, products=products, keep_zeros=keep_zeros, orders=orders
        )
    else:
        built = adamw(groups)
    return built


def check(
    name: str, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> None:
    if name not in NAMES:
        raise UnknownName("optimizer", name, NAMES)
    for what, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{what} is {value}; it must be a number of at least 0")
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ConfigError(f"betas are {list(betas)}; they are two numbers in [0, 1)")
    if name == "adam" and weight_decay:
        raise ConfigError(
            f"weight_decay is {weight_decay}, but adam has none; choose adamw, or set it to 0"
        )


def set_rate(optimizer: Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("scale", 1.0)


def clip(parameters: Iterable[Tensor], limit: float, optimizer: Any = None) -> float:
    """Clips the whole gradient to a norm of `limit` (0: no clipping); returns its norm before. An
    optimizer that can clip in its step is told the factor instead, and the gradient stays."""
    weights = [p for p in parameters if p.grad is not None]
    kinds = [
        [p for p in weights if mesh_of(p) == dims] for dims in sorted({*map(mesh_of, weights)})
    ]
    norms = [norm_of(kind) for kind in kinds]
    total = norms[0] if len(norms) == 1 else torch.stack(norms).norm() if norms else torch.zeros(())
    norm = float(total)
    within = limit <= 0 or norm + 1e-6 <= limit  # clipping would multiply all gradients by 1
    if hasattr(optimizer, "shrink") and not any(map(mesh_of, weights)):
        optimizer.shrink = 1.0 if within else float(limit / (total + 1e-6))
    elif not within:
        for kind in kinds:
            nn.utils.clip_grads_with_norm_(kind, limit, total, foreach=True)
    return norm


def norm_of(weights: list[Tensor]) -> Tensor:
    """Returns the norm of the gradients of weights that are split in the same way."""
    total: Any = nn.utils.get_total_norm(
        [p.grad for p in weights if p.grad is not None], foreach=True
    )
    whole: Tensor = total.full_tensor() if hasattr(total, "full_tensor") else total
    return whole


def state_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Returns the optimizer's own tensors, named "<parameter>/<key>"; they are not copies."""
    return {
        f"{name}/{key}": value
        for name, p in model.named_parameters()
        for key, value in optimizer.state.get(p, {}).items()
        if isinstance(value, Tensor)
    }


def load_state(optimizer: Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Restores the result of `state_tensors`, bit for bit; whole tensors are sharded if weights
    are.

    A weight that had no state, because it never had a gradient, has none afterwards.
    """
    by_name: dict[str, dict[str, Tensor]] = {}
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        by_name.setdefault(name, {})[key] = value
    allocate(optimizer)
    for name, p in model.named_parameters():
        values, state = by_name.pop(name, {}), optimizer.state.get(p, {})
        if not values:
            optimizer.state.pop(p, None)
            continue
        if values.keys() != state.keys():
            raise FormatError(
                f"the optimizer's state of {name} holds {', '.join(sorted(values))}; this one "
                f"expects {', '.join(sorted(state)) or 'none'}: another optimizer wrote it, so "
                "resume with that one"
            )
        for key, value in values.items():
            put(state[key], value, f"{name}/{key}")
    if by_name:
        raise FormatError(
            f"the optimizer's state has {next(iter(by_name))!r}, but the model has not; resume "
            "with the same model"
        )


def put(place: Any, value: Tensor, name: str) -> None:
    if place.shape != value.shape or place.dtype != value.dtype:
        raise FormatError(
            f"{name} is {value.dtype} of shape {list(value.shape)}; expected is "
            f"{place.dtype} of shape {list(place.shape)}"
        )
    if hasattr(place, "placements"):
        place.to_local().copy_(own_part(value, place))
    else:
        place.copy_(value)


def own_part(value: Tensor, place: Any) -> Tensor:
    """Returns the part of a whole tensor that this process stores of a sharded one. What tensor
    parallelism has split first, in the last dimension of the mesh, FSDP shards further."""
    mesh = place.device_mesh
    for dim in reversed(range(mesh.ndim)):
        placement = place.placements[dim]
        if hasattr(placement, "dim"):
            parts = value.chunk(mesh.size(dim), placement.dim)
            rank = mesh.get_local_rank(dim)
            value = parts[rank] if rank < len(parts) else value.narrow(placement.dim, 0, 0)
    return value


@torch.no_grad()
def allocate(optimizer: Optimizer) -> None:
    """Gives every weight its optimizer state before the first step, so that there are tensors to
    load into."""
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    grads, rates = [p.grad for p in weights], [group["lr"] for group in optimizer.param_groups]
    set_rate(optimizer, 0.0)
    for p in weights:
        p.grad = None
    for p in weights:
        before = p.clone()  # a step at rate 0 may still turn -0 into 0
        p.grad = torch.zeros_like(p)
        optimizer.step()
        p.copy_(before)
        p.grad = None
        for value in optimizer.state[p].values():
            if isinstance(value, Tensor):
                value.zero_()
    for p, grad in zip(weights, grads, strict=True):
        p.grad = grad
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


# -- which weights learn
#
# All, all but the lowest layers, or ever lower ones: the gradual unfreezing of ULMFiT (Howard and
# Ruder 2018, 3.3). What learns is a function of the step alone, so that a resumed run frees its
# layers when one that never stopped would have.

BOTTOM = {"embeddings", "tokens", "positions", "distances", "query"}  # parts below the layers
BETWEEN = ("encoder.norm.", "encoder_norm.")  # parts between the encoder and the decoder
BACKWARD = 2 / 3  # the share of a step's work in the backward pass


def levels(model: nn.Module) -> list[list[nn.Parameter]]:
    """Returns the weights from the bottom up: the embeddings, then each layer, an encoder's before
    a decoder's. Weights above the layers (heads, the last norm) always learn and are not listed.

    A weight that several layers share belongs to the lowest of them.
    """
    layers = layers_of(model)
    weights: list[list[nn.Parameter]] = [[] for _ in range(len(layers) + 1)]
    seen: set[int] = set()
    for place, layer in enumerate(layers, 1):
        for weight in layer.parameters():
            if id(weight) not in seen:
                seen.add(id(weight))
                weights[place].append(weight)
    config: Any = model.config
    for name, weight in model.named_parameters():
        if id(weight) in seen:
            continue
        if BOTTOM & set(name.split(".")[:2]):
            weights[0].append(weight)
        elif name.startswith(BETWEEN):
            weights[config.layers].append(weight)
    return weights


def layers_of(model: Any) -> list[nn.Module]:
    return blocks(model) or list(getattr(model, "layers", ()))  # an LSTM has no blocks


def freeze(config: Resolved, model: nn.Module) -> None:
    """Freezes the weights that never learn, before an optimizer or an engine exists, so that
    neither knows of them."""
    chosen = config.optimizer
    if chosen.keep_sparsity:
        hold_zeros(config.model, model)
    frozen = held(model, chosen.freeze_layers or 0)
    if not chosen.unfreeze_every:
        for weight in frozen:
            weight.requires_grad_(False)
    elif len(frozen) == len(list(model.parameters())):
        raise ConfigError(
            f"nothing stands above the {len(layers_of(model))} frozen layers that could learn; "
            f"choose optimizer.freeze_layers below {len(layers_of(model))}"
        )


def held(model: nn.Module, frozen: int) -> list[nn.Parameter]:
    """Returns the weights of the lowest `frozen` layers and the embeddings; none if it is 0."""
    return [weight for level in levels(model)[: frozen + 1 if frozen else 0] for weight in level]


def matrices_of(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yields the matrices of the layers, each once: no embeddings, no heads, no output."""
    seen: set[int] = set()
    for layer in layers_of(model):
        for name, value in layer.named_parameters():
            matrix = value.dim() == 2 and name.rpartition(".")[2].startswith("weight")
            if matrix and id(value) not in seen:
                seen.add(id(value))
                yield value


def hold_zeros(name: str, model: nn.Module) -> None:
    """Keeps pruned weights at zero. They get no gradient, and without one neither an optimizer nor
    weight decay moves a weight from 0."""
    matrices = list(matrices_of(model))
    known = not any(matrix.is_meta for matrix in matrices)
    if known and not any(bool((matrix == 0).any()) for matrix in matrices):
        raise ConfigError(
            f"optimizer.keep_sparsity keeps the zeros of {name}, but its layers have none; leave "
            "it out, or make some with 'regard prune --weights SHARE'"
        )
    for matrix in matrices:
        matrix.register_hook(partial(elsewhere, matrix))


def elsewhere(weight: Tensor, slope: Tensor) -> Tensor:
    """Returns the gradient with zeros where the weight is 0."""
    return slope.masked_fill(weight == 0, 0.0)


class GradualUnfreezing:
    """Called before each step, unfreezes the layers that are due, and at last the embeddings."""

    def __init__(self, model: nn.Module, frozen: int, every: int) -> None:
        self.levels = levels(model)[: frozen + 1]
        self.frozen, self.every = frozen, every
        self.free = -1  # the number of unfrozen levels, counted from the top

    def __call__(self, step: int) -> None:
        free = min(step // self.every, len(self.levels))
        if free == self.free:
            return
        self.free = free
        for place, level in enumerate(self.levels):
            for weight in level:
                weight.requires_grad_(place >= len(self.levels) - free)


def work(model: nn.Module) -> float:
    """Returns the share of a step's work that remains: no gradient flows through the layers below
    the lowest weight that learns."""
    layers = layers_of(model)
    learning = [any(p.requires_grad for p in layer.parameters()) for layer in layers]
    below = [*learning, True].index(True)
    return 1 - BACKWARD * below / len(layers)
