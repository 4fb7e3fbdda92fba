"""The state of a model between two calls, knowledge about a batch beyond its tokens, and the
patterns that follow from both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.attention.attention import Attention
from regard.attention.memory import CACHES, HERE, CrossKV, KVCache, Memory
from regard.attention.pattern import Causal, Full, Ordered, Pattern
from regard.attention.position import Distances, View
from regard.core.errors import ConfigError, UnknownName


@dataclass
class State:
    """The memory that is passed as `model(..., state=state)`, which updates it.

    It holds a cache for each of `layers`, or the input of each layer, `hidden` [B, M, width] (for
    an LSTM its pair of vectors). After the entries of the layers come those of an output that
    remembers something (`Output.rows`). `attention_mask` marks which remembered rows are not
    padding, so that positions go on counting real tokens.
    """

    layers: list[KVCache] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    source: list[CrossKV] = field(default_factory=list)
    source_attention_mask: Tensor | None = None
    attention_mask: Tensor | None = None
    length: int = 0

    def extend(self, attention_mask: Tensor | None, input_ids: Tensor) -> Tensor | None:
        """Adds the new rows and returns the mask of all rows so far; None without any padding."""
        self.attention_mask = joined_marks(
            self.attention_mask, attention_mask, self.length, input_ids
        )
        self.length += input_ids.size(1)
        return self.attention_mask

    def remembered(self, newest: int | None = None) -> list[Tensor]:
        """Returns what is remembered of a text without limit, as views [rows, M, …]: hidden states,
        or keys and values; of these only the newest columns, if a number is given."""
        caches: list[Any] = self.layers
        start = 0 if newest is None or not caches else max(0, caches[0].rows - newest)
        pairs = [part for cache in caches for part in cache.recent()]
        return [*self.hidden, *(part.transpose(1, 2)[:, start:] for part in pairs)]

    def drop_first(self, columns: int) -> None:
        """Forgets the first columns of what is `remembered`."""
        caches: list[Any] = self.layers
        for cache in caches:
            cache.start += columns
        self.hidden = [hidden[:, columns:] for hidden in self.hidden]
        self.length = self.remembered()[0].size(1)

    def reorder(self, chosen: Tensor) -> None:
        """Reorders the batch for beam search: row i continues the text of row chosen[i]."""
        for layer in self.layers:
            layer.reorder(chosen)
        self.hidden = [hidden[chosen] for hidden in self.hidden]
        self.source = [source.reorder(chosen) for source in self.source]
        self.attention_mask = None if self.attention_mask is None else self.attention_mask[chosen]
        self.source_attention_mask = (
            None if self.source_attention_mask is None else self.source_attention_mask[chosen]
        )


def mark(batch: int, rows: int, device: torch.device) -> Tensor:
    """Returns an attention mask without padding."""
    return torch.ones(batch, rows, dtype=torch.bool, device=device)


def joined_marks(
    before: Tensor | None, now: Tensor | None, past: int, input_ids: Tensor
) -> Tensor | None:
    """Returns the mask of `past` remembered rows and the new rows; None without any padding."""
    if before is None and now is None:
        return None
    left = mark(input_ids.size(0), past, input_ids.device) if before is None else before
    right = mark(input_ids.size(0), input_ids.size(1), input_ids.device) if now is None else now
    return torch.cat([left, right], 1)


def positions(attention_mask: Tensor | None, past: int, rows: int, device: torch.device) -> Tensor:
    """Returns positions of the newest rows, [B|1, rows]: they count tokens and skip padding."""
    if attention_mask is None:
        return torch.arange(past, past + rows, device=device)[None]
    return (attention_mask.long().cumsum(1) - 1).clamp_min_(0)[:, past:]


def caches(blocks: Iterable[Any], batch: int, capacity: int) -> list[KVCache]:
    """Returns an empty cache for the attention of each block, in the dtype of its norm: the dtype
    of a quantized projection would be smaller."""

    def cache(part: Any) -> KVCache:
        like, form = part.layer.project, part.layer.cache
        shape = (batch, like.kv_heads, capacity, like.size)
        empty: KVCache = form.empty(shape, part.norm.weight)
        return empty

    return [cache(block.attention) for block in blocks]


def compact_caches(model: Any, numbers: str) -> None:
    """From now on, the caches of this model are in "bf16" or "int8". Keys and values are rounded
    when they are stored; sums are computed as before."""
    if numbers not in CACHES:
        raise UnknownName("cache", numbers, CACHES)
    if not keeps_caches(model):
        raise ConfigError(
            f"this {type(model).__name__} has no cache of keys and values that could "
            f"be kept in {numbers}; leave the option out"
        )
    for part in model.modules():
        if isinstance(part, Attention):
            part.cache = CACHES[numbers]


def keeps_caches(model: Any) -> bool:
    """Returns whether a model remembers the keys and values of earlier tokens. Beside a pointer,
    Transformer-XL remembers hidden states."""
    projects = hasattr(model, "projected") and "pointer" not in model.extensions
    return model.decoding in ("kv_cache", "cross") or (model.decoding == "recurrent" and projects)


def recall(
    state: State | None, attention_mask: Tensor | None, input_ids: Tensor, layers: int
) -> tuple[Tensor | None, int, list[Memory]]:
    """Returns the mask of all rows so far (None: no padding), the number of rows before, and each
    layer's memory."""
    if state is None:
        return attention_mask, 0, [HERE] * layers
    past = state.length
    marks = state.extend(attention_mask, input_ids)
    return marks, past, [*state.layers[:layers]] if state.layers else [HERE] * layers


def everything(attention_mask: Tensor | None, rows: int, dtype: torch.dtype) -> Pattern:
    """Returns a pattern in which all rows see all keys that are not padding."""
    if attention_mask is None:
        return Full()
    hidden = torch.where(attention_mask, 0, Ordered.HIDDEN)
    return Ordered(
        torch.zeros(1, rows, dtype=hidden.dtype, device=attention_mask.device), hidden, dtype
    )


def causal(attention_mask: Tensor | None, past: int, dtype: torch.dtype) -> Pattern:
    """Returns a causal pattern; `attention_mask` [B, past + rows] is False at padding."""
    if attention_mask is None:
        return Causal(past)
    order = torch.arange(attention_mask.size(1), device=attention_mask.device)[None]
    return Ordered(order[:, past:], torch.where(attention_mask, order, Ordered.HIDDEN), dtype)


class KnowledgeView:
    """Knowledge that a caller may have of a batch beyond its tokens. This base class adds none:
    positions are counted, and rows see what the model lets them see. A caller with more knowledge
    (the branches of a sentence tree, the edges of a graph) passes the encoder another
    `KnowledgeView`."""

    def positions(self, attention_mask: Tensor | None, rows: int, device: torch.device) -> Tensor:
        """Returns the position of each row, [B|1, T]."""
        return positions(attention_mask, 0, rows, device)

    def distances(self, counted: Tensor) -> Tensor:
        """Returns the distance key - query, [B|1, Q, K]; by default it is `counted`."""
        return counted

    def view(
        self,
        pattern: Pattern,  # the model's own pattern
        dtype: torch.dtype,
        *,
        bias: Tensor | None = None,
        distances: Distances | None = None,
        asking: Tensor | None = None,  # [B, G]: the query rows, if not all are; -1 is no row
    ) -> View:
        return View(pattern, bias, distances)

    def only_text(self, past: int, targets: Tensor | None) -> None:
        """Refuses knowledge about a text with a past, or with targets to predict."""


NOTHING = KnowledgeView()
