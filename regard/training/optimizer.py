"""Optimisers by name, what their papers set them to, and their state as named tensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.training.freezing import levels
from regard.training.muon import HIDDEN, Muon, hidden_matrices

UNDECAYED_RANK = 1  # norms and biases are vectors
DECAYED_VECTORS = {
    "query"
}  # XLNet's stands for a word: its authors leave out norms and biases only


class BertAdam(Optimizer):
    """Adam as BERT and XLNet have it: θ ← θ - rate · (m / (√v + ε) + decay · θ), without the
    correction that makes the first steps full-sized.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            for p in weights:
                if not self.state[p]:
                    self.state[p] = {"mean": torch.zeros_like(p), "square": torch.zeros_like(p)}
            grads = [p.grad for p in weights]
            mean, square = ([self.state[p][k] for p in weights] for k in ("mean", "square"))
            first, second = group["betas"]
            torch._foreach_lerp_(mean, grads, 1 - first)
            torch._foreach_mul_(square, second)
            torch._foreach_addcmul_(square, grads, grads, 1 - second)
            root = torch._foreach_sqrt(square)
            torch._foreach_add_(root, group["eps"])
            if group["weight_decay"]:
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_addcdiv_(weights, mean, root, -group["lr"])


class Adafactor(Optimizer):
    """Shazeer and Stern 2018, as T5 sets it: no mean, β₂ = 1 - t^-0.8, a second moment kept as one
    row and one column, updates of at most 1 (root mean square), and steps that grow with the
    weights they change.

    torch's own caps the rate at 1 / √t, and puts its ε where a word that did not occur makes NaN.
    """

    SMALLEST, LARGEST, POWER = 1e-3, 1.0, -0.8  # scale of a step, size of an update, of β₂

    def __init__(self, params: Any, lr: float, eps: float) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.change(p, p.grad, group)

    def change(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p] or self.begin(p)
        state["step"] += 1
        new = float(state["step"]) ** self.POWER
        square = grad * grad + group["eps"]
        if grad.dim() < 2:
            update = state["square"].lerp_(square, new).rsqrt()
        else:
            row = state["row"].lerp_(square.mean(-1, keepdim=True), new)
            column = state["column"].lerp_(square.mean(-2, keepdim=True), new)
            update = (row / row.mean(-2, keepdim=True)).rsqrt() * column.rsqrt()
        update *= grad
        size = group["lr"] * size_of(p).clamp_min(self.SMALLEST)
        step = size / (size_of(update) / self.LARGEST).clamp_min(1.0)
        if group["weight_decay"]:
            p -= p * (size * group["weight_decay"])
        p -= update.mul_(step)

    def begin(self, p: Tensor) -> dict[str, Tensor]:
        state = self.state[p]
        state["step"] = torch.tensor(0.0)
        if p.dim() < 2:
            state["square"] = torch.zeros_like(p)
        else:
            state["row"] = p.new_zeros(*p.shape[:-1], 1)
            state["column"] = p.new_zeros(*p.shape[:-2], 1, p.shape[-1])
        return state


def size_of(x: Tensor) -> Tensor:
    """Root mean square."""
    y: Tensor = x.norm() / x.numel() ** 0.5
    return y


def groups_of(
    model: nn.Module, decay: float, fall: float = 1.0, hidden: Collection[Tensor] = ()
) -> list[dict[str, Any]]:
    """ "decay" and "plain": norms and biases are not pulled towards zero. The matrices in `hidden`
    stand in groups of this name, and decay.

    A group's rate is the schedule's times its `scale`. Where rates fall, layer m of n has fall to
    the power n - m, the embeddings are layer 0, and what stands on top has the whole rate (Yang et
    al. 2019, table 8).
    """
    scales: dict[int, float] = {}
    if fall != 1.0:
        lower = levels(model)
        scales = {
            id(p): fall ** (len(lower) - 1 - m) for m, level in enumerate(lower) for p in level
        }
    matrices = set(map(id, hidden))
    found: dict[tuple[str, float], list[Tensor]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            vector = p.dim() <= UNDECAYED_RANK and name.rpartition(".")[2] not in DECAYED_VECTORS
            kind = HIDDEN if id(p) in matrices else "plain" if vector else "decay"
            found.setdefault((kind, scales.get(id(p), 1.0)), []).append(p)
    return [
        {"name": name, "params": params, "scale": scale, "weight_decay": decay * (name != "plain")}
        for (name, scale), params in sorted(found.items(), key=lambda kind: kind[0])
    ]


NAMES = ("adam", "adamw", "bert-adam", "adafactor", "sgd", "muon")


def optimizer(
    name: str,
    model: nn.Module,
    *,
    rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    decay: float = 0.0,
    fall: float = 1.0,  # the rate of a layer, times that of the one above it
    momentum: float = 0.0,  # of "sgd"
    products: torch.dtype | None = None,  # of "muon": what it multiplies in; None: as the weights
    keep_zeros: bool = False,  # of "muon": the others leave a weight without a gradient as it is
) -> Optimizer:
    """Build it after the model has been moved or sharded.

    "adamw" decouples the decay from the gradient; "adam" has none. Of Adafactor, `epsilon` is what
    is added to the squared gradient (T5: 1e-30). "muon" is for the matrices of the layers, with
    AdamW of the same rate, the `betas` and the `epsilon` for all other weights.
    """
    check(name, rate, betas, epsilon, decay)
    if not 0 < fall <= 1:
        raise ConfigError(f"optimizer.fall is {fall:g}; it must be over 0 and at most 1")
    parts = dict(hidden_matrices(model)) if name == "muon" else {}
    groups = groups_of(model, decay, fall, parts)
    if not groups:
        raise ConfigError("the model has no weight that learns; free at least one")
    made: Optimizer
    if name == "bert-adam":
        made = BertAdam(groups, rate, betas, epsilon)
    elif name == "adafactor":
        made = Adafactor(groups, rate, epsilon)
    elif name == "sgd":
        made = torch.optim.SGD(groups, rate, momentum, foreach=True)
    else:
        fused = all(p.device.type in ("cpu", "cuda") for g in groups for p in g["params"])
        adamw = partial(torch.optim.AdamW, lr=rate, betas=betas, eps=epsilon, fused=fused)
        if name == "muon":
            made = Muon(groups, adamw, rate, parts, products=products, keep_zeros=keep_zeros)
        else:
            made = adamw(groups)
    return made


def check(name: str, rate: float, betas: tuple[float, float], epsilon: float, decay: float) -> None:
    if name not in NAMES:
        raise UnknownName("optimizer", name, NAMES)
    for what, value in (("rate", rate), ("epsilon", epsilon), ("decay", decay)):
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{what} is {value}; it must be a number of at least 0")
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise ConfigError(f"betas are {list(betas)}; they are two numbers in [0, 1)")
    if name == "adam" and decay:
        raise ConfigError(f"adam has no weight decay, and {decay} was asked for; choose adamw")


def set_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("scale", 1.0)


def clip(parameters: Iterable[Tensor], limit: float) -> float:
    """Shortens the whole gradient to a norm of at most `limit` (0: as it is); its norm before."""
    held = list(parameters)
    total = nn.utils.get_total_norm([p.grad for p in held if p.grad is not None], foreach=True)
    total = total.full_tensor() if hasattr(total, "full_tensor") else total
    norm = float(total)
    if limit > 0 and not norm + 1e-6 <= limit:  # else a pass over all gradients, times 1
        nn.utils.clip_grads_with_norm_(held, limit, total, foreach=True)
    return norm


def state_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's own tensors, named "<parameter>/<key>"; not copies."""
    return {
        f"{name}/{key}": value
        for name, p in model.named_parameters()
        for key, value in optimizer.state.get(p, {}).items()
        if isinstance(value, Tensor)
    }


def load_state(optimizer: Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Puts back what `state_tensors` gave, bit for bit; whole tensors are cut for sharded weights.

    A weight that had no state, because it has had no gradient, has none afterwards.
    """
    given: dict[str, dict[str, Tensor]] = {}
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition("/")
        given.setdefault(name, {})[key] = value
    allocate(optimizer)
    for name, p in model.named_parameters():
        values, held = given.pop(name, {}), optimizer.state.get(p, {})
        if not values:
            optimizer.state.pop(p, None)
            continue
        if values.keys() != held.keys():
            raise FormatError(
                f"the optimiser's state of {name} holds {', '.join(sorted(values))}; this one "
                f"expects {', '.join(sorted(held)) or 'none'}: was it another optimiser?"
            )
        for key, value in values.items():
            put(held[key], value, f"{name}/{key}")
    if given:
        raise FormatError(f"the optimiser's state has {next(iter(given))!r}, the model has not")


def put(place: Any, value: Tensor, name: str) -> None:
    if place.shape != value.shape or place.dtype != value.dtype:
        raise FormatError(
            f"{name} is {value.dtype} of shape {list(value.shape)}; expected is "
            f"{place.dtype} of shape {list(place.shape)}"
        )
    if hasattr(place, "placements") and not hasattr(value, "placements"):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(place.device), place.device_mesh, place.placements)
    place.copy_(value)


@torch.no_grad()
def allocate(optimizer: Optimizer) -> None:
    """Gives every weight the state it has before the first step: something to load into."""
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
