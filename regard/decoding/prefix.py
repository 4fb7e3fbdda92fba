"""A prefix that several prompts share is read once, and its keys and values are copied.

Keys and values of a token depend on the tokens before it alone, so they are those of every text
that begins alike: of the prompts of a batch, and of the prompt that a server has read before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.attention import Attention
from regard.attention.memory import Pair
from regard.attention.recorder import is_unseen
from regard.models.state import State

LEAST = 16  # the tokens of a prefix that is worth its own call


class ReadPrefix(NamedTuple):
    """A text that was read: its tokens, the keys and values of each layer [1, H, tokens, D], and
    whether it was read in lower precision."""

    tokens: Tensor
    pairs: list[Pair]
    lower: bool


def lower() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def common(texts: Sequence[Tensor]) -> int:
    """Returns how many tokens all texts begin with."""
    shortest = min(len(text) for text in texts)
    table = torch.stack([text[:shortest] for text in texts])
    return int((table == table[0]).all(0).long().cumprod(0).sum())


def can_share(model: Any) -> bool:
    """Returns whether keys and values of the layers are all that a model remembers, and nobody
    looks at how it reads."""
    attentions = (part for part in model.modules() if isinstance(part, Attention))
    return "pointer" not in model.extensions and all(map(is_unseen, attentions))


def shared(model: Any, texts: Sequence[Tensor], known: ReadPrefix | None) -> ReadPrefix | None:
    """Returns the prefix of all texts, from what is known or read now; None: it is not worth it. At
    least one token of every text is left."""
    most = min(len(text) for text in texts) - 1
    if most < LEAST or not can_share(model):
        return None
    among = min(most, common(texts)) if len(texts) > 1 else 0
    if known is not None and known.lower == lower():
        count = min(most, common([*texts, known.tokens]))
        if count >= max(LEAST, among):
            pairs = [(keys[:, :, :count], values[:, :, :count]) for keys, values in known.pairs]
            return ReadPrefix(known.tokens[:count], pairs, known.lower)
    if among < LEAST:
        return None
    state = model.start(1, among)
    model(texts[0][None, :among], state=state)
    return ReadPrefix(texts[0][:among], [(x.keys, x.values) for x in state.layers], lower())


def prefix_of(model: Any, state: State, tokens: Tensor, start: int) -> ReadPrefix | None:
    """Returns what was read of a text that fills the first row of a state from column `start` on;
    None: others cannot share it."""
    if not can_share(model):
        return None
    some = slice(start, start + len(tokens))
    pairs = [
        (layer.keys[:1, :, some].clone(), layer.values[:1, :, some].clone())
        for layer in state.layers
    ]
    return ReadPrefix(tokens.clone(), pairs, lower())


def begin_with(state: State, prefix: ReadPrefix, padding: Sequence[int]) -> None:
    """Fills an empty state as if all rows had read the first columns; each row has so much padding
    before the prefix."""
    columns = len(prefix.tokens)
    for layer, pair in zip(state.layers, prefix.pairs, strict=True):
        for into, out in zip((layer.keys, layer.values), pair, strict=True):
            for row, before in enumerate(padding):
                if before < columns:
                    into[row, :, before:columns] = out[0, :, : columns - before]
        layer.length = columns
    state.length = columns
    if any(padding):
        starts = torch.tensor(padding, device=prefix.tokens.device)
        state.attention_mask = torch.arange(columns, device=starts.device) >= starts[:, None]
