"""From hidden states to the vocabulary, and how surprising a target is.

Logits are made only where there is a target, and only a few rows at a time: for a large vocabulary
that is worth more than any kernel. The gradient is taken in the same pass, so a chunk of logits
never lives twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.precision import working_dtype

CHUNK = 2**25  # logits in memory at a time
ALIGNED = 64  # a row of logits begins at a multiple: products into other rows are a third slower


class Surprisal(torch.autograd.Function):
    """Σ weight · -log softmax(hidden Wᵀ + b)[target], chunk by chunk, with its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # [N, d]
        weight: Tensor,  # [V, d]
        bias: Tensor | None,  # [V]
        targets: Tensor,  # [N]
        shares: Tensor | None,  # [N]: how much each target counts
        learn: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        exact = torch.promote_types(dtype, torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):
            table, words = weight.to(dtype), weight.size(0)
            offset = None if bias is None else bias.to(dtype)
            total = torch.zeros((), dtype=exact, device=hidden.device)
            grads = [None if t is None else torch.zeros_like(t) for t in (hidden, weight, bias)]
            grad_hidden, grad_weight, grad_bias = grads if learn else [None] * 3
            rows = min(max(1, CHUNK // words), hidden.size(0))
            room = table.new_empty(rows, -(-words // ALIGNED) * ALIGNED)  # the same for all chunks
            sure = room if dtype == exact else torch.empty_like(room, dtype=exact)
            part = torch.empty_like(table) if learn and dtype != weight.dtype else None
            for start in range(0, hidden.size(0), max(rows, 1)):
                chosen = slice(start, start + rows)
                h, target = hidden[chosen].to(dtype), targets[chosen, None]
                share = None if shares is None else shares[chosen, None].to(exact)
                scores, log_p = room[: h.size(0)], sure[: h.size(0)]
                scores[:, words:] = -torch.inf
                product(h, table.mT, offset, scores[:, :words])
                torch.log_softmax(log_p.copy_(scores), -1, out=log_p)
                found = log_p.gather(1, target)
                total -= (found if share is None else found * share).sum()
                if grad_hidden is None or grad_weight is None:
                    continue
                grad = log_p.exp_().scatter_add_(1, target, torch.full_like(found, -1.0))
                grad = grad if share is None else grad.mul_(share)
                grad = (grad if dtype == exact else scores.copy_(grad))[:, :words]
                grad_hidden[chosen] = grad @ table
                if part is None:
                    grad_weight.addmm_(grad.mT, h)
                else:
                    grad_weight += torch.mm(grad.mT, h, out=part)
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
            ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
            return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if g is None else g.mul_(grad.to(g.dtype)) for g in ctx.saved_tensors]
        return (*scaled, None, None, None, None)  # in place: a second backward is refused


def product(h: Tensor, table: Tensor, offset: Tensor | None, out: Tensor) -> None:
    """h · table + offset, into `out`."""
    if offset is None:
        torch.mm(h, table, out=out)
    else:
        torch.addmm(offset, h, table, out=out)


def surprisal(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    shares: Tensor | None = None,
) -> Tensor:
    """The summed surprisal of the targets, in nats."""
    taught = [t for t in (hidden, weight, bias) if t is not None and t.requires_grad]
    learn = torch.is_grad_enabled() and bool(taught)
    if torch.compiler.is_compiling():  # which plans its own memory
        each = F.cross_entropy(F.linear(hidden, weight, bias).float(), targets, reduction="none")
        return (each if shares is None else each * shares).sum()
    total: Tensor = Surprisal.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, targets, shares, learn, working_dtype(hidden)
    )
    return total


class Output(nn.Module):
    """Logits = transform(hidden) · scale · Wᵀ + b; W is usually the embedding itself."""

    def __init__(
        self,
        weight: Tensor,
        *,
        bias: str = "none",  # "learned"; "fixed": given with the weights and never trained
        scale: float = 1.0,
        transform: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.bias: Tensor | None = None
        if bias == "learned":
            self.bias = nn.Parameter(torch.zeros(weight.size(0)))
        elif bias == "fixed":
            del self.bias
            self.register_buffer("bias", torch.zeros(weight.size(0)))
        self.scale = scale
        self.transform = nn.Identity() if transform is None else transform

    def prepare(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.transform(hidden)
        return y if self.scale == 1.0 else y * self.scale

    def forward(self, hidden: Tensor) -> Tensor:
        return F.linear(self.prepare(hidden), self.weight, self.bias)

    def surprisal(self, hidden: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        """Summed over the targets [N] of the rows `hidden` [N, width]."""
        return surprisal(self.prepare(hidden), self.weight, self.bias, targets, shares)

    def each(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The surprisal of every single target [N], without gradient."""
        with torch.no_grad():
            rows = max(1, CHUNK // self.weight.size(0))
            parts = zip(hidden.split(rows), targets.split(rows), strict=True)
            return torch.cat(
                [F.cross_entropy(self(h).float(), t, reduction="none") for h, t in parts]
            )
