"""What there is to read.

A Memory answers one question for an Attention: given the rows `x` and the fused projection, which
queries, keys and values take part? It owns every kind of past: none, hidden states, a cache of
keys, an encoder's output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from regard.errors import InputError

Triple = tuple[Tensor, Tensor, Tensor]  # queries, keys, values: [B, H, rows, D]


class Project(Protocol):
    """The fused projection of an Attention, whole or in part."""

    def __call__(self, x: Tensor) -> Triple: ...
    def queries(self, x: Tensor) -> Tensor: ...
    def pairs(self, x: Tensor) -> tuple[Tensor, Tensor]: ...


class Memory(Protocol):
    def read(self, x: Tensor, project: Project) -> Triple: ...


class Here:
    """Self-attention: the rows read each other."""

    def read(self, x: Tensor, project: Project) -> Triple:
        return project(x)


HERE = Here()


@dataclass(frozen=True)
class Segment:
    """Transformer-XL: the hidden states of earlier segments (no gradient) stand before the rows."""

    past: Tensor  # [B, M, width]

    def read(self, x: Tensor, project: Project) -> Triple:
        q, k, v = project(x)
        return q, *joined(project.pairs(self.past), (k, v))


@dataclass(frozen=True)
class Content:
    """XLNet: the rows are [content ; query], and only a past and the first `rows` of them can be
    read.
    """

    rows: int
    past: Tensor | None = None  # [B, M, width]

    def read(self, x: Tensor, project: Project) -> Triple:
        q, k, v = project(x[:, : self.rows])
        q = torch.cat([q, project.queries(x[:, self.rows :])], 2)
        return (q, k, v) if self.past is None else (q, *joined(project.pairs(self.past), (k, v)))


@dataclass(frozen=True)
class Fixed:
    """An encoder's output, projected once: the same keys and values for every row and every step."""

    pairs: tuple[Tensor, Tensor]

    def read(self, x: Tensor, project: Project) -> Triple:
        return project.queries(x), *self.pairs

    def reorder(self, chosen: Tensor) -> Fixed:
        return Fixed((self.pairs[0][chosen], self.pairs[1][chosen]))


@dataclass
class Growing:
    """The cache of one layer: a buffer allocated once, and how much of it is filled."""

    keys: Tensor  # [B, H, capacity, D]
    values: Tensor
    length: int = 0

    def read(self, x: Tensor, project: Project) -> Triple:
        q, k, v = project(x)
        end = self.length + x.size(1)
        if end > self.keys.size(2):  # a single row would be dropped in silence
            raise InputError(
                f"{end} rows do not fit a memory made for {self.keys.size(2)}; start a larger one"
            )
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return q, self.keys[:, :, :end], self.values[:, :, :end]

    def reorder(self, chosen: Tensor) -> None:
        """Beams: row i continues what row chosen[i] was."""
        self.keys, self.values = self.keys[chosen], self.values[chosen]


@dataclass
class State:
    """Everything a model remembers between two calls; handed to `model(..., state=state)`, which
    updates it.

    `layers` holds one entry a layer: a Growing cache, or hidden states [B, M, width], or an LSTM's
    pair. `real` marks which remembered rows are no padding, so that positions go on counting real
    tokens.
    """

    layers: list[Growing] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    source: list[Fixed] = field(default_factory=list)
    source_real: Tensor | None = None
    real: Tensor | None = None
    length: int = 0

    def extend(
        self, real: Tensor | None, rows: int, batch: int, device: torch.device
    ) -> Tensor | None:
        """Takes note of `rows` more rows; gives the marks of all rows so far, None while all are
        real.
        """
        if real is not None or self.real is not None:
            before = self.real if self.real is not None else mark(batch, self.length, device)
            now = real if real is not None else mark(batch, rows, device)
            self.real = torch.cat([before, now], 1)
        self.length += rows
        return self.real

    def reorder(self, chosen: Tensor) -> None:
        for layer in self.layers:
            layer.reorder(chosen)
        self.hidden = [hidden[chosen] for hidden in self.hidden]
        self.source = [source.reorder(chosen) for source in self.source]
        self.real = None if self.real is None else self.real[chosen]
        self.source_real = None if self.source_real is None else self.source_real[chosen]


def mark(batch: int, rows: int, device: torch.device) -> Tensor:
    return torch.ones(batch, rows, dtype=torch.bool, device=device)


def joined(past: tuple[Tensor, Tensor], now: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.cat([past[0], now[0]], 2), torch.cat([past[1], now[1]], 2)
