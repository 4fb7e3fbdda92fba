"""From the hidden states of a text to one vector."""

from __future__ import annotations

import torch
from torch import Tensor

POOLINGS = ("mean", "first", "last", "max")


def pooled(hidden: Tensor, attention_mask: Tensor, pooling: str) -> Tensor:
    """Returns one vector per text, [B, width]."""
    if pooling == "mean":
        share = attention_mask.to(hidden.dtype)
        return torch.einsum("btd,bt->bd", hidden, share) / share.sum(1, keepdim=True)
    if pooling == "max":
        return hidden.masked_fill(~attention_mask[..., None].bool(), -torch.inf).amax(1)
    marks = attention_mask.long()
    size = attention_mask.size(1)
    place = marks.argmax(1) if pooling == "first" else size - 1 - marks.flip(1).argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), place]
