"""The loss of an output whose words are divided among processes.

`loss_parallel` of torch computes the same from logits of all rows; here, as in `Surprisal`, logits
exist for a few rows at a time, and the softer losses are there, too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regard.attention.kernels import working_dtype
from regard.models.output import SoftTarget, chunk_rows


class SplitSurprisal(torch.autograd.Function):
    """Σ share · -log softmax(hidden Wᵀ + b)[target], of which each process has the rows of some
    words in W. Three numbers per target are summed over the processes, and the gradient of
    `hidden` at the end."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # [N, d]
        weight: Tensor,  # [V of this process, d]
        bias: Tensor | None,  # [V of this process]
        place: Tensor,  # [N]: the targets as rows of `weight`; of other processes if outside of it
        shares: Tensor | None,  # [N]: the weight of each target
        soft: SoftTarget | None,
        words: int,  # of all processes
        first: int,  # the first word of this process
        learn: bool,
        dtype: torch.dtype,
        group: Any,
    ) -> Tensor:
        exact = torch.promote_types(dtype, torch.float32)
        soft = soft or SoftTarget()
        with torch.autocast(hidden.device.type, enabled=False):
            table, offset = weight.to(dtype), None if bias is None else bias.to(dtype)
            total = torch.zeros((), dtype=exact, device=hidden.device)
            grads = [None if t is None else torch.zeros_like(t) for t in (hidden, weight, bias)]
            grad_hidden, grad_weight, grad_bias = grads if learn else [None] * 3
            left_out = None if soft.without is None else soft.without - first
            if left_out is not None and not 0 <= left_out < table.size(0):
                left_out = None
            rows = chunk_rows(hidden.size(0), words)
            for start in range(0, hidden.size(0), max(rows, 1)):
                chosen = slice(start, start + rows)
                h, target = hidden[chosen].to(dtype), place[chosen, None]
                own = ((target >= 0) & (target < table.size(0))).to(exact)
                target = target.clamp(0, table.size(0) - 1)
                scores = torch.nn.functional.linear(h, table, offset).to(exact)
                top = scores.amax(-1, keepdim=True)
                dist.all_reduce(top, dist.ReduceOp.MAX, group)
                at_target = scores.gather(1, target) * own
                others = scores.sum(-1, keepdim=True)
                if left_out is not None:
                    others = others - scores[:, left_out, None]
                p = scores.sub_(top).exp_()
                sums = torch.cat([p.sum(-1, keepdim=True), at_target, others], 1)
                dist.all_reduce(sums, group=group)
                mass, at_target, others = sums.split(1, 1)
                log_z = top + mass.log()
                rest = others - log_z * (words - (soft.without is not None))
                cost = soft.z * log_z**2 - soft.own * (at_target - log_z) - soft.other * rest
                share = None if shares is None else shares[chosen, None].to(exact)
                total += (cost if share is None else cost * share).sum()
                if grad_hidden is None or grad_weight is None:
                    continue
                p = slope_(p.div_(mass), log_z, soft, words, left_out)
                p.scatter_add_(1, target, -soft.own * own)
                grad = (p if share is None else p.mul_(share)).to(dtype)
                grad_hidden[chosen] = grad @ table
                grad_weight += grad.mT @ h
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
            if grad_hidden is not None:
                dist.all_reduce(grad_hidden, group=group)
            ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
            return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if g is None else g.mul_(grad.to(g.dtype)) for g in ctx.saved_tensors]
        return (*scaled, *[None] * 8)  # scaled in place: a second backward is refused


def slope_(p: Tensor, log_z: Tensor, soft: SoftTarget, words: int, left_out: int | None) -> Tensor:
    """Turns the probabilities of this process's words into the gradient at their logits, without
    the targets' term."""
    number = words - (soft.without is not None)
    p.mul_(soft.own + soft.other * number + 2 * soft.z * log_z).sub_(soft.other)
    if left_out is not None:
        p[:, left_out] += soft.other
    return p


def split_surprisal(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    place: Tensor,
    shares: Tensor | None,
    soft: SoftTarget | None,
    words: int,
    first: int,
    group: Any,
) -> Tensor:
    """Returns the summed loss of the targets, the same in all processes of the group."""
    taught = [t for t in (hidden, weight, bias) if t is not None and t.requires_grad]
    learn = torch.is_grad_enabled() and bool(taught)
    total: Tensor = SplitSurprisal.apply(
        hidden, weight, bias, place, shares, soft, words, first, learn, working_dtype(hidden), group
    )
    return total
