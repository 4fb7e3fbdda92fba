"""Turns recorded attention into one matrix for each head: the full matrix, or the band of a
window.

Letters: H heads, Q query rows, K keys, W columns that are stored of a row. A text is read alone, so
only the first row of the batch is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels import AttentionArgs
from regard.attention.recorder import AttentionCall
from regard.attention.tree_pattern import VisibleWindow
from regard.attention.window import Window
from regard.models.longformer_characters import Dilated


@dataclass(frozen=True)
class KeyBand:
    """The keys that the columns of a row stand for: first `far`, which are the same for all rows,
    then the neighbors."""

    before: int
    after: int
    step: int = 1  # the distance between two neighbors (the dilation)
    far: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        return len(self.far) + self.before + self.after + 1

    def near(self, start: int, end: int, keys: int) -> np.ndarray:
        """Returns the neighbors of rows start … end, -1 where there is no key."""
        at = np.arange(-self.before, self.after + 1) * self.step + np.arange(start, end)[:, None]
        return np.where((at >= 0) & (at < keys), at, -1)

    def columns(self, rows: int, keys: int) -> np.ndarray:
        """Returns the keys of all columns, [rows, width]."""
        near = self.near(0, rows, keys)
        far = np.broadcast_to(np.array(self.far, near.dtype), (rows, len(self.far)))
        return np.concatenate([far, near], 1)


@dataclass(frozen=True)
class HeadWeights:
    """The weights of one head. If it has a band, the rows in `rows` see all keys: `whole` [rows,
    K]."""

    values: np.ndarray  # [Q, K], or with a band [Q, W]
    keys: int
    band: KeyBand | None = None
    rows: tuple[int, ...] = ()
    whole: np.ndarray | None = None

    def dense(self, start: int = 0, end: int | None = None) -> np.ndarray:
        """Returns the full matrix [Q, K], or some of its rows, with or without a band."""
        values = self.values[start:end]
        if self.band is None:
            return values
        count, far = len(values), len(self.band.far)
        table = np.zeros((count, self.keys + 1), np.float32)  # the last column takes missing keys
        near = self.band.near(start, start + count, self.keys)
        np.put_along_axis(table, near % (self.keys + 1), values[:, far:], 1)
        for column, key in enumerate(self.band.far):
            table[:, key] += values[:, column]
        table = table[:, : self.keys]
        for number, row in enumerate(self.rows):
            if self.whole is not None and 0 <= row - start < count:
                table[row - start] = self.whole[number]
        return table

    def part(self, start: int, end: int) -> HeadWeights:
        """Returns only the rows start … end of a full matrix."""
        return replace(self, values=self.values[start:end])


def matrices(parts: Sequence[AttentionCall]) -> Iterator[HeadWeights]:
    """Yields the heads of one layer, one after the other.

    A Longformer's layer is recorded twice: its window (`local`), and for the global rows all keys
    (`wide`), which replaces what these rows see in their window. Its character model has two kinds
    of heads (`near`, `apart`).
    """
    first, *others = parts
    if others and others[0].name.endswith(".wide"):
        rows = far_rows(first)
        for near, wide in zip(heads(first), heads(others[0]), strict=True):
            if near.band is None:
                near.values[list(rows)] = wide.values
                yield near
            else:
                near.values[list(rows)] = 0.0
                yield replace(near, rows=rows, whole=wide.values)
        return
    for seen in parts:
        yield from heads(seen)


def shape(parts: Sequence[AttentionCall]) -> tuple[int, int, int, int]:
    """Returns the numbers of heads, rows, stored columns, and keys, before any weight is
    computed."""
    counted = [p for p in parts if not p.name.endswith(".wide")]
    widths = [k if (b := band_of(p, k := p.keys.size(2))) is None else b.width for p in counted]
    first = counted[0]
    count = sum(p.queries.size(1) for p in counted)
    return count, first.queries.size(2), max(widths), first.keys.size(2)


def heads(seen: AttentionCall) -> Iterator[HeadWeights]:
    band, keys = band_of(seen, seen.keys.size(2)), seen.keys.size(2)
    window = window_of(seen)
    if window is not None:
        rows_in_band = banded(seen).numpy()
        for values in rows_in_band:
            matrix = HeadWeights(values, keys, exact_band(seen))
            yield matrix if band is not None else HeadWeights(matrix.dense(), keys)
        return
    visible = seen.pattern.dense(1, seen.queries.size(2), keys, seen.queries.device)[0]
    for head in range(seen.queries.size(1)):
        bias = seen.how.bias
        one = None if bias is None else bias[0, head % bias.size(1)]
        scores = product(seen.queries[0, head], seen.keys[0, head], seen.how.scale, one)
        yield HeadWeights(normal(scores.masked_fill_(~visible, -math.inf)).numpy(), keys)


def product(q: Tensor, k: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    working = torch.float64 if q.dtype == torch.float64 else torch.float32
    scores = q.to(working) @ k.to(working).mT * scale
    return scores if bias is None else scores + bias.to(working)


def normal(scores: Tensor) -> Tensor:
    """Returns a softmax in which a row that sees nothing has weights of zero."""
    return scores.softmax(-1).nan_to_num_(0.0).float().cpu()


# -- windows


def window_of(seen: AttentionCall) -> Window | Dilated | None:
    pattern = seen.pattern.inner if isinstance(seen.pattern, VisibleWindow) else seen.pattern
    return pattern if isinstance(pattern, Window | Dilated) else None


def far_rows(seen: AttentionCall) -> tuple[int, ...]:
    """Returns the positions of a Longformer's global tokens."""
    window = window_of(seen)
    if not isinstance(window, Window) or window.far is None:
        return ()
    return tuple(int(x) for x in window.far[0] if x >= 0)


def exact_band(seen: AttentionCall) -> KeyBand:
    near = window_of(seen)
    step, window = (near.step, near.window) if isinstance(near, Dilated) else (1, near)
    assert window is not None
    return KeyBand(window.before, window.after, step, far_rows(seen))


def band_of(seen: AttentionCall, keys: int) -> KeyBand | None:
    """Returns the band if it is worth storing: if it has less than half of all keys."""
    if window_of(seen) is None:
        return None
    band = exact_band(seen)
    return band if 2 * band.width < keys else None


def banded(seen: AttentionCall) -> Tensor:
    """Returns the weights of a window [H, Q, W]: the kernel's own layout, with each row moved to
    its diagonal."""
    window = window_of(seen)
    if not isinstance(window, Dilated):
        assert window is not None
        return unrolled(window, seen.queries, seen.keys, seen.how)[0]
    folded = unrolled(window.window, window.fold(seen.queries), window.fold(seen.keys), seen.how)
    return folded.permute(1, 2, 0, 3).flatten(1, 2)[:, : window.length]  # [step, H, short, W]


def unrolled(window: Window, q: Tensor, k: Tensor, how: AttentionArgs) -> Tensor:
    """Returns the weights [B, H, T, W] as `Window.attend` computes them, without a full matrix."""
    mask = window.mask.expand(q.size(0), -1, -1, -1).flatten(0, 1)[:, None]
    scores = product(window.rows(q), window.around(k), how.scale, how.bias) + mask
    weights = normal(scores)  # [B · n, H, block, globals + before + block + after]
    far = weights.size(-1) - (window.before + window.block + window.after)
    own = torch.arange(window.block)[:, None] + torch.arange(window.before + window.after + 1)
    near = weights[..., far:].gather(-1, own.expand(*weights.shape[:2], -1, -1))
    rows = torch.cat([weights[..., :far], near], -1).unflatten(0, (q.size(0), window.blocks))
    return rows.transpose(1, 2).flatten(2, 3)[:, :, : window.length]
