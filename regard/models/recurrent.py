"""What Transformer-XL and XLNet share beyond the core: a memory of hidden states."""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from regard.attention.attention import Projection
from regard.attention.memory import Memory, Pair, Triple
from regard.attention.pattern import Ordered
from regard.attention.position import Placed, Relative, View
from regard.models.state import State

ALL = sys.maxsize


class MemoryLimits(NamedTuple):
    """The limits of the memory in a configuration; a validation may use other limits."""

    mem_len: int  # the rows that every layer remembers
    reuse_len: int  # the rows of a segment that the next segment may remember
    clamp_len: int  # larger distances count as this one
    reach: int  # the number of keys that a row sees

    @classmethod
    def of(cls, config: Any) -> Self:
        memory = ALL if config.mem_len is None else config.mem_len
        reuse = getattr(config, "reuse_len", None)
        same = getattr(config, "same_length", False) and memory > 0
        clamp = config.clamp_len if config.clamp_len > 0 else ALL
        return cls(memory, ALL if reuse is None else reuse, clamp, memory if same else ALL)

    def remember(self, state: State, inputs: list[Tensor], attention_mask: Tensor | None) -> None:
        """Stores the last rows of each layer's input in the state, without gradient."""
        if state.layers:  # they have kept their rows themselves
            caches: list[Any] = state.layers
            for cache in caches:
                cache.forget(self.mem_len)
            marks, rows = attention_mask, caches[0].rows
            state.attention_mask = None if marks is None else marks[:, marks.size(1) - rows :]
            state.length += inputs[0].size(1)
            return
        joined = [x.detach() for x in inputs]
        count = len(inputs)
        if state.hidden:
            own = state.hidden[:count]
            joined = [torch.cat(pair, 1) for pair in zip(own, joined, strict=True)]
        start = max(0, joined[0].size(1) - self.mem_len)
        state.hidden = [*(x[:, start:] for x in joined), *state.hidden[count:]]
        state.attention_mask = None if attention_mask is None else attention_mask[:, start:]
        state.length += inputs[0].size(1)


@dataclass(frozen=True)
class ContentMemory(Memory):
    """XLNet's memory: rows are [content ; query]; only the past and the first `rows` are read."""

    rows: int
    memory: Memory  # of the content rows

    def read(self, x: Tensor, project: Projection) -> Triple:
        q, k, v = self.memory.read(x[:, : self.rows], project)
        return torch.cat([q, project.queries(x[:, self.rows :])], 2), k, v

    def keep(self, k: Tensor, v: Tensor) -> Pair:
        return self.memory.keep(k, v)


@dataclass(frozen=True)
class OtherRowsMemory(Memory):
    """A memory in which the query rows read other, given rows and not each other."""

    rows: Tensor  # [B, K, width]

    def read(self, x: Tensor, project: Projection) -> Triple:
        return project.queries(x), *project.pairs(self.rows)


def asking(view: View, rows: int) -> View:
    """Returns XLNet's view for the query rows alone, without the `rows` rows of content."""
    pattern, distances = copy(view.pattern), view.distances
    assert isinstance(pattern, Ordered) and distances is not None
    pattern.query_order, pattern.mask = pattern.query_order[:, rows:], pattern.mask[:, :, rows:]
    differs = None if distances.differs is None else distances.differs[:, :, rows:]
    return View(pattern, distances=replace(distances, rows=0, differs=differs))


def together(place: Tensor) -> Tensor | None:
    """Returns the order in which every word sees every other word."""
    return None


def as_written(place: Tensor) -> Tensor | None:
    """Returns the order in which a word sees the words before it."""
    return place


# The order when none is given, by `left_to_right`.
ORDERS: dict[bool, Callable[[Tensor], Tensor | None]] = {False: together, True: as_written}


class RelativeSegments(Relative):
    """XLNet also scores whether two rows are in the same segment: (q + s)·e (Yang et al. 2019,
    2.5).

    `segment` [2, H, D] holds e for "same" and "different". A term that is equal for all keys of a
    row cancels in the softmax, so only the difference of the two is added.
    """

    def __init__(self, width: int, u: nn.Parameter, v: nn.Parameter, s: nn.Parameter) -> None:
        super().__init__(width, u, v)
        self.s, self.segment = s, nn.Parameter(torch.zeros(2, *s.shape))

    def forward(self, q: Tensor, k: Tensor, view: View, scale: float) -> Placed:
        content, k, bias = super().forward(q, k, view, scale)
        assert view.distances is not None and bias is not None
        if view.distances.differs is None:
            return content, k, bias
        step = (self.segment[1] - self.segment[0]).to(q.dtype) * scale
        change = torch.einsum("bhqd,hd->bhq", q + self.s.to(q.dtype)[:, None], step)
        return content, k, torch.addcmul(bias, change[..., None], view.distances.differs)
