"""Causal language modeling with a memory of earlier segments (Dai et al. 2019, 3.2).

The split is divided into as many contiguous streams as a step has samples; in each step every
stream continues where it stopped. The authors drop the remainder of this division. Here nothing is
dropped: the last rows of a stream are padding that does not count, so every token is predicted
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError
from regard.data.corpus import Corpus
from regard.models.recurrent import MemoryLimits
from regard.models.state import State
from regard.objectives.base import Batch, Objective, Sample
from regard.objectives.causal import NextToken, padding, ring, shifted
from regard.objectives.reading import check_reading_on, inner, read_on, refuse


@dataclass(frozen=True)
class RecurrentOptions:
    shift: bool = True  # every epoch begins its streams at another token
    # For validation; None: the same as in training.
    evaluation_length: int | None = None  # the tokens of a segment
    evaluation_mem_len: int | None = None  # the rows that are remembered
    evaluation_clamp_len: int | None = None  # the largest distance


class Recurrent(NextToken):
    """Sample n of an epoch is segment n // batch of stream n % batch."""

    Options: ClassVar[type] = RecurrentOptions
    name = "recurrent"
    recurrent = True

    def prepare(self) -> None:
        o = self.options
        for name, least in (("length", 1), ("mem_len", 0), ("clamp_len", 0)):
            value = getattr(o, f"evaluation_{name}")
            if value is not None and value < least:
                raise ConfigError(f"evaluation_{name} is {value}; it must be at least {least}")
        if not self.learning and o.evaluation_length is not None:
            self.seq_len = o.evaluation_length
        wanted = {"mem_len": o.evaluation_mem_len, "clamp_len": o.evaluation_clamp_len}
        self.other = {field: value for field, value in wanted.items() if value is not None}
        self.stream = -(-len(self.corpus) // self.batch_size)  # the tokens of a stream

    def __len__(self) -> int:
        return self.batch_size * -(-self.stream // self.seq_len)

    def sample(self, epoch: int, index: int) -> Sample:
        stream, start = index % self.batch_size, index // self.batch_size * self.seq_len
        size, offset = len(self.corpus), 0
        if self.learning and self.options.shift:
            offset = shifted(self.seed, epoch, self.seq_len, size)
        first = min(stream * self.stream + start, size)
        last = min(stream * self.stream + min(start + self.seq_len, self.stream), size)
        tokens = np.full(self.seq_len + 1, padding(self.corpus), np.int64)
        tokens[: last - first + 1] = ring(self.corpus, offset + first - 1, offset + last)
        scored = np.arange(self.seq_len) < last - first
        return {"tokens": tokens[:-1], "targets": tokens[1:], "scored": scored}

    def begin(self, model: Any, rows: int) -> State:
        """Returns an empty memory, as in the paper."""
        return State()

    def hidden(self, model: Any, batch: Batch, state: State | None = None) -> Tensor:
        """Returns hidden states [B, T, width]; row t predicts target t. The state is updated."""
        if self.learning or not self.other:
            return read_on(model, batch["tokens"], state)
        return self.with_other_memory(model, batch, state)

    @torch.compiler.disable
    def with_other_memory(self, model: Any, batch: Batch, state: State | None) -> Tensor:
        with configured(model, self.other):
            return read_on(model, batch["tokens"], state)

    @classmethod
    def text_likelihood(cls, corpus: Corpus, **sizes: int) -> Objective | None:
        """Returns an objective with at most as many streams as the corpus has segments."""
        sizes["batch_size"] = max(1, min(sizes["batch_size"], len(corpus) // sizes["seq_len"]))
        return Recurrent(corpus, RecurrentOptions(), learning=False, **sizes)

    def check(self, model: Any) -> None:
        ours = inner(model)
        if not ours.remembers:
            raise refuse(model, "with a memory", lambda kind: kind.remembers)
        check_reading_on(model, self.seq_len)
        if ours.remembers == "vector" and self.other:
            raise ConfigError(f"an LSTM has no {' and no '.join(self.other)}; leave the option out")
        if getattr(ours.config, "mem_len", 0) is None:
            raise ConfigError(
                "this XLNet has mem_len None, so it would remember a whole epoch; set mem_len to "
                "a number of rows"
            )
        if getattr(ours.config, "reuse_len", None) is not None:
            raise ConfigError(
                f"this XLNet remembers only the first {ours.config.reuse_len} rows of a segment; "
                "build it without reuse_len"
            )


@contextmanager
def configured(model: Any, changes: dict[str, int]) -> Iterator[None]:
    """Changes fields of the model's configuration inside the context and then restores them."""
    owner: Any = inner(model)
    own = owner.config
    owner.config = own.replace(**changes)
    owner.limits = MemoryLimits.of(owner.config)
    try:
        yield
    finally:
        owner.config, owner.limits = own, MemoryLimits.of(own)
