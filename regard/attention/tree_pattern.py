"""The visible matrix of sentence trees (K-BERT) as a Pattern, and the pairs that a kernel compares.

Only a few numbers per token are stored; which token sees which is computed from them.
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
    # [B, T]: False at padding, which sees no token and is not seen
    attention_mask: Tensor | None = None

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Returns who sees whom (Liu et al. 2020, 3.4): a token sees its own line, the word that
        its branch grows from, and the branches that grow from its word."""
        line, word, owner = self.line, self.word, self.owner
        seen = line[batch, query] == line[batch, key]
        seen = seen | (owner[batch, query] == word[batch, key])
        seen = seen | (owner[batch, key] == word[batch, query])
        if self.attention_mask is not None:
            seen = seen & self.attention_mask[batch, query] & self.attention_mask[batch, key]
        return seen


class TreePattern(Pattern):
    """A Pattern that shows a pair only if both the inner pattern and the branches show it. The mask
    is built once and used by all layers."""

    def __init__(
        self,
        inner: Pattern,
        branches: Branches,
        dtype: torch.dtype,
        asking: Tensor | None = None,  # [B, Q]: the tokens of the query rows, if not all tokens
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
    """A TreePattern around a Window, whose kernel has its own layout. The window counts tokens as
    they are written, branches included: a token that branches push out of the window is not seen.
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
    """Returns a pattern that shows what `inner` shows, without the pairs that the branches hide."""
    if isinstance(inner, Window):
        return VisibleWindow(inner, branches)
    return TreePattern(inner, branches, dtype, asking)


# -- layouts


def window_places(window: Window, batch: int, device: torch.device) -> Places:
    """Returns the pairs that a window's kernel compares: blocks of rows with [globals ; before ;
    block ; after]. Row numbers outside the text are clamped to its ends; the window itself hides
    them."""
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
    """Returns the pairs that a pattern's kernel compares, in the layout of its bias, and how many
    leading dimensions of that layout are the batch."""
    inner = pattern.inner if isinstance(pattern, VisibleWindow) else pattern
    if isinstance(inner, Window):
        return window_places(inner, batch, device), 2
    b, q, k = (torch.arange(n, device=device) for n in (batch, queries, keys))
    return (b[:, None, None], q[None, :, None], k[None, None, :]), 1
