"""Attention written out in double precision: what the tests of this folder compare with.

Letters: B batch, H heads, Q query rows, K key rows, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import settings
from torch import Tensor

from regard.attention import kernels
from regard.attention.dropout import GRAIN, dropped
from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Pattern

few = settings(max_examples=12, deadline=None)
CLOSE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 6e-2}


def weights(
    q: Tensor, k: Tensor, scale: float, seen: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """softmax over the seen keys, from its definition; zeros for a row that sees none."""
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale
    scores = scores if bias is None else scores + bias
    seen = torch.ones_like(scores, dtype=torch.bool) if seen is None else seen.expand_as(scores)
    peak = scores.detach().masked_fill(~seen, -1e30).amax(-1, keepdim=True)
    share = torch.where(seen, torch.exp(torch.where(seen, scores, 0.0) - peak.clamp_min(-1e6)), 0.0)
    total = share.sum(-1, keepdim=True)
    return share / torch.where(total > 0, total, 1.0)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    seen: Tensor | None = None,
    bias: Tensor | None = None,
    keep: Tensor | None = None,  # which weights survive, already divided by the share that does
) -> Tensor:
    share = weights(q, k, scale, seen, bias)
    return torch.einsum("bhqk,bhkd->bhqd", share if keep is None else share * keep, v)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers that do not depend on, or change, the global generator."""
    generator = torch.Generator().manual_seed(seed * 7919 + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def coins(*shape: int, seed: int = 0, chance: float = 0.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed * 104729 + sum(shape))
    return torch.rand(*shape, generator=generator) < chance


def triple(
    batch: int, heads: int, rows: int, keys: int, size: int, seed: int, dtype: torch.dtype
) -> list[Tensor]:
    shapes = ((batch, heads, rows, size), (batch, heads, keys, size), (batch, heads, keys, size))
    return [numbers(*shape, seed=seed * 3 + i, dtype=dtype) for i, shape in enumerate(shapes)]


def agree(
    ours: Callable[..., Tensor], expected: Callable[..., Tensor], inputs: list[Tensor]
) -> Tensor:
    """Both functions give the same result and the same gradients; returns the result."""
    near = [x.detach().clone().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    y, z = ours(*near), expected(*exact)
    direction = numbers(*y.shape, seed=99, dtype=inputs[0].dtype)
    got = torch.autograd.grad(y, near, direction, allow_unused=True)
    want = torch.autograd.grad(z, exact, direction.double(), allow_unused=True)
    limit = CLOSE[inputs[0].dtype]
    close(y, z, limit, "result")
    for i, (a, b, x) in enumerate(zip(got, want, near, strict=True)):
        zero = torch.zeros_like(x)
        close(zero if a is None else a, zero if b is None else b, limit, f"gradient of input {i}")
    return y


def close(actual: Tensor, expected: Tensor, limit: float, what: str = "") -> None:
    """Within `limit`, relative to the largest number expected where that is above one."""
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    if actual.numel() == 0:
        return
    size = max(1.0, expected.abs().max().item())
    gap = (actual.double() - expected.double()).abs().max().item()
    assert gap <= limit * size, f"{what}: off by {gap:.2e}, allowed {limit * size:.2e}"  # NaN fails


def table(pattern: Pattern, batch: int, rows: int, keys: int) -> Tensor:
    """What the pattern says is visible, [B, 1, Q, K], asked one pair at a time."""
    seen = torch.zeros(batch, 1, rows, keys, dtype=torch.bool)
    for b in range(batch):
        for i in range(rows):
            for j in range(keys):
                seen[b, 0, i, j] = pattern.visible(*(torch.tensor(n) for n in (b, i, j)))
    return seen


def survivors(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor, rate: float, seed: int
) -> Tensor:
    """Which weights a kernel kept, seen by handing it the unit matrix for values. [B, H, Q, K].

    The draw depends on the seed and the shape of the scores alone: the same call with other
    values and the same seed keeps the same weights.
    """
    unit = torch.eye(k.size(2), dtype=k.dtype).expand(*k.shape[:3], -1)
    torch.manual_seed(seed)
    passed = attend(q, k, unit).double() > 0
    return passed.double() / (1 - dropped(rate) / GRAIN)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    rate: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """The kernel under test, every part by its name."""
    return kernels.attend(q, k, v, AttentionArgs(bias, scale, rate), mask, causal)
