"""Nadaraya–Watson kernel regression (1964): f(q) = Σ K(u_i) v_i / Σ K(u_j), u_i = ‖q - k_i‖ / h.

The weights are softmax(log K): nothing overflows. Where every K is zero the nearest key answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.attention.kernels import AttentionArgs, attend
from regard.core.errors import UnknownName


def log(kernel: Tensor) -> Tensor:
    """The logarithm; -inf, and no gradient, from zero downwards."""
    return torch.where(kernel > 0, kernel, 1.0).log().masked_fill(kernel <= 0, -math.inf)


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {  # log K(u)
    "gaussian": lambda u: -u.square() / 2,
    "boxcar": lambda u: log((u <= 1).to(u.dtype)),
    "triangular": lambda u: log(1 - u),
    "epanechnikov": lambda u: log(1 - u.square()),
    "constant": torch.zeros_like,
}


def weights(q: Tensor, k: Tensor, h: float, kernel: str, alone: bool = False) -> Tensor:
    """[Q, d], [K, d] -> [Q, K], rows that sum to one. `alone` hides key i from query i."""
    if kernel not in KERNELS:
        raise UnknownName("kernel", kernel, KERNELS)
    distance = torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")
    hidden = torch.eye(*distance.shape, dtype=torch.bool, device=q.device) & alone
    scores = KERNELS[kernel](distance / h).masked_fill(hidden, -math.inf)
    nearest = distance.masked_fill(hidden, math.inf).argmin(-1)
    only = log(nn.functional.one_hot(nearest, k.size(0)).to(scores.dtype))
    return torch.where(scores.isneginf().all(-1, True), only, scores).softmax(-1)


def regress(q: Tensor, k: Tensor, v: Tensor, h: float, kernel: str = "gaussian") -> Tensor:
    """What the pairs (k, v) [K, d], [K, c] say about q [Q, d]: [Q, c]."""
    return weights(q, k, h, kernel) @ v


def gaussian(q: Tensor, k: Tensor, v: Tensor, h: float) -> Tensor:
    """The same by dot products: -‖q - k‖²/2 = [q, 1]·[k, -‖k‖²/2] - ‖q‖²/2; the last cancels."""
    q, k = q - k.mean(0), k - k.mean(0)  # distances stay; less is lost in the difference of squares
    q = torch.cat([q, torch.ones_like(q[:, :1])], 1)
    k = torch.cat([k, k.square().sum(1, keepdim=True) / -2], 1)
    return attend(q[None, None], k[None, None], v[None, None], AttentionArgs(scale=h**-2))[0, 0]


def leave_one_out(k: Tensor, v: Tensor, h: float, kernel: str = "gaussian") -> Tensor:
    """The mean squared error when each pair must be told by the others."""
    return (weights(k, k, h, kernel, alone=True) @ v - v).square().mean()


class Regression(nn.Module):
    """softmax(-‖w (q - k)‖²/2): 1 / h is learned. Train it `alone`, or w grows without end."""

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, alone: bool = False) -> Tensor:
        return weights(q * self.w, k * self.w, 1.0, "gaussian", alone) @ v
