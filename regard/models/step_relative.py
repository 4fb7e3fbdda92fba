"""The native step of Transformer-XL: relative scores, and a memory that forgets.

The layers are read by native code. The adaptive embedding and output stay the model's own: they
multiply with parts of tables that depend on the tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.attention.memory import RECENT, KVCache
from regard.attention.native.decode import DecoderPlan, PlanPart, SubLayer
from regard.attention.position import sinusoids
from regard.models.base import check_tokens
from regard.models.recurrent import ALL
from regard.models.state import State, joined_marks

FIRST = 64  # the least distances of a table


def describe_transformer_xl(model: Any, say: Any) -> tuple[PlanPart, list[SubLayer]]:
    parts: list[SubLayer] = say.blocks(model.blocks)
    if model.limits.reach < ALL:
        for part in parts[::2]:  # the attention of each layer
            part.band = model.limits.reach
    return PlanPart(), parts


class RelativeSteps:
    """What a Stepper of relative scores does otherwise."""

    CACHES: tuple[type[KVCache], ...] = tuple(RECENT.values())
    model: Any
    plan: DecoderPlan
    known = 0  # the distances that the tables hold
    tables: list[Tensor]

    @staticmethod
    def describe_words(model: Any, plan: PlanPart, say: Any) -> None:
        """Leaves the embedding and the output to the model."""
        plan.width = model.config.width

    def serves(self, state: State) -> bool:
        caches: list[Any] = state.layers
        for cache in caches:
            cache.make_room(1)
        able: bool = super().serves(state)  # type: ignore[misc]
        return able

    def read(self, tokens: Tensor, state: State) -> Tensor:
        """Reads the tokens [rows] and returns log-probabilities of the next ones [rows, V]."""
        check_tokens(tokens[:, None], self.model.config.vocab_size)
        caches: list[Any] = state.layers
        first = caches[0]
        marks = joined_marks(state.attention_mask, None, first.rows, tokens[:, None])
        hidden_before = 0 if marks is None else marks.logical_not().sum(1)
        starts = torch.full_like(tokens, first.start) + hidden_before
        self.reach(first.rows + 1)
        x = self.model.tokens(tokens).float().contiguous()  # autocast may have shortened it
        memories = [(cache.keys, cache.values) for cache in caches]
        hidden = self.plan.step(tokens, starts, first.length, memories, inputs=x)
        for cache in caches:
            cache.length += 1
        self.model.limits.remember(state, [x[:, None]], marks)
        logits: Tensor = self.model.logits(hidden)
        return logits.float()

    def reach(self, keys: int) -> None:
        """Projects the distances of so many keys, if the tables do not hold them yet."""
        limits = self.model.limits
        most = min(limits.clamp_len, limits.mem_len) + 1  # the distances that differ
        if self.known >= min(keys, most):
            return
        self.known = min(max(keys, 2 * self.known, FIRST), most)
        table = sinusoids(torch.arange(self.known), self.model.config.width)
        self.tables = []
        for block, part in zip(self.model.blocks, self.plan.parts[::2], strict=True):
            score = block.attention.layer.score
            far = score.distance(table).unflatten(-1, score.u.shape)
            self.tables.append(far.transpose(0, 1).float().contiguous())
            part.far, part.reach = self.tables[-1].data_ptr(), self.known
