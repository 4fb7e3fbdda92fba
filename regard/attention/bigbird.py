"""BigBird's pattern (Zaheer et al. 2020, 2): global tokens, a window of blocks, and random blocks.

Rows are divided into blocks. A block reads itself, its neighbor blocks and a few random blocks; a
global token reads all tokens and is read by all. The cost grows linearly with the length.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import AttentionArgs, attend
from regard.attention.pattern import Pattern, additive
from regard.core.seeding import keyed


class BigBird(Pattern):
    """A Pattern in which block i sees the blocks i - side … i + side, `random` other blocks, and
    every global key. The random blocks are a function of (seed, layer, length): each layer has its
    own."""

    def __init__(
        self,
        block: int,  # the rows of a block; 64 in the paper
        side: int,  # the neighbor blocks on each side; 1 in the paper
        random: int,  # the random blocks of each block; 3 in the paper
        length: int,
        dtype: torch.dtype,
        device: torch.device,
        attention_mask: Tensor | None = None,  # [B, T]: True at keys that are not padding
        far: Tensor | None = None,  # [B, G]: the global tokens, -1 where a text has fewer
        seed: int = 0,
        layer: int = 0,
    ) -> None:
        self.block, self.side, self.length, self.attention_mask, self.far = (
            block,
            side,
            length,
            attention_mask,
            far,
        )
        self.blocks = -(-length // block)
        drawn = drawn_blocks(self.blocks, side, random, seed, layer)
        self.drawn = torch.from_numpy(drawn).to(device)  # [n, random], -1 where there are fewer
        near = torch.arange(self.blocks, device=device)[:, None]
        near = near + torch.arange(-side, side + 1, device=device)
        near = torch.where(near < self.blocks, near, -1).clamp_min(-1)
        self.read = torch.cat([near, self.drawn], 1)  # [n, R]: the blocks that a block reads
        self.mask = additive(self.seen(device), dtype)
        self.everything: Tensor | None = None  # the mask of global rows, which hides only padding
        if attention_mask is not None:
            self.everything = additive(attention_mask[:, None, None], dtype)

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        from_block, to_block = query // self.block, key // self.block
        seen = (from_block - to_block).abs() <= self.side
        seen = seen | (self.drawn[from_block] == to_block[..., None]).any(-1)
        if self.far is not None:
            far = self.far[batch]
            seen = seen | (far == key[..., None]).any(-1) | (far == query[..., None]).any(-1)
        return seen if self.attention_mask is None else seen & self.attention_mask[batch, key]

    def seen(self, device: torch.device) -> Tensor:
        """Returns which of its columns [globals ; its blocks] a block's rows see: [B|1, n, G + R ·
        block]. All rows of a block see the same columns."""
        key = self.read[..., None] * self.block + torch.arange(self.block, device=device)
        key = torch.where(self.read[..., None] < 0, -1, key).flatten(1)  # [n, R · block]
        usable = ((key >= 0) & (key < self.length))[None]
        key = key.clamp(0, self.length - 1)
        if self.attention_mask is not None:
            usable = usable & self.attention_mask[:, key]
        if self.far is None:
            return usable
        usable = usable & ~(self.far[:, None, None] == key[None, ..., None]).any(-1)  # not twice
        there = self.far >= 0
        if self.attention_mask is not None:
            there = there & self.attention_mask.gather(1, self.far.clamp_min(0))
        return torch.cat([there[:, None].expand(-1, self.blocks, -1), usable], -1)

    def cut(self, x: Tensor) -> Tensor:
        """Divides rows into blocks: [B, H, T, D] -> [B, n, H, block, D]."""
        x = F.pad(x, (0, 0, 0, self.blocks * self.block - self.length))
        y: Tensor = x.unflatten(2, (self.blocks, self.block)).transpose(1, 2)
        return y

    def around(self, x: Tensor) -> Tensor:
        """Gathers each block's keys: [B, H, T, D] -> [B · n, H, G + R · block, D]."""
        keys = self.cut(x)[:, self.read.clamp_min(0)]  # [B, n, R, H, block, D]
        keys = keys.transpose(2, 3).flatten(3, 4)
        if self.far is not None:
            wide = self.wide(x)[:, None].expand(-1, self.blocks, -1, -1, -1)
            keys = torch.cat([wide, keys], 3)
        return keys.flatten(0, 1)

    def wide(self, x: Tensor) -> Tensor:
        """Returns the global rows [B, H, G, D]."""
        assert self.far is not None
        index = self.far.clamp_min(0)[:, None, :, None].expand(-1, x.size(1), -1, x.size(3))
        return x.gather(2, index)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        if how.bias is not None:
            raise ValueError("BigBird's blocks take no bias on the scores; pass bias=None")
        mask = self.mask.expand(q.size(0), -1, -1).flatten(0, 1)[:, None, None]
        y: Tensor = attend(self.cut(q).flatten(0, 1), self.around(k), self.around(v), how, mask)
        y = y.unflatten(0, (q.size(0), self.blocks)).transpose(1, 2).flatten(2, 3)
        y = y[:, :, : self.length]
        if self.far is None:
            return y
        rows = attend(self.wide(q), k, v, how, self.everything)
        index = torch.where(self.far < 0, self.length, self.far)[:, None, :, None]
        placed = F.pad(y, (0, 0, 0, 1)).scatter(2, index.expand_as(rows), rows)
        return placed[:, :, : self.length]


def drawn_blocks(blocks: int, side: int, random: int, seed: int, layer: int) -> np.ndarray:
    """Draws for each block other blocks outside its window, in rising order: [n, random], -1 where
    there are fewer. The work grows with the number of blocks."""
    dice = keyed(seed, "bigbird", layer)
    table = np.full((blocks, random), -1, dtype=np.int64)
    for i in range(blocks):
        first, last = max(0, i - side), min(blocks, i + side + 1)
        count = min(random, blocks - (last - first))
        drawn = np.sort(dice.choice(blocks - (last - first), count, replace=False, shuffle=False))
        table[i, :count] = np.where(drawn < first, drawn, drawn + last - first)
    return table
