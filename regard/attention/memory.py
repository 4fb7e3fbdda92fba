"""Memories: which keys and values an attention reads.

A Memory answers one question for an Attention: given the rows `x` and the fused projection, which
queries, keys and values take part? It owns every kind of past: none, hidden states, a cache, … It
answers in two steps: `read` returns what the Score still has to add positions to, and `keep`
receives the keys with positions and returns all keys and values. So a cache holds keys to which
positions were added once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.attention.attention import Projection

Pair = tuple[Tensor, Tensor]  # keys, values: [B, kv_heads, rows, D]
Triple = tuple[Tensor, Tensor, Tensor]  # queries, keys, values


class Memory:
    """The base class. Subclasses implement `read`, and `keep` if they remember something."""

    def read(self, x: Tensor, project: Projection) -> Triple:
        raise TypeError(f"{type(self).__name__} does not say what there is to read")

    def keep(self, k: Tensor, v: Tensor) -> Pair:
        return k, v


class Here(Memory):
    """Self-attention: the rows read each other."""

    def read(self, x: Tensor, project: Projection) -> Triple:
        q, k, v = project(x)
        return q, k, v


HERE = Here()


@dataclass(frozen=True)
class Segment(Memory):
    """Transformer-XL's memory: hidden states of earlier segments, without gradient, before the
    rows."""

    past: Tensor  # [B, M, width]

    def read(self, x: Tensor, project: Projection) -> Triple:
        q, *now = project(x)
        before = project.pairs(self.past)
        return q, torch.cat([before[0], now[0]], 2), torch.cat([before[1], now[1]], 2)


@dataclass(frozen=True)
class CrossKV(Memory):
    """The keys and values of an encoder's output, projected once for all rows and steps."""

    pairs: Pair

    def read(self, x: Tensor, project: Projection) -> Triple:
        return project.queries(x), *self.pairs

    def reorder(self, chosen: Tensor) -> CrossKV:
        return CrossKV((self.pairs[0][chosen], self.pairs[1][chosen]))


@dataclass
class KVCache(Memory):
    """The KV cache of one layer: a buffer that is allocated once, and the number of filled rows."""

    keys: Tensor  # [B, kv_heads, capacity, D]
    values: Tensor
    length: int = 0

    def read(self, x: Tensor, project: Projection) -> Triple:
        q, k, v = project(x)
        return q, k, v

    def keep(self, k: Tensor, v: Tensor) -> Pair:
        end, room = self.length + k.size(2), self.keys.size(2)
        if end > room:  # slicing would drop the rows silently
            raise InputError(f"{end} rows do not fit a cache of {room}; start a larger one")
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reorder(self, chosen: Tensor) -> None:
        """Reorders the batch for beam search: row i continues the text of row chosen[i]."""
        self.keys, self.values = self.keys[chosen], self.values[chosen]
