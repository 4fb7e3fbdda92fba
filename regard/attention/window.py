"""Windows: every row sees its neighbours, so the cost grows with the length and not with its
square.

The window is a reshape. Rows are cut into blocks; a block's keys are the rows before it, its own
and those after it, with the global keys in front. What comes out is ordinary attention over many
short sequences.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import attend
from regard.attention.pattern import Pattern, additive


class Window(Pattern):
    """Row i sees keys i - before … i + after, and every global key, wherever it stands."""

    def __init__(
        self,
        before: int,
        after: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
        real: Tensor | None = None,  # [B, T]: which keys are no padding
        far: Tensor | None = None,  # [B, G]: positions of the global keys, -1 where a row has fewer
    ) -> None:
        if far is not None and after == 0 and before > 0:
            raise ValueError(
                "global keys would let a causal window look ahead: give after > 0, or no global keys"
            )
        self.before, self.after = min(before, length), min(after, length)
        self.length, self.real, self.far = length, real, far
        self.block = max(self.before, self.after, 32)
        self.blocks = -(-length // self.block)
        self.mask = additive(self.seen(device), dtype)

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen = (query - key <= self.before) & (key - query <= self.after)
        if self.far is not None:
            seen = seen | (self.far[batch] == key[..., None]).any(-1)
        return seen if self.real is None else seen & self.real[batch, key]

    def seen(self, device: torch.device) -> Tensor:
        """Which of its columns [globals ; before ; block ; after] each row sees: [B·n, 1, block,
        columns].
        """
        offset = torch.arange(self.before + self.block + self.after, device=device) - self.before
        row = torch.arange(self.block, device=device)[:, None]
        key = (
            torch.arange(self.blocks, device=device)[:, None] * self.block + offset
        )  # [n, columns]
        usable = ((key >= 0) & (key < self.length))[None]
        if self.real is not None:
            usable = usable & self.real[:, key.clamp(0, self.length - 1)]
        if self.far is not None:  # counted among the globals, and only there
            usable = usable & ~(self.far[:, None, None, :] == key[None, :, :, None]).any(-1)
        near = (row - offset <= self.before) & (offset - row <= self.after)
        seen = near & usable[:, :, None, :]
        if self.far is not None:
            there = (self.far >= 0) & self.real_at(self.far)
            seen = torch.cat([there[:, None, None].expand(*seen.shape[:3], -1), seen], -1)
        return seen

    def real_at(self, key: Tensor) -> Tensor:
        return key >= 0 if self.real is None else self.real.gather(1, key.clamp_min(0))

    def rows(self, x: Tensor) -> Tensor:
        """[B, H, T, D] -> [B·n, H, block, D]."""
        x = F.pad(x, (0, 0, 0, self.blocks * self.block - self.length))
        return x.unflatten(2, (self.blocks, self.block)).transpose(1, 2).flatten(0, 1)

    def around(self, x: Tensor) -> Tensor:
        """[B, H, T, D] -> each block's keys [B·n, H, globals + before + block + after, D]."""
        size, spare = self.block, self.blocks * self.block - self.length
        padded = (
            F.pad(x, (0, 0, size, size + spare))
            .unflatten(2, (self.blocks + 2, size))
            .transpose(1, 2)
        )
        parts = [
            padded[:, :-2, :, size - self.before :],
            padded[:, 1:-1],
            padded[:, 2:, :, : self.after],
        ]
        if self.far is not None:
            index = self.far.clamp_min(0)[:, None, :, None].expand(-1, x.size(1), -1, x.size(3))
            parts.insert(0, x.gather(2, index)[:, None].expand(-1, self.blocks, -1, -1, -1))
        return torch.cat(parts, 3).flatten(0, 1)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, rate: float
    ) -> Tensor:
        mask = self.mask.expand(q.size(0), -1, -1, -1).flatten(0, 1)[:, None]
        y = attend(
            self.rows(q),
            self.around(k),
            self.around(v),
            mask=mask,
            bias=bias,
            scale=scale,
            rate=rate,
        )
        y = y.unflatten(0, (q.size(0), self.blocks)).transpose(1, 2).flatten(2, 3)
        return y[:, :, : self.length]

    def weights(self, q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        """Computed in blocks, then laid out over all keys."""
        mask = self.mask.expand(q.size(0), -1, -1, -1).flatten(0, 1)[:, None]
        scores = (self.rows(q) @ self.around(k).mT).float() * scale + mask.float()
        scores = scores if bias is None else scores + bias.float()
        blocks = torch.softmax(scores, -1).nan_to_num(0.0).unflatten(0, (q.size(0), self.blocks))
        offset = torch.arange(self.before + self.block + self.after, device=q.device) - self.before
        key = torch.arange(self.blocks, device=q.device)[:, None] * self.block + offset
        key = key.where((key >= 0) & (key < self.length), self.length)[None].expand(
            q.size(0), -1, -1
        )
        if self.far is not None:
            far = self.far.where(self.far >= 0, self.length)
            key = torch.cat([far[:, None].expand(-1, self.blocks, -1), key], -1)
        table = blocks.new_zeros(*blocks.shape[:-1], self.length + 1)
        table.scatter_add_(-1, key[:, :, None, None].expand_as(blocks), blocks)
        return table[..., :-1].transpose(1, 2).flatten(2, 3)[:, :, : self.length]


class Dilated(Pattern):
    """A window over every `step`-th row: the rows of each remainder form a sequence of their own."""

    def __init__(
        self,
        step: int,
        before: int,
        after: int,
        real: Tensor,  # [B, T]: which keys are no padding
        dtype: torch.dtype,
    ) -> None:
        length = real.size(1)
        self.step, self.length, self.short = step, length, -(-length // step)
        folded = F.pad(real, (0, self.short * step - length)).unflatten(1, (self.short, step))
        self.real = folded.transpose(1, 2).flatten(0, 1)  # [B · step, short]
        self.window = Window(before, after, self.short, dtype, real.device, self.real)

    def visible(self, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = query % self.step == key % self.step
        batch = batch * self.step + key % self.step
        return same & self.window.visible(batch, query // self.step, key // self.step)

    def fold(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, self.short * self.step - self.length))
        return x.unflatten(2, (self.short, self.step)).permute(0, 3, 1, 2, 4).flatten(0, 1)

    def rows(self, x: Tensor) -> Tensor:
        return self.window.rows(self.fold(x))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, rate: float
    ) -> Tensor:
        y = self.window.attend(self.fold(q), self.fold(k), self.fold(v), bias, scale, rate)
        y = y.unflatten(0, (q.size(0), self.step)).permute(0, 2, 3, 1, 4).flatten(2, 3)
        return y[:, :, : self.length]

    def weights(self, q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        folded = self.window.weights(self.fold(q), self.fold(k), bias, scale)
        apart = folded.unflatten(0, (q.size(0), self.step)).permute(
            0, 2, 3, 4, 1
        )  # [B, H, i, j, remainder]
        table = torch.diag_embed(apart, dim1=3, dim2=5).flatten(4, 5).flatten(2, 3)
        return table[:, :, : self.length, : self.length]
