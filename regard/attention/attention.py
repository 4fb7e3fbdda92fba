"""The one attention module: a Memory gives the keys and values, a Pattern says which of them each
row sees, and a Score adds positions."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from regard.attention.kernels import AttentionArgs
from regard.attention.linear import Linear, linear
from regard.attention.memory import HERE, KVCache, Memory, Pair, Triple
from regard.attention.pattern import Pattern
from regard.attention.position import Plain, View

Kernel = Callable[[Pattern, Tensor, Tensor, Tensor, AttentionArgs], Tensor]


def unseen(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
    """The kernel when no recorder is active; a recorder puts another one in its place."""
    return pattern.attend(q, k, v, how)


class Projection(nn.Linear):
    """Query, key and value projections as one matrix [(heads + 2 · kv_heads) · size, width], which
    can be used whole or in part. With fewer `kv_heads`, each key/value head serves a group of
    neighboring query heads (Ainslie et al. 2023)."""

    def __init__(
        self, width: int, heads: int, size: int, bias: bool, kv_heads: int | None = None
    ) -> None:
        shared = heads if kv_heads is None else kv_heads
        super().__init__(width, (heads + 2 * shared) * size, bias)
        self.heads, self.kv_heads, self.size = heads, shared, size

    def parts(self) -> list[int]:
        """Returns how many rows of the matrix belong to query, key and value."""
        return [count * self.size for count in (self.heads, self.kv_heads, self.kv_heads)]

    def forward(self, x: Tensor) -> Triple:  # type: ignore[override]
        q, k, v = self.part(x, 0, 3)
        return q, k, v

    def queries(self, x: Tensor) -> Tensor:
        return self.part(x, 0, 1)[0]

    def pairs(self, x: Tensor) -> Pair:
        k, v = self.part(x, 1, 3)
        return k, v

    def part(self, x: Tensor, start: int, end: int) -> tuple[Tensor, ...]:
        """Returns parts start … end of (query, key, value), each [B, its heads, rows, D]."""
        rows = self.parts()
        y = self.rows(x, sum(rows[:start]), sum(rows[:end]))
        y = y.unflatten(-1, (-1, self.size)).transpose(1, 2)
        parts: tuple[Tensor, ...] = y.split([n // self.size for n in rows[start:end]], 1)
        return parts

    def rows(self, x: Tensor, start: int, end: int) -> Tensor:
        """Returns the product of x with rows start … end of the matrix."""
        chosen = slice(start, end)
        return linear(x, self.weight[chosen], None if self.bias is None else self.bias[chosen])


class Attention(nn.Module):
    """The attention of all models. A new model brings a Pattern, a Memory or a Score."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        size: int | None = None,  # the width of a head; width / heads unless given
        kv_heads: int | None = None,  # the number of key/value heads; `heads` unless given
        bias: bool = True,
        scale: float | None = None,  # 1 / √size unless given
        dropout: float = 0.0,  # on the attention weights
        score: nn.Module | None = None,
    ) -> None:
        super().__init__()
        size = width // heads if size is None else size
        self.project = Projection(width, heads, size, bias, kv_heads)
        self.out = Linear(heads * size, width, bias)
        self.score = Plain() if score is None else score
        self.scale = size**-0.5 if scale is None else scale
        self.dropout = dropout
        self.kernel: Kernel = unseen
        self.cache: type[KVCache] = KVCache

    def forward(self, x: Tensor, view: View, memory: Memory = HERE) -> Tensor:
        q, k, v = memory.read(x, self.project)
        q, k, bias = self.score(q, k, view, self.scale)
        k, v = memory.keep(k, v)
        how = AttentionArgs(bias, self.scale, self.dropout * self.training)
        y: Tensor = self.out(self.kernel(view.pattern, q, k, v, how).transpose(1, 2).flatten(2))
        return y
