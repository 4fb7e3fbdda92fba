"""What a model remembers between two calls, what it is told of a batch beyond the tokens, and who
sees whom because of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from regard.attention.memory import HERE, CrossKV, KVCache, Memory
from regard.attention.pattern import Causal, Full, Ordered, Pattern
from regard.attention.position import Distances, View


@dataclass
class State:
    """Handed to `model(..., state=state)`, which updates it.

    A cache for each of `layers`, or what each layer had as input, `hidden` [B, M, width] (an LSTM:
    its pair of vectors); behind those of the layers stands what an output remembers, if it does
    (`Output.rows`). `attention_mask` marks which remembered rows are no padding, so that positions
    go on counting real tokens.
    """

    layers: list[KVCache] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    source: list[CrossKV] = field(default_factory=list)
    source_attention_mask: Tensor | None = None
    attention_mask: Tensor | None = None
    length: int = 0

    def extend(self, attention_mask: Tensor | None, input_ids: Tensor) -> Tensor | None:
        """Takes note of the new rows; gives the marks of all so far, None while all are real."""
        self.attention_mask = joined_marks(
            self.attention_mask, attention_mask, self.length, input_ids
        )
        self.length += input_ids.size(1)
        return self.attention_mask

    def reorder(self, chosen: Tensor) -> None:
        """Beams: row i continues what row chosen[i] was."""
        for layer in self.layers:
            layer.reorder(chosen)
        self.hidden = [hidden[chosen] for hidden in self.hidden]
        self.source = [source.reorder(chosen) for source in self.source]
        self.attention_mask = None if self.attention_mask is None else self.attention_mask[chosen]
        self.source_attention_mask = (
            None if self.source_attention_mask is None else self.source_attention_mask[chosen]
        )


def mark(batch: int, rows: int, device: torch.device) -> Tensor:
    """All real."""
    return torch.ones(batch, rows, dtype=torch.bool, device=device)


def joined_marks(
    before: Tensor | None, now: Tensor | None, past: int, input_ids: Tensor
) -> Tensor | None:
    """Which of `past` remembered rows and of the new ones are real; None while all are."""
    if before is None and now is None:
        return None
    left = mark(input_ids.size(0), past, input_ids.device) if before is None else before
    right = mark(input_ids.size(0), input_ids.size(1), input_ids.device) if now is None else now
    return torch.cat([left, right], 1)


def positions(attention_mask: Tensor | None, past: int, rows: int, device: torch.device) -> Tensor:
    """Positions of the newest rows, [B|1, rows]: they count real tokens, whatever the padding."""
    if attention_mask is None:
        return torch.arange(past, past + rows, device=device)[None]
    return (attention_mask.long().cumsum(1) - 1).clamp_min_(0)[:, past:]


def caches(blocks: Iterable[Any], batch: int, capacity: int) -> list[KVCache]:
    """One empty cache for the attention of each block, in the numbers of its rows: a projection's
    own may be smaller.
    """

    def buffer(part: Any) -> Tensor:
        like = part.layer.project
        return part.norm.weight.new_zeros(batch, like.kv_heads, capacity, like.size)  # type: ignore[no-any-return]

    return [KVCache(buffer(block.attention), buffer(block.attention)) for block in blocks]


def recall(
    state: State | None, attention_mask: Tensor | None, input_ids: Tensor, layers: int
) -> tuple[Tensor | None, int, list[Memory]]:
    """Marks of all rows so far (None: all real), how many came before, each layer's memory."""
    if state is None:
        return attention_mask, 0, [HERE] * layers
    past = state.length
    marks = state.extend(attention_mask, input_ids)
    return marks, past, [*state.layers[:layers]] if state.layers else [HERE] * layers


def everything(attention_mask: Tensor | None, rows: int, dtype: torch.dtype) -> Pattern:
    """All rows see all real keys; without padding there is nothing to hide."""
    if attention_mask is None:
        return Full()
    hidden = torch.where(attention_mask, 0, Ordered.HIDDEN)
    return Ordered(
        torch.zeros(1, rows, dtype=hidden.dtype, device=attention_mask.device), hidden, dtype
    )


def causal(attention_mask: Tensor | None, past: int, dtype: torch.dtype) -> Pattern:
    """Rows see what came before; `attention_mask` [B, past + rows] says which keys are no
    padding.
    """
    if attention_mask is None:
        return Causal(past)
    order = torch.arange(attention_mask.size(1), device=attention_mask.device)[None]
    return Ordered(order[:, past:], torch.where(attention_mask, order, Ordered.HIDDEN), dtype)


class KnowledgeView:
    """What a caller may know of a batch beyond its tokens. This one knows nothing more than what is
    written: positions are counted, and rows see what the model lets them see. Whoever knows better
    (the branches of a sentence tree, the edges of a graph) hands the encoder another
    `KnowledgeView`.
    """

    def positions(self, attention_mask: Tensor | None, rows: int, device: torch.device) -> Tensor:
        """Where each row stands, [B|1, T]."""
        return positions(attention_mask, 0, rows, device)

    def distances(self, counted: Tensor) -> Tensor:
        """How far each key stands behind each row, [B|1, Q, K]; as written it is `counted`."""
        return counted

    def view(
        self,
        pattern: Pattern,  # what the model itself lets rows see
        dtype: torch.dtype,
        *,
        bias: Tensor | None = None,
        distances: Distances | None = None,
        asking: Tensor | None = None,  # [B, G]: which rows ask, where not all do; -1 is none
    ) -> View:
        return View(pattern, bias, distances)

    def only_text(self, past: int, targets: Tensor | None) -> None:
        """Refuses what cannot be known of a text with a past, or with words to guess."""


NOTHING = KnowledgeView()
