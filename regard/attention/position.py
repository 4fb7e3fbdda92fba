"""Positions: counted, as sinusoids, as Transformer-XL's relative scores, or as rotary angles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from regard.attention.kernels import exporting
from regard.attention.linear import Linear, products
from regard.attention.native import passes
from regard.attention.pattern import Pattern

BLOCK = 128  # rows whose scores with distances are computed together


def sinusoids(at: Tensor, width: int, layout: str = "halves") -> Tensor:
    """Returns sines and cosines of the positions `at`, [..., width], with the wavelengths 2π …
    10000·2π.

    Layouts: "interleaved" as the paper prints them; "halves" [sin | cos] as Transformer-XL, XLNet
    and Marian have them; "tensor2tensor" is "halves" with a last wavelength of exactly 10000·2π.
    """
    if at.device.type == "mps":  # MPS has no float64
        return sinusoids(at.cpu(), width, layout).to(at.device)
    half = torch.arange(width // 2, device=at.device, dtype=torch.float64)
    steps = (width // 2 - 1) if layout == "tensor2tensor" else width / 2
    angles = at.double()[..., None] * torch.exp(half * -(math.log(10000.0) / max(steps, 1)))
    if layout == "interleaved":
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2).float()
    return torch.cat([angles.sin(), angles.cos()], -1).float()


def shifted(far: Tensor, keys: int) -> Tensor:
    """Shifts row i of the result by (rows - 1 - i) columns to the right, by views alone: no gather.

    far[..., i, p] holds the score of row i with the distance of column p, where distances fall by
    one per column; result[..., i, j] = far[..., i, j + rows - 1 - i]. At least keys + 1 columns are
    needed.
    """
    rows, columns = far.size(-2), far.size(-1)
    line = far.flatten(-2).narrow(-1, rows - 1, rows * (columns - 1))
    return line.view(*far.shape[:-2], rows, columns - 1)[..., :keys]


class RelativeShift(torch.autograd.Function):
    """`shifted` with a backward that writes the gradient once."""

    @staticmethod
    def forward(ctx: Any, far: Tensor, keys: int) -> Tensor:
        ctx.shape = far.shape
        return shifted(far, keys)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        far = grad.new_zeros(ctx.shape)
        shifted(far, grad.size(-1)).copy_(grad)
        return far, None


def product(rows: Tensor, r: Tensor) -> Tensor:
    """Returns rows [B, H, Q, D] · r [G, H, D, P]: one product per head for each of the G groups."""
    stacked = rows.unflatten(0, (r.size(0), -1)).transpose(1, 2)
    each = products(stacked.flatten(2, 3).flatten(0, 1), r.flatten(0, 1))
    far: Tensor = each.unflatten(0, r.shape[:2]).unflatten(2, stacked.shape[2:4])
    return far.transpose(1, 2).flatten(0, 1)


@dataclass(frozen=True)
class Distances:
    """The geometry of relative positions, built once per forward.

    `table` [G, P, width] holds sinusoids of falling distances; with G = 2 the second half of the
    batch reads backwards. The first `rows` rows have consecutive positions; `index` [B, 1, R, K]
    places the other rows. `differs` [B, 1, Q, K] is 1 between tokens of different segments.
    """

    table: Tensor
    rows: int
    keys: int
    index: Tensor | None = None
    differs: Tensor | None = None

    def place(self, rows: Tensor, r: Tensor) -> Tensor:
        """Returns scores [B, H, Q, K] of rows [B, H, Q, D] with the distances r [G, H, D, P]."""
        if exporting() and self.index is None:  # one block of all rows
            return shifted(product(rows, r[..., : self.rows + self.keys]), self.keys)
        near, rest = rows.split([self.rows, rows.size(2) - self.rows], 2)
        step = BLOCK if r.size(-1) >= self.rows + self.keys else self.rows  # else: no later keys
        parts, end = [], self.rows
        for block in near.split(step, 2) if self.rows else ():
            start, end = end, end - block.size(2)  # a block has about half of all distances
            far = product(block, r[..., end : start + self.keys])
            parts.append(RelativeShift.apply(far, self.keys))  # type: ignore[no-untyped-call]
        if self.index is not None:
            parts.append(product(rest, r).gather(-1, self.index.expand(-1, r.size(1), -1, -1)))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


class RotaryAngles(NamedTuple):
    """The angles of rotary positions, built once per forward: both are [B|1, 1, rows, D / 2]."""

    cosines: Tensor
    sines: Tensor

    @classmethod
    def of(cls, at: Tensor, frequencies: Tensor, dtype: torch.dtype) -> Self:
        """Builds the angles at · frequencies[i] of rows at the positions `at` [B|1, rows]."""
        angles = at.float()[:, None, :, None] * frequencies
        return cls(angles.cos().to(dtype), angles.sin().to(dtype))

    def __call__(self, x: Tensor) -> Tensor:
        """Rotates x [B, H, rows, D], in which the elements i and i + D / 2 are a pair."""
        cos, sin = self
        same = x.dtype == cos.dtype and not torch.compiler.is_compiling()
        if same and passes.serves(x) and passes.serves(cos):
            y: Tensor = passes.Rotation.apply(x, cos, sin)  # type: ignore[no-untyped-call]
            return y
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


@dataclass(frozen=True)
class View:
    """What one forward passes to every layer: which keys each row sees, and the positions."""

    pattern: Pattern
    bias: Tensor | None = None  # added to the scores of all layers: T5's bucket biases
    distances: Distances | None = None
    turns: RotaryAngles | None = None


Placed = tuple[Tensor, Tensor, Tensor | None]  # queries, keys, and the bias of the scores


class Plain(nn.Module):
    """The Score of models whose positions are already in the embeddings or in the shared bias."""

    def forward(self, q: Tensor, k: Tensor, view: View, scale: float) -> Placed:
        return q, k, view.bias


class Relative(nn.Module):
    """(q + u)·k + (q + v)·W r(distance): Transformer-XL's four terms (Dai et al. 2019, 3.3).

    `u` and `v` [H, D] may be shared by all layers, so they are passed in as parameters.
    """

    def __init__(self, width: int, u: nn.Parameter, v: nn.Parameter) -> None:
        super().__init__()
        self.u, self.v = u, v
        self.distance = Linear(width, u.numel(), bias=False)

    def forward(self, q: Tensor, k: Tensor, view: View, scale: float) -> Placed:
        assert view.distances is not None
        table, rows = view.distances.table, view.pattern.rows(q + self.v.to(q.dtype)[:, None])
        far = (self.distance(table) * scale).unflatten(-1, self.u.shape).permute(0, 2, 3, 1)
        bias = view.distances.place(rows, far.to(rows.dtype))
        return q + self.u.to(q.dtype)[:, None], k, bias


class Rotary(nn.Module):
    """A Score that rotates queries and keys by angles that grow with their positions, so that the
    product of two depends only on their distance (Su et al. 2021, 3.4.2). A cache holds rotated
    keys."""

    def forward(self, q: Tensor, k: Tensor, view: View, scale: float) -> Placed:
        assert view.turns is not None
        return view.turns(q), view.turns(k), view.bias
