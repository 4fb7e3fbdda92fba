"""Patterns: which rows may see which keys.

A Pattern is one predicate, `visible(batch, query, key)` over row numbers. The dense reference,
pictures, and FlexAttention's `mask_mod` on CUDA follow from it; each pattern owns a kernel that
builds no larger table than it needs. With a memory, the remembered keys come first and the rows are
the last keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.kernels import AttentionArgs, attend, exporting

CAUSAL_BLOCK = 128  # rows per block with dropout: blocks above the diagonal are never computed


class Pattern:
    """The base class. Subclasses implement `visible`, and `attend` if there is a cheaper way."""

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Returns whether row `query` may see row `key`; the row numbers must broadcast."""
        raise TypeError(f"{type(self).__name__} does not say what is visible")

    def rows(self, x: Tensor) -> Tensor:
        """Returns query rows in the kernel's layout, so that a bias can be computed in it."""
        return x

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        seen = self.dense(q.size(0), q.size(2), k.size(2), q.device)
        return attend(q, k, v, how, additive(seen[:, None], q.dtype))

    def dense(self, batch: int, queries: int, keys: int, device: torch.device) -> Tensor:
        """Returns the predicate as a table [B, Q, K]: the reference in the tests of kernels."""
        b, q, k = (torch.arange(n, device=device) for n in (batch, queries, keys))
        table = self.visible(b[:, None, None], q[None, :, None], k[None, None, :])
        return table.expand(batch, queries, keys)

    def weights(self, q: Tensor, k: Tensor, how: AttentionArgs) -> Tensor:
        """Returns the attention weights [B, H, Q, K]: the kernel's output for a unit matrix."""
        unit = torch.eye(k.size(2), dtype=q.dtype, device=q.device).expand(*k.shape[:3], -1)
        return self.attend(q, k, unit, how._replace(rate=0.0))

    @property
    def mask_mod(self) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """Returns the predicate as FlexAttention expects it: a plain function of four arguments."""
        return lambda batch, head, query, key: self.visible(batch, query, key)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a mask that is 0 where `seen` is True and -inf elsewhere. In a recorded graph a row
    without keys would become NaN with -inf; there it is a finite number whose exponential is 0."""
    hidden = torch.finfo(dtype).min / 2 if exporting() else -math.inf
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, hidden)


class Full(Pattern):
    """Every row sees every key."""

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query == query) & (key == key)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        return attend(q, k, v, how)


@dataclass(frozen=True)
class Causal(Pattern):
    """A row sees itself and all keys before it; `past` keys come before the first row."""

    past: int = 0

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key <= query + self.past

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        rows, bias = q.size(2), how.bias
        if exporting():
            table = self.dense(1, rows, k.size(2), q.device)
            return attend(q, k, v, how, additive(table[:, None], q.dtype))
        if rows == 1 or (bias is None and rows == k.size(2) and how.rate == 0.0):
            return attend(q, k, v, how, causal=rows > 1)
        parts = []
        for start in range(0, rows, CAUSAL_BLOCK):
            end = min(start + CAUSAL_BLOCK, rows)
            seen, asking = self.past + end, q[:, :, start:end]
            part = how if bias is None else how._replace(bias=bias[..., start:end, :seen])
            parts.append(attend(asking, k[:, :, :seen], v[:, :, :seen], part, causal=True))
        return torch.cat(parts, 2)


class Ordered(Pattern):
    """A Pattern that compares numbers: a row sees a key iff floor <= the key's order <= the row's
    order.

    BERT gives every row order 0, GPT 0, 1, 2, …; a prefix has order 0, a hidden key (padding) has
    order HIDDEN, a memory has an order below all rows, and XLNet's orders are the ranks in its
    permutation. `documents` also requires equal document numbers, for texts packed into one row.
    The mask is built once and used by all layers.
    """

    HIDDEN = 2**31 - 1

    def __init__(
        self,
        query_order: Tensor,  # [B|1, Q]
        key_order: Tensor,  # [B|1, K]
        dtype: torch.dtype,
        floor: Tensor | None = None,  # [B|1, Q]
        documents: tuple[Tensor, Tensor] | None = None,  # numbers of queries [B, Q], keys [B, K]
    ) -> None:
        self.query_order, self.key_order = query_order, key_order
        self.floor, self.documents = floor, documents
        tables = [query_order, key_order, *(documents or ()), *([] if floor is None else [floor])]
        batch = torch.broadcast_tensors(*(table[:, :0] for table in tables))[0].size(0)
        seen = self.dense(batch, query_order.size(1), key_order.size(1), query_order.device)
        self.mask = additive(seen[:, None], dtype)

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        def at(table: Tensor, row: Tensor) -> Tensor:
            return table[batch.clamp_max(table.size(0) - 1), row]  # a table of one row serves all

        order = at(self.key_order, key)
        seen = order <= at(self.query_order, query)
        if self.floor is not None:
            seen = seen & (order >= at(self.floor, query))
        if self.documents is not None:
            seen = seen & (at(self.documents[1], key) == at(self.documents[0], query))
        return seen

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        return attend(q, k, v, how, self.mask)
