"""The visible matrix of sentence trees as a Pattern, and where a pattern's kernel keeps its pairs.

Nothing but a few numbers a token is stored: who sees whom follows from them.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.kernels import AttentionArgs, attend
from regard.attention.pattern import Pattern, additive
from regard.attention.window import Window

Places = tuple[Tensor, Tensor, Tensor]  # batch, query, key: row numbers that broadcast


@dataclass(frozen=True)
class Branches:
    """The tables of flattened trees, each [B, T]; see `regard.data.knowledge.tree.FlatTree`."""

    line: Tensor
    word: Tensor
    owner: Tensor
    # [B, T]: False at padding, which sees nothing and is not seen
    attention_mask: Tensor | None = None

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Liu et al. 2020, 3.4: a token sees its own line, the word that its branch grows from,
        and the branches that grow from its word.
        """
        line, word, owner = self.line, self.word, self.owner
        seen = line[batch, query] == line[batch, key]
        seen = seen | (owner[batch, query] == word[batch, key])
        seen = seen | (owner[batch, key] == word[batch, query])
        if self.attention_mask is not None:
            seen = seen & self.attention_mask[batch, query] & self.attention_mask[batch, key]
        return seen


class TreePattern(Pattern):
    """What an inner pattern shows, and of that what branches let through. The mask is built once
    and serves all layers.
    """

    def __init__(
        self,
        inner: Pattern,
        branches: Branches,
        dtype: torch.dtype,
        asking: Tensor | None = None,  # [B, Q]: the tokens whose rows ask, if not all do
    ) -> None:
        self.inner, self.branches, self.asking = inner, branches, asking
        batch, keys = branches.line.shape
        queries = keys if asking is None else asking.size(1)
        seen = self.dense(batch, queries, keys, branches.line.device)
        self.mask = additive(seen[:, None], dtype)

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        token = query if self.asking is None else self.asking[batch, query].clamp_min(0)
        return self.inner.visible(batch, query, key) & self.branches.visible(batch, token, key)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        return attend(q, k, v, how, self.mask)


class VisibleWindow(TreePattern):
    """The same inside a window, whose kernel has a layout of its own. A window counts tokens as
    they are written, branches included: what branches push out of it is not seen.
    """

    inner: Window

    def __init__(self, inner: Window, branches: Branches) -> None:
        self.inner, self.branches, self.asking = copy(inner), branches, None
        where = window_places(inner, branches.line.size(0), branches.line.device)
        self.inner.mask = inner.mask.masked_fill(~branches.visible(*where), -math.inf)

    def rows(self, x: Tensor) -> Tensor:
        return self.inner.rows(x)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        return self.inner.attend(q, k, v, how)


def limited(
    inner: Pattern, branches: Branches, dtype: torch.dtype, asking: Tensor | None = None
) -> Pattern:
    """A pattern that shows what `inner` does, without what branches hide."""
    if isinstance(inner, Window):
        return VisibleWindow(inner, branches)
    return TreePattern(inner, branches, dtype, asking)


# -- layouts


def window_places(window: Window, batch: int, device: torch.device) -> Places:
    """Which pairs a window's kernel compares: blocks of rows with [globals ; before ; block ;
    after]. Numbers beyond the text are those of its ends; the window itself hides them.
    """
    start = torch.arange(window.blocks, device=device)[:, None] * window.block  # [n, 1]
    offset = torch.arange(window.before + window.block + window.after, device=device)
    key = (start + offset - window.before).clamp(0, window.length - 1)[None]  # [1, n, C]
    query = (start + torch.arange(window.block, device=device)).clamp_max(window.length - 1)
    if window.far is not None:
        far = window.far.clamp_min(0)[:, None].expand(-1, window.blocks, -1)
        key = torch.cat([far, key.expand(batch, -1, -1)], -1)
    number = torch.arange(batch, device=device)[:, None, None, None]
    return number, query[None, :, :, None], key[:, :, None]


def places(
    pattern: Pattern, batch: int, queries: int, keys: int, device: torch.device
) -> tuple[Places, int]:
    """The pairs that a pattern's kernel compares, in the layout in which it takes a bias, and how
    many leading dimensions of that are its batch.
    """
    inner = pattern.inner if isinstance(pattern, VisibleWindow) else pattern
    if isinstance(inner, Window):
        return window_places(inner, batch, device), 2
    b, q, k = (torch.arange(n, device=device) for n in (batch, queries, keys))
    return (b[:, None, None], q[None, :, None], k[None, None, :]), 1
