"""Sliding windows: every row sees its neighbors, so the cost grows with the length, not its square.

The window is a reshape: rows are divided into blocks, and the keys of a block are the global keys,
the rows before it, its own rows and the rows after it. The result is ordinary attention over short
sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import AttentionArgs, attend, exporting
from regard.attention.pattern import Pattern, additive


class Window(Pattern):
    """A Pattern in which row i sees the keys i - before … i + after, and every global key."""

    def __init__(
        self,
        before: int,
        after: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
        attention_mask: Tensor | None = None,  # [B, T]: True at keys that are not padding
        far: Tensor | None = None,  # [B, G]: positions of global keys, -1 where a text has fewer
    ) -> None:
        if far is not None and after == 0 and before > 0:
            raise ValueError("a global key would let a causal window look ahead: give after > 0")
        self.before, self.after = before, after
        if not exporting():  # a graph has windows of one width for texts of any length
            self.before, self.after = min(before, length), min(after, length)
        self.length, self.attention_mask, self.far = length, attention_mask, far
        self.block = max(self.before, self.after, 32)
        self.blocks = (length + self.block - 1) // self.block  # graphs divide towards zero
        self.mask = additive(self.seen(device), dtype)

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = (query - key <= self.before) & (key - query <= self.after)
        if self.far is not None:
            seen = seen | (self.far[batch] == key[..., None]).any(-1)
        return seen if self.attention_mask is None else seen & self.attention_mask[batch, key]

    def seen(self, device: torch.device) -> Tensor:
        """Returns which columns [globals ; before ; block ; after] a row sees: [B, n, block, C]."""
        offset = torch.arange(self.before + self.block + self.after, device=device) - self.before
        row = torch.arange(self.block, device=device)[:, None]
        key = torch.arange(self.blocks, device=device)[:, None] * self.block + offset  # [n, C]
        usable = ((key >= 0) & (key < self.length))[None]
        if self.attention_mask is not None:
            usable = usable & self.attention_mask[:, key.clamp(0, self.length - 1)]
        near = (row - offset <= self.before) & (offset - row <= self.after)
        if self.far is None:
            return near & usable[:, :, None]
        usable = usable & ~(self.far[:, None, None] == key[None, ..., None]).any(-1)  # not twice
        there = self.far >= 0
        if self.attention_mask is not None:
            there = there & self.attention_mask.gather(1, self.far.clamp_min(0))
        seen = near & usable[:, :, None]
        return torch.cat([there[:, None, None].expand(*seen.shape[:3], -1), seen], -1)

    def rows(self, x: Tensor) -> Tensor:
        """Divides rows into blocks: [B, H, T, D] -> [B·n, H, block, D]."""
        x = F.pad(x, (0, 0, 0, self.blocks * self.block - self.length))
        y: Tensor = x.unflatten(2, (self.blocks, self.block)).transpose(1, 2).flatten(0, 1)
        return y

    def around(self, x: Tensor) -> Tensor:
        """Gathers each block's keys: [B, H, T, D] -> [B·n, H, G + before + block + after, D]."""
        size, spare = self.block, self.blocks * self.block - self.length
        padded = F.pad(x, (0, 0, size, size + spare)).unflatten(2, (self.blocks + 2, size))
        padded = padded.transpose(1, 2)
        first, last = padded[:, :-2, :, size - self.before :], padded[:, 2:, :, : self.after]
        parts = [first, padded[:, 1:-1], last]
        if self.far is not None:
            index = self.far.clamp_min(0)[:, None, :, None].expand(-1, x.size(1), -1, x.size(3))
            parts.insert(0, x.gather(2, index)[:, None].expand(-1, self.blocks, -1, -1, -1))
        return torch.cat(parts, 3).flatten(0, 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        mask = self.mask.expand(q.size(0), -1, -1, -1).flatten(0, 1)[:, None]
        y: Tensor = attend(self.rows(q), self.around(k), self.around(v), how, mask)
        y = y.unflatten(0, (q.size(0), self.blocks)).transpose(1, 2).flatten(2, 3)
        return y[:, :, : self.length]
