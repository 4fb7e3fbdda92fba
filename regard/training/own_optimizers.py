"""Optimizers that torch lacks, or has in another form than the papers and our models need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.attention.attention import Projection
from regard.training.optimizer import HIDDEN, AdamW, layers_of, own_part, scale

MOMENTUM = 0.95
POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # a, b, c of aX + b(XXᵀ)X + c(XXᵀ)²X
ROUNDS = 5
SMALLEST = 1e-7  # the least norm in a division
LARGEST_BATCH = 2**21  # numbers; larger matrices gain nothing from a batch, and take memory
LONG = 2  # a matrix that is so many times longer than wide is multiplied less often by its Gram
EXACT = (torch.float32, torch.float64)  # dtypes in which small Gram matrices stay exact enough
MATCH = 0.2  # the root mean square of AdamW's steps, over its rate (Liu et al. 2025, 2.2)


class BertAdam(Optimizer):
    """Adam as BERT and XLNet use it: θ ← θ - rate · (m / (√v + ε) + decay · θ), without the bias
    correction that makes the first steps full-sized."""

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
    """Adafactor (Shazeer and Stern 2018) with T5's settings: no momentum, β₂ = 1 - t^-0.8, a second
    moment stored as one row and one column, updates of at most 1 (root mean square), and steps that
    grow with the weights they change.

    torch's own Adafactor caps the rate at 1 / √t, and puts its ε where a word that did not occur
    makes NaN.
    """

    SMALLEST, LARGEST, POWER = 1e-3, 1.0, -0.8  # least step scale, largest update, β₂'s power

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
    """Returns the root mean square."""
    y: Tensor = x.norm() / x.numel() ** 0.5
    return y


# -- Muon


def hidden_matrices(model: nn.Module) -> Iterator[tuple[Tensor, list[int]]]:
    """Yields each matrix of the layers once, with the row counts of the matrices that it holds: for
    a projection those of query, key and value, for an LSTM those of its gates. Embeddings, outputs
    and heads are not part of the layers."""
    seen: set[int] = set()
    for layer in layers_of(model):
        for part in layer.modules():
            if isinstance(part, nn.Linear):
                matrices = [part.weight]
                rows = [part.out_features]
                if isinstance(part, Projection):  # a split one stores the rows of all processes
                    rows = getattr(part, "whole_parts", None) or part.parts()
            elif isinstance(part, nn.RNNBase):
                matrices = [p for p in part.parameters() if p.dim() == 2]
                rows = [part.hidden_size] * (matrices[0].size(0) // part.hidden_size)
            else:
                continue
            for matrix in matrices:
                if id(matrix) not in seen:
                    seen.add(id(matrix))
                    yield matrix, rows


def orders_of(model: nn.Module) -> dict[Tensor, Tensor]:
    """Returns the order in which split projections store their rows, by their weights."""
    return {part.weight: part.order for part in model.modules() if hasattr(part, "whole_parts")}  # type: ignore[misc]


class Muon(Optimizer):
    """Muon (Jordan et al. 2024): the updates of matrices are orthogonal; all other weights use
    AdamW.

    The algorithm is that of `torch.optim.Muon`, bit for bit equal if products are in bf16. The
    class itself is not used, for three reasons: it treats a whole parameter as one matrix, but a
    projection holds three; its products are always in bf16, which without bf16 instructions is tens
    of times slower than fp32; and only torch 2.9 and later have it. Sharded weights are gathered,
    one matrix at a time.

    Matrices in groups named "hidden" use Muon, with Nesterov's momentum; the others AdamW.

    An update of a matrix has the root mean square of an AdamW update: 0.2 · √(larger side) times an
    orthogonal matrix. So one learning rate and one decay, tuned for AdamW, serve both (Liu et al.
    2025). The other convention, √(rows / columns) if above 1, needs a rate that grows with √width;
    at a width of 100 it is twice this one, so that 5e-3 suits small GPTs in both.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        others: Callable[[list[dict[str, Any]]], AdamW],
        lr: float,
        parts: Mapping[Tensor, list[int]],  # the row counts of the matrices in each parameter
        *,
        products: torch.dtype | None = None,  # the dtype of the iteration; None: the weights'
        keep_zeros: bool = False,  # whether zero weights stay; orthogonal steps would move them
        orders: Mapping[Tensor, Tensor] | None = None,  # of rows that are stored in another order
    ) -> None:
        super().__init__(groups, {"lr": lr})
        self.parts, self.products, self.keep_zeros = parts, products, keep_zeros
        self.orders = orders or {}
        self.hidden = [g for g in self.param_groups if g["name"] == HIDDEN]
        rest = [g for g in self.param_groups if g["name"] != HIDDEN]
        self.others = others(rest) if rest else None
        self.shrink = 1.0  # the next step takes the gradients so many times
        if self.others is not None:  # it shares our groups and our state
            self.others.param_groups, self.others.state = rest, self.state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        shrink, self.shrink = self.shrink, 1.0
        for group in self.hidden:
            weights = [p for p in group["params"] if p.grad is not None]
            scale(weights, shrink)
            whole = [p for p in weights if not hasattr(p, "placements")]
            sharded = [[p] for p in weights if hasattr(p, "placements")]
            for some in (whole, *sharded):
                if some:
                    self.change(some, group["lr"], group["weight_decay"])
        if self.others is not None:
            self.others.shrink = shrink
            self.others.step()

    def change(self, weights: list[Any], lr: float, decay: float) -> None:
        grads: Any = [p.grad for p in weights]
        for p in weights:
            if not self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        momenta = [self.state[p]["momentum_buffer"] for p in weights]
        torch._foreach_lerp_(momenta, grads, 1 - MOMENTUM)
        directions: Any = torch._foreach_lerp(grads, momenta, MOMENTUM)
        torch._foreach_mul_(weights, 1 - lr * decay)
        rows, sharded = [self.parts[p] for p in weights], getattr(weights[0], "placements", None)
        wholes, order = weights, self.orders.get(weights[0])  # weights with an order come alone
        if sharded is not None:
            wholes, directions = ([x.full_tensor() for x in xs] for xs in (weights, directions))
        if order is not None:
            back = order.argsort()
            wholes, directions = ([x[back] for x in xs] for xs in (wholes, directions))
        matrices = [m for p, sizes in zip(wholes, rows, strict=True) for m in p.split(sizes)]
        parts = [m for d, sizes in zip(directions, rows, strict=True) for m in d.split(sizes)]
        updates = all_orthogonal(parts, self.products or parts[0].dtype)
        for matrix, update in zip(matrices, updates, strict=True):
            if self.keep_zeros:
                update = update.masked_fill(matrix == 0, 0.0)
            matrix.add_(update, alpha=-lr * (MATCH * math.sqrt(max(matrix.shape))))
        if sharded is not None:
            whole = wholes[0] if order is None else wholes[0][order]
            weights[0].to_local().copy_(own_part(whole, weights[0]))


def all_orthogonal(matrices: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Makes each matrix orthogonal. Small ones of the same shape form batches, wide and tall ones
    alike: their products are so short that most of the time would be spent on calling them."""
    batches: dict[tuple[int, ...], list[list[int]]] = {}
    for place, matrix in enumerate(matrices):
        same = batches.setdefault(tuple(sorted(matrix.shape)), [[]])
        if same[-1] and (len(same[-1]) + 1) * matrix.numel() > LARGEST_BATCH:
            same.append([])
        same[-1].append(place)
    updates = list(matrices)
    for places in (places for same in batches.values() for places in same):
        wide = [m if m.size(0) <= m.size(1) else m.T for m in (matrices[i] for i in places)]
        for i, update in zip(places, orthogonal(torch.stack(wide), dtype), strict=True):
            updates[i] = update if matrices[i].size(0) <= matrices[i].size(1) else update.T
    return updates


def orthogonal(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Approximates U Vᵀ of each wide matrix U S Vᵀ by Newton-Schulz: singular values become 0.7 to
    1.2."""
    x = matrices.to(dtype)
    x = x / torch.stack([m.norm() for m in x])[:, None, None].clamp(min=SMALLEST)
    if dtype in EXACT and x.size(2) >= LONG * x.size(1):
        return by_grams(x)
    a, b, c = POLYNOMIAL
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def by_grams(x: Tensor) -> Tensor:
    """The same iteration for long matrices: each round multiplies x by a polynomial of its Gram
    matrix, so that all rounds need only the small Gram matrices."""
    a, b, c = POLYNOMIAL
    gram, product = x @ x.mT, None
    for left in reversed(range(ROUNDS)):
        step = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        step.diagonal(dim1=1, dim2=2).add_(a)
        product = step if product is None else step @ product
        if left:
            gram = step @ gram @ step
    assert product is not None
    return product @ x
