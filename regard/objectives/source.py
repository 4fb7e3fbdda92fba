"""A source and its target: what the objectives share whose loss counts only the target.

A sample is one row: the source and then the target. A decoder reads this row from left to right
and, with `both_sides`, the source from both sides. For an encoder-decoder the row is split, and the
decoder begins with the model's own start token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.models.adaptive import AdaptiveOutput
from regard.models.output import SoftTarget
from regard.models.state import State
from regard.objectives.base import Batch, Loss, Objective, Sample, perplexity
from regard.objectives.causal import padding
from regard.objectives.reading import (
    check_reading_on,
    has_source,
    inner,
    read_on,
    reads_on,
    refuse,
    sees_prefixes,
    surprise,
)


class BatchShape(NamedTuple):
    """The shape of a batch: the most tokens of a row, of a source and of a target."""

    row: int
    source: int
    target: int


class SourceTarget(Objective):
    """The base class. Subclasses implement `pair` and set the attributes below in `prepare`."""

    comparable = True
    room: BatchShape  # the shape of the largest sample
    # A batch is as wide as its samples, rounded up to a multiple of this; 0: always `room`.
    multiple: int = 0
    sources_full: bool = False  # True if all sources have the full length
    both_sides: bool = False  # True if a decoder sees the source from both sides

    def pair(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens of the source and of the target."""
        raise NotImplementedError

    def soft(self, model: Any) -> SoftTarget | None:
        """Returns a softer loss for training; None for the plain cross-entropy."""
        return None

    def sample(self, epoch: int, index: int) -> Sample:
        source, target = self.pair(epoch, index)
        sizes = np.array([len(source), len(target)])
        return {"tokens": np.concatenate([source, target]), "sizes": sizes}

    def collate(self, samples: Sequence[Sample]) -> Batch:
        sizes = np.stack([sample["sizes"] for sample in samples])
        room = self.room
        if self.multiple:
            largest = BatchShape(int(sizes.sum(1).max()), *sizes.max(0).tolist())
            room = BatchShape(
                *(
                    min(-(-size // self.multiple) * self.multiple, most)
                    for size, most in zip(largest, room, strict=True)
                )
            )
        tokens, source, target = (
            np.full((len(samples), width), padding(self.corpus), np.int64) for width in room
        )
        for i, (sample, (first, second)) in enumerate(zip(samples, sizes, strict=True)):
            tokens[i, : first + second] = sample["tokens"]
            source[i, :first] = sample["tokens"][:first]
            target[i, :second] = sample["tokens"][first:]
        place, first, last = np.arange(room.row), sizes[:, :1], sizes.sum(1, keepdims=True)
        arrays = {
            "tokens": tokens,
            "sizes": sizes,
            "scored": (place >= first) & (place < last),
            "source": source,
            "source_attention_mask": np.arange(room.source) < sizes[:, :1],
            "target": target,
            "target_scored": np.arange(room.target) < sizes[:, 1:],
        }
        return {name: torch.from_numpy(value) for name, value in arrays.items()}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float(batch["sizes"][:, 1].sum())}

    def hidden(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Returns hidden states [B, T, width], their targets [B, T], and which ones count."""
        if not has_source(type(inner(model))):
            prefix = batch["sizes"][:, 0] if self.both_sides else None
            row, scored = batch["tokens"], batch["scored"]
            return read_on(model, row[:, :-1], prefix=prefix), row[:, 1:], scored[:, 1:]
        target, attention_mask = (
            batch["target"],
            None if self.sources_full else batch["source_attention_mask"],
        )
        start = torch.full_like(target[:, :1], inner(model).config.start_id)
        begun = torch.cat([start, target[:, :-1]], 1)
        return model(batch["source"], begun, attention_mask), target, batch["target_scored"]

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        soft = self.soft(model) if self.learning else None
        nats = surprise(model, *self.hidden(model, batch), soft)
        return Loss({self.name: nats}, self.counted(batch))

    def check(self, model: Any) -> None:
        ours = inner(model)
        if not has_source(type(ours)):
            can = sees_prefixes if self.both_sides else reads_on
            if not can(type(ours)):
                wanted = "a target from its source"
                wanted += " that is seen from both sides" if self.both_sides else ""
                raise refuse(model, wanted, lambda kind: has_source(kind) or can(kind))
            if self.both_sides and getattr(ours.config, "band", None) is not None:
                raise ConfigError(
                    "a GPT with a band cannot see a source from both sides; choose band = None"
                )
            check_reading_on(model, self.room.row - 1)
        if self.soft(model) is not None and isinstance(ours.output, AdaptiveOutput):
            raise ConfigError(
                "label smoothing and z_loss need an output of one matrix, and this model has an "
                "adaptive softmax; set both to 0"
            )

    def measure(self, totals: Loss) -> dict[str, float]:
        return {"perplexity": perplexity(float(totals.sums[self.name]), totals.counts[self.name])}
