"""Memories: which keys and values an attention reads.

A Memory answers one question for an Attention: given the rows `x` and the fused projection, which
queries, keys and values take part? It owns every kind of past: none, hidden states, a cache, … It
answers in two steps: `read` returns what the Score still has to add positions to, and `keep`
receives the keys with positions and returns all keys and values. So a cache holds keys to which
positions were added once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from regard.core.errors import InputError

if TYPE_CHECKING:
    from regard.attention.attention import Projection

Pair = tuple[Tensor, Tensor]  # keys, values: [B, kv_heads, rows, D]
Triple = tuple[Tensor, Tensor, Tensor]  # queries, keys, values
LARGEST, NOTHING = 127, 1e-30  # of a byte; a row with smaller numbers is treated as zeros
STEP_BYTES = 4  # of a row of bytes


LEAST_ROOM = 64  # the columns for new rows in a buffer of recent keys and values


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

    @classmethod
    def empty(cls, shape: tuple[int, int, int, int], like: Tensor) -> Self:
        """Returns a cache for keys [B, kv_heads, capacity, D] in the dtype of `like`."""
        return cls(like.new_zeros(shape), like.new_zeros(shape))

    def read(self, x: Tensor, project: Projection) -> Triple:
        q, k, v = project(x)
        return q, k, v

    def keep(self, k: Tensor, v: Tensor) -> Pair:
        self.store(k, v)
        keys, values = (part[:, :, : self.length] for part in (self.keys, self.values))
        return self.restored(keys, k), self.restored(values, v)

    def store(self, k: Tensor, v: Tensor) -> None:
        end, room = self.length + k.size(2), self.keys.size(2)
        if end > room:  # slicing would drop the rows silently
            raise InputError(f"{end} rows do not fit a cache of {room}; start a larger one")
        self.keys[:, :, self.length : end] = self.stored(k)
        self.values[:, :, self.length : end] = self.stored(v)
        self.length = end

    def stored(self, x: Tensor) -> Tensor:
        """Returns keys or values as the buffer holds them."""
        return x

    def restored(self, buffer: Tensor, like: Tensor) -> Tensor:
        """Returns what a buffer holds as keys or values, in the dtype of `like`."""
        return buffer

    def reorder(self, chosen: Tensor) -> None:
        """Reorders the batch for beam search: row i continues the text of row chosen[i]."""
        self.keys, self.values = self.keys[chosen], self.values[chosen]


@dataclass
class RecentKV(KVCache):
    """Transformer-XL's memory, projected once: the keys and values of the rows from `start` on. The
    buffer grows with the memory, and columns of forgotten rows are filled again."""

    start: int = 0

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> Self:
        """Stores keys and values [B, heads, rows, D], with room for more."""
        batch, heads, rows, size = keys.shape
        memory = cls.empty((batch, heads, 0, size), keys)
        memory.make_room(rows)
        memory.store(keys, values)
        return memory

    @classmethod
    def holding(cls, keys: Tensor, values: Tensor) -> Self:
        """Copies the columns of other buffers, with room for more."""
        memory = cls(keys, values, keys.size(2))
        memory.make_room(1)
        return memory

    @property
    def rows(self) -> int:
        return self.length - self.start

    def recent(self) -> Pair:
        """Returns the remembered columns as the buffers hold them."""
        some = slice(self.start, self.length)
        return self.keys[:, :, some], self.values[:, :, some]

    def keep(self, k: Tensor, v: Tensor) -> Pair:
        self.make_room(k.size(2))
        self.store(k, v)
        keys, values = self.recent()
        return self.restored(keys, k), self.restored(values, v)

    def forget(self, most: int) -> None:
        """Remembers no more than the last `most` rows."""
        self.start = max(self.start, self.length - most)

    def make_room(self, more: int) -> None:
        if self.length + more <= self.keys.size(2):
            return
        rows = self.rows
        columns = rows + more + max(LEAST_ROOM, rows // 4)
        for name, part in zip(("keys", "values"), self.recent(), strict=True):
            buffer = part.new_zeros(part.size(0), part.size(1), columns, part.size(3))
            buffer[:, :, :rows] = part
            setattr(self, name, buffer)
        self.start, self.length = 0, rows


class HalfCache(KVCache):
    """A cache in bfloat16: keys and values are rounded when they are stored."""

    @classmethod
    def empty(cls, shape: tuple[int, int, int, int], like: Tensor) -> Self:
        return super().empty(shape, like.new_empty(0, dtype=torch.bfloat16))

    def restored(self, buffer: Tensor, like: Tensor) -> Tensor:
        return buffer.to(like.dtype)


class ByteCache(KVCache):
    """A cache in int8: a row of a head is step · n with n from -127 to 127. The step, a float, is
    in the last four bytes of the row."""

    @classmethod
    def empty(cls, shape: tuple[int, int, int, int], like: Tensor) -> Self:
        whole = (*shape[:3], shape[3] + STEP_BYTES)
        return super().empty(whole, like.new_empty(0, dtype=torch.int8))

    def stored(self, x: Tensor) -> Tensor:
        exact = x.float()
        most = exact.abs().amax(-1, keepdim=True)
        usable = most > NOTHING
        numbers = (exact * torch.where(usable, LARGEST / most, 0.0)).round_()
        step = torch.where(usable | most.isnan(), most / LARGEST, 0.0)
        return torch.cat([numbers.to(torch.int8), step.view(torch.int8)], -1)

    def restored(self, buffer: Tensor, like: Tensor) -> Tensor:
        numbers, step = buffer.split([buffer.size(-1) - STEP_BYTES, STEP_BYTES], -1)
        whole: Tensor = numbers.float() * step.clone(memory_format=torch.contiguous_format).view(
            torch.float32
        )
        return whole.to(like.dtype)


class RecentHalf(RecentKV, HalfCache):
    """The same in bfloat16."""


class RecentBytes(RecentKV, ByteCache):
    """The same in int8."""


CACHES: dict[str, type[KVCache]] = {"bf16": HalfCache, "int8": ByteCache}
RECENT: dict[type[KVCache], type[RecentKV]] = {
    KVCache: RecentKV,
    HalfCache: RecentHalf,
    ByteCache: RecentBytes,
}
