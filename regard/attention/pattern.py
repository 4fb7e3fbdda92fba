"""Who may see whom.

A Pattern is one predicate, `visible(batch, query, key)` over row numbers. From it follow the dense
reference (`dense`), the weights a recorder shows (`weights`), pictures, and FlexAttention's
`mask_mod` on CUDA. Each pattern owns the kernel that computes the same thing without building what
it does not need.

Rows and keys need not be numbered alike: with a memory the keys come first and the rows are the
last of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.kernels import attend

CAUSAL_BLOCK = 128  # rows at a time under dropout: what lies above the diagonal is never computed


class Pattern:
    """The predicate and its kernel. Subclasses give `visible`, and `attend` where they know a
    shorter way.
    """

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """For row numbers of any broadcastable shapes: may the row `query` see the row `key`?"""
        raise TypeError(f"{type(self).__name__} does not say what is visible")

    def rows(self, x: Tensor) -> Tensor:
        """Query rows laid out as the kernel reads them, so that a bias can be made in the same
        layout.
        """
        return x

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, rate: float
    ) -> Tensor:
        mask = additive(self.dense(q.size(0), q.size(2), k.size(2), q.device)[:, None], q.dtype)
        return attend(q, k, v, mask=mask, bias=bias, scale=scale, rate=rate)

    def dense(self, batch: int, queries: int, keys: int, device: torch.device) -> Tensor:
        """The whole predicate as a table [B, Q, K]: the reference every kernel is tested against."""
        b, q, k = (torch.arange(n, device=device) for n in (batch, queries, keys))
        table = self.visible(b[:, None, None], q[None, :, None], k[None, None, :])
        return table.expand(batch, queries, keys)

    def weights(self, q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        """The attention weights [B, H, Q, K], for looking: what the kernel makes of the unit
        matrix.
        """
        unit = torch.eye(k.size(2), dtype=q.dtype, device=q.device).expand(*k.shape[:3], -1)
        return self.attend(q, k, unit, bias, scale, 0.0)

    @property
    def mask_mod(self) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """The predicate as FlexAttention wants it: a plain function, because it counts the
        arguments.
        """
        return lambda batch, head, query, key: self.visible(batch, query, key)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where seen, -inf where not."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -math.inf)


class Full(Pattern):
    """Everything sees everything."""

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query == query) & (key == key)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, rate: float
    ) -> Tensor:
        return attend(q, k, v, bias=bias, scale=scale, rate=rate)


@dataclass(frozen=True)
class Causal(Pattern):
    """A row sees itself and what came before; `past` keys precede the first row."""

    past: int = 0

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key <= query + self.past

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, rate: float
    ) -> Tensor:
        rows, keys = q.size(2), k.size(2)
        if rows == 1:
            return attend(q, k, v, bias=bias, scale=scale, rate=rate)
        if bias is None and rows == keys and rate == 0.0:
            return attend(q, k, v, scale=scale, causal=True)
        parts = []
        for start in range(0, rows, CAUSAL_BLOCK):
            end = min(start + CAUSAL_BLOCK, rows)
            seen = self.past + end
            corner = torch.full((end - start, seen), -math.inf, dtype=q.dtype, device=q.device)
            parts.append(
                attend(
                    q[:, :, start:end],
                    k[:, :, :seen],
                    v[:, :, :seen],
                    mask=corner.triu(self.past + start + 1),
                    bias=None if bias is None else bias[..., start:end, :seen],
                    scale=scale,
                    rate=rate,
                )
            )
        return torch.cat(parts, 2)


class Ordered(Pattern):
    """Visibility as a comparison of orders: a row sees a key iff floor <= the key's order <= the
    row's.

    BERT gives every row order 0, GPT 0, 1, 2, …; a prefix is 0, a hidden key (padding) is HIDDEN, a
    memory comes before everything, and XLNet's orders are the ranks in its permutation. `document`
    adds an equality for texts packed into one row. The table is built once and shared by all
    layers.
    """

    HIDDEN = 2**31 - 1

    def __init__(
        self,
        query_order: Tensor,  # [B|1, Q]
        key_order: Tensor,  # [B|1, K]
        dtype: torch.dtype,
        floor: Tensor | None = None,  # [B|1, Q]
        documents: tuple[Tensor, Tensor]
        | None = None,  # of the queries [B, Q] and of the keys [B, K]
    ) -> None:
        self.query_order, self.key_order, self.floor, self.documents = (
            query_order,
            key_order,
            floor,
            documents,
        )
        seen = key_order[:, None, :] <= query_order[:, :, None]
        if floor is not None:
            seen = seen & (key_order[:, None, :] >= floor[:, :, None])
        if documents is not None:
            seen = seen & (documents[1][:, None, :] == documents[0][:, :, None])
        self.mask = additive(seen[:, None], dtype)

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        def at(table: Tensor, row: Tensor) -> Tensor:
            return table[batch % table.size(0), row]

        order = at(self.key_order, key)
        seen = order <= at(self.query_order, query)
        if self.floor is not None:
            seen = seen & (order >= at(self.floor, query))
        if self.documents is not None:
            seen = seen & (at(self.documents[1], key) == at(self.documents[0], query))
        return seen

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, rate: float
    ) -> Tensor:
        return attend(q, k, v, mask=self.mask, bias=bias, scale=scale, rate=rate)


class ByHead(Pattern):
    """Different patterns for groups of heads, in order: [(heads, pattern), …]."""

    def __init__(self, groups: list[tuple[int, Pattern]]) -> None:
        self.groups = groups

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, rate: float
    ) -> Tensor:
        sizes = [heads for heads, _ in self.groups]
        same = [bias] * len(sizes)
        biases = same if bias is None or bias.size(1) == 1 else bias.split(sizes, 1)
        rows = zip(self.groups, *(x.split(sizes, 1) for x in (q, k, v)), biases, strict=True)
        return torch.cat([p.attend(a, b, c, d, scale, rate) for (_, p), a, b, c, d in rows], 1)


def everything(real: Tensor | None, rows: int, dtype: torch.dtype) -> Pattern:
    """All rows see all real keys; without padding there is nothing to hide."""
    if real is None:
        return Full()
    hidden = torch.where(real, 0, Ordered.HIDDEN)
    return Ordered(torch.zeros(1, rows, dtype=hidden.dtype, device=real.device), hidden, dtype)


def causal(real: Tensor | None, past: int, dtype: torch.dtype) -> Pattern:
    """Rows see what came before; `real` [B, past + rows] says which keys are no padding."""
    if real is None:
        return Causal(past)
    order = torch.arange(real.size(1), device=real.device)[None]
    return Ordered(order[:, past:], torch.where(real, order, Ordered.HIDDEN), dtype)
