"""Losses that compare a student with its teacher, as free functions over rows.

None of them averages over rows: an objective sums the losses of the rows and counts the rows
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import wide
from regard.core.errors import ConfigError
from regard.models.output import CHUNK

ALIVE = 8  # matrices of a chunk's size that both models hold in memory at a time


def divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Returns T² · KL(softmax(teacher / T) ‖ softmax(student / T)) for rows of logits [..., K] ->
    [...] (Hinton et al. 2015, 2). The gradient shrinks with 1 / T², so the factor T² keeps its
    size."""
    ours, theirs = (F.log_softmax(wide(z) / temperature, -1) for z in (student, teacher))
    return temperature**2 * (theirs.exp() * (theirs - ours)).sum(-1)


def among(scores: Tensor, eligible: Tensor) -> Tensor:
    """Masks the scores that are not eligible with a finite number, so that no loss becomes
    0 · ∞."""
    scores = wide(scores)
    return scores.masked_fill(~eligible, torch.finfo(scores.dtype).min / 4)


def squares(student: Tensor, teacher: Tensor) -> Tensor:
    """Returns the mean squared difference of each row [..., width] -> [...]."""
    return (wide(student) - wide(teacher)).square().mean(-1)


def angles(student: Tensor, teacher: Tensor) -> Tensor:
    """Returns 1 - cos of each row [..., width] -> [...]: DistilBERT's CosineEmbeddingLoss, target
    1."""
    return 1 - F.cosine_similarity(wide(student), wide(teacher), -1)


def score_squares(student: Tensor, teacher: Tensor, seen: Tensor) -> Tensor:
    """Returns, for each row [B, Q], the mean squared difference over heads and keys of the
    attention scores [B, H, Q, K] before the softmax, where `seen` [B, Q, K] is true (Jiao et al.
    2020, equation 7). Keys that a row does not see count as equal; keys that no row of a text sees
    do not count."""
    if student.shape != teacher.shape:  # else a single head would broadcast to all heads
        raise ConfigError(
            f"attention scores have the shape {list(student.shape)} in the student and "
            f"{list(teacher.shape)} in the teacher; they must be equal: set attention = 0"
        )
    apart = (wide(student) - wide(teacher)).square().mean(1)
    keys = seen.any(1).sum(-1).clamp_min(1)
    return torch.where(seen, apart, 0.0).sum(-1) / keys[:, None]


def word_divergence(
    student: Any,  # output layers: rows -> logits of the vocabulary
    teacher: Any,
    rows: tuple[Tensor, Tensor],  # of the student [N, width] and of the teacher [N, width]
    shares: Tensor | None,  # [N]: the weight of each row
    temperature: float,
) -> Tensor:
    """Returns the summed divergence of the predicted token distributions. It computes the logits of
    a few rows at a time."""
    ours, theirs = rows
    edges = getattr(student, "edges", None)  # an adaptive output has no single weight matrix
    vocab_size = int(edges[-1] if edges is not None else student.weight.size(0))
    size = max(1, CHUNK // ALIVE // vocab_size)

    def cost(part: Tensor, start: int) -> Tensor:
        chosen = slice(start, start + part.size(0))
        with torch.no_grad():
            wanted = teacher(theirs[chosen])
        each = divergence(student(part), wanted, temperature)
        return (each if shares is None else each * shares[chosen]).sum()

    weights = [weight for weight in student.parameters() if weight.requires_grad]
    learn = torch.is_grad_enabled() and any(x.requires_grad for x in (ours, *weights))
    total: Tensor = ChunkedLoss.apply(cost, size, learn, ours, *weights)
    return total


class ChunkedLoss(torch.autograd.Function):
    """Computes Σ cost(rows[start : start + size], start) and its gradient in the same pass, so that
    the logits of only one chunk are in memory at a time.

    `weights` are the parameters that `cost` uses besides the rows.
    """

    @staticmethod
    def forward(
        ctx: Any,
        cost: Callable[[Tensor, int], Tensor],
        size: int,
        learn: bool,
        rows: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        kind, total = rows.device.type, torch.zeros((), device=rows.device, dtype=wide(rows).dtype)
        grads: list[Any] = [torch.zeros_like(x) if learn else None for x in (rows, *weights)]
        mixed = torch.is_autocast_enabled(kind)
        # Autocast's cache is off, because its casts would belong to the graph of the first chunk.
        with torch.autocast(kind, enabled=mixed, cache_enabled=False):
            for start in range(0, rows.size(0), size):
                with torch.set_grad_enabled(learn):
                    part = rows[start : start + size].detach().requires_grad_(learn)
                    lost = cost(part, start)
                total += lost.detach()
                if not learn:
                    continue
                new = torch.autograd.grad(lost, (part, *weights), allow_unused=True)
                grads[0][start : start + size] = new[0]
                for total_grad, grad in zip(grads[1:], new[1:], strict=True):
                    if grad is not None:
                        total_grad += grad
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if g is None else g * grad.to(g.dtype) for g in ctx.saved_tensors]
        return None, None, None, *scaled
