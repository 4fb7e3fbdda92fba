"""What a student loses where it is not like its teacher: losses of rows, as free functions.

None of them takes a mean over rows: an objective sums what rows lose and knows how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.precision import wide
from regard.core.errors import ConfigError
from regard.models.output import CHUNK

ALIVE = 8  # matrices of a chunk's size that are alive at a time, of both models


def divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² · KL(softmax(teacher / T) ‖ softmax(student / T)) of rows of logits [..., K] -> [...]
    (Hinton et al. 2015, 2). The gradient shrinks as 1 / T², so T² keeps it of one size.
    """
    ours, theirs = (F.log_softmax(wide(z) / temperature, -1) for z in (student, teacher))
    return temperature**2 * (theirs.exp() * (theirs - ours)).sum(-1)


def among(scores: Tensor, eligible: Tensor) -> Tensor:
    """Scores of which only the eligible can be chosen; finite, so that no loss of them is 0 · ∞."""
    scores = wide(scores)
    return scores.masked_fill(~eligible, torch.finfo(scores.dtype).min / 4)


def squares(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean squared difference of each row [..., width] -> [...]."""
    return (wide(student) - wide(teacher)).square().mean(-1)


def angles(student: Tensor, teacher: Tensor) -> Tensor:
    """1 - cos of each row [..., width] -> [...]: DistilBERT's CosineEmbeddingLoss, target 1."""
    return 1 - F.cosine_similarity(wide(student), wide(teacher), -1)


def score_squares(student: Tensor, teacher: Tensor, seen: Tensor) -> Tensor:
    """Of scores [B, H, Q, K] before the softmax, where `seen` [B, Q, K]: the mean over heads and
    keys of what each row differs by [B, Q] (Jiao et al. 2020, equation 7). Keys that a row does
    not see count as equal, keys that no row of a text sees as absent.
    """
    if student.shape != teacher.shape:  # a single head would quietly be compared with all
        raise ConfigError(
            f"scores of attention are {list(student.shape)} of the student and "
            f"{list(teacher.shape)} of the teacher, and only equal ones compare; set attention = 0"
        )
    apart = (wide(student) - wide(teacher)).square().mean(1)
    keys = seen.any(1).sum(-1).clamp_min(1)
    return torch.where(seen, apart, 0.0).sum(-1) / keys[:, None]


def word_divergence(
    student: Any,  # outputs: rows -> logits of the vocabulary
    teacher: Any,
    rows: tuple[Tensor, Tensor],  # of the student [N, width] and of the teacher [N, width]
    shares: Tensor | None,  # [N]: how much each row counts
    temperature: float,
) -> Tensor:
    """The summed divergence of guesses of words, a few rows of logits at a time."""
    ours, theirs = rows
    edges = getattr(student, "edges", None)  # an adaptive output has no matrix of all words
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
    """Σ cost(rows[start : start + size], start), with the gradient taken in the same pass: no
    chunk's logits live longer than it takes to learn from them.

    `weights` are those that `cost` uses besides the rows.
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
        # Without autocast's cache: what it holds would belong to the graph of the first chunk.
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
