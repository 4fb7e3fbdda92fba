"""The objectives that score whole examples: one text, two texts in both orders, or a question with
its choices.

A sample may be several rows. With GPT a language modeling loss is added to the loss of the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels import wide_dtype
from regard.core.errors import ConfigError, InputError
from regard.data.batching import Rows
from regard.data.input_formats import FormattedInput, bare
from regard.models import FAMILIES
from regard.models.family import Family
from regard.objectives.base import Batch, Loss, Sample
from regard.tasks.labeled import ROWS, LabeledObjective

LANGUAGE = "language"  # the name of the language modeling loss


@dataclass(frozen=True)
class MultiRowOptions:
    family: str = ""  # the family whose input format is used; it is set by the run
    auxiliary: float | None = None  # the weight of the language modeling loss; None: the paper's
    marks: bool = True  # False: a GPT reads no special tokens; the head reads its last token
    knowledge: dict[str, Any] = field(default_factory=dict)  # see regard.tasks.knowledge


class MultiRow(LabeledObjective):
    """An objective that scores whole examples. A subclass implements `groups_of` (the rows of each
    example), `judged` (the scores of each example) and `nats` (their loss)."""

    several = True  # False: every sample is one row
    counted_by: ClassVar[str] = "known"  # the entry of a batch with the weights of the examples
    varies = True

    def prepare_rows(self) -> None:
        self.auxiliary = self.language_weight()
        self.weights = {LANGUAGE: self.auxiliary} if self.auxiliary else {}
        super().prepare_rows()

    def settled(self) -> dict[str, Any]:
        return super().settled() | {"auxiliary": self.auxiliary}

    def language_weight(self) -> float:
        weight, paper = self.options.auxiliary, self.card.auxiliary_loss
        if weight is None:
            return paper or 0.0
        if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
            raise ConfigError(f"objective.auxiliary is {weight!r}; it must be a number from 0 on")
        if weight and paper is None:
            able = [name for name in self.learners() if FAMILIES[name].auxiliary_loss is not None]
            raise ConfigError(
                f"objective.auxiliary is {weight:g}, but {self.card.name} has no language modeling "
                f"loss beside a head; leave it out, or use {', '.join(able)}"
            )
        return float(weight)

    # -- rows

    def encode(self) -> tuple[Rows, Rows]:
        if not self.options.marks:
            check_bare(self.card)
            self.frame = bare(self.frame)
        self.lengths: list[np.ndarray] = []  # the lengths of the rows of each sample
        rows, segments = [], []
        for group in self.groups():
            self.cut += any(row.cut for row in group)
            sample = joined(group)
            if self.several:
                self.lengths.append(sample["lengths"])
            rows.append(sample["tokens"])
            segments.append(sample["segments"])
        return rows, segments

    def groups(self) -> Iterator[list[FormattedInput]]:
        return self.groups_of(self.corpus.examples)

    def groups_of(self, examples: Any) -> Iterator[list[FormattedInput]]:
        """Yields the rows of each example."""
        raise NotImplementedError

    def check_known(self, known: np.ndarray) -> None:
        """Refuses training or validation data that has no label at all."""
        if self.corpus.split in ("train", "valid") and not known.any():
            raise InputError(f"none of the examples of the {self.corpus.split} data has a label")

    @cached_property
    def longest(self) -> int:
        if not self.several:
            return self.max_len
        return max(int(sizes.max()) for sizes in self.lengths)

    def plain(self, index: int) -> Sample:
        sample = super().plain(index)
        return sample | {"lengths": self.lengths[index]} if self.several else sample

    def variant(self, epoch: int, index: int) -> Sample | None:
        assert self.variants is not None
        example = self.variants.of(self.corpus.examples[index], epoch, index)
        if example is None:
            return None
        sample = joined(next(self.groups_of([example])))
        lengths = sample["lengths"]
        if lengths.sum() > self.max_len or lengths.max() > self.longest:
            return None
        if not self.several:
            del sample["lengths"]
        return sample | self.extra(index)

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Returns a batch in which tokens are those of all rows [R, T]. `rows` [B, K] holds the row
        indices of each sample, and `held` [B, K] says which of them exist."""
        if not self.several:
            return super().collate(samples)
        batch = super().collate([row for sample in samples for row in split_rows(sample)])
        counts = np.array([len(sample["lengths"]) for sample in samples])
        place = np.arange(counts.max())
        inside = place < counts[:, None]
        rows = np.where(inside, (np.cumsum(counts) - counts)[:, None] + place, 0)
        alone = [name for name in samples[0] if name not in (*ROWS, "lengths")]
        rest = {name: np.stack([sample[name] for sample in samples]) for name in alone}
        rest |= {"rows": rows, "held": inside}
        return batch | {name: torch.from_numpy(value) for name, value in rest.items()}

    # -- learning

    def scores(self, model: Any, batch: Batch) -> Tensor:
        return self.judged(model, self.hidden(model, batch), batch)

    def judged(self, model: Any, hidden: Tensor, batch: Batch) -> Tensor:
        """Returns the scores [B, C]; each column is a class or a choice."""
        raise NotImplementedError

    def nats(self, scores: Tensor, batch: Batch) -> tuple[Tensor, dict[str, tuple[Tensor, Any]]]:
        """Returns the loss of each example, [B], and sums that are only reported."""
        raise NotImplementedError

    def counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float(batch[self.counted_by].sum())} | self.language_counts(batch)

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        hidden = self.hidden(model, batch)
        each, seen = self.nats(self.judged(model, hidden, batch), batch)
        own = {self.name: (each * batch[self.counted_by]).sum()}
        sums = own | self.language_sums(model, hidden, batch)
        return Loss(sums, self.counted(batch), seen)

    def mean_loss(self, totals: Loss) -> float:
        return float(totals.sums[self.name]) / max(totals.counts[self.name], 1e-9)

    def measure(self, totals: Loss) -> dict[str, float]:
        right, examples = totals.seen["right"]
        return {"accuracy": float(right) / max(examples, 1), "loss": self.mean_loss(totals)}

    def answer_counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float(batch[self.counted_by].size(0))}

    # -- the model

    def hf_config(self) -> dict[str, Any]:
        """Returns config.json entries. transformers finds a GPT's last token by `pad_token_id`."""
        special = self.corpus.special
        pad = special.end if special.pad is None else special.pad
        return super().hf_config() | ({"pad_token_id": pad} if self.causal else {})

    # -- the language model beside the task

    @property
    def word_loss(self) -> str:
        return LANGUAGE

    @property
    def reads_on(self) -> bool:
        return bool(self.auxiliary) and self.learning

    def language_counts(self, batch: Batch) -> dict[str, float]:
        return {LANGUAGE: float(batch["tokens"].size(0))} if self.reads_on else {}

    def language_sums(self, model: Any, hidden: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns the mean surprisal of the tokens of each row except the first token, summed over
        the rows, as in openai's finetune-transformer-lm."""
        if not self.reads_on:
            return {}
        words, scored = batch["tokens"][:, 1:], batch["attention_mask"][:, 1:]
        shares = scored.to(wide_dtype(hidden.dtype)) / scored.sum(1, keepdim=True).clamp_min(1)
        rows = hidden[:, :-1]
        if torch.compiler.is_compiling():  # torch.compile needs fixed shapes
            parts = rows.flatten(0, 1), words.flatten(), shares.flatten()
        else:
            parts = rows[scored], words[scored], shares[scored]
        return {LANGUAGE: model.output.surprisal(*parts)}

    def targets_in(self, batch: Batch) -> int:
        return int(batch["attention_mask"][:, 1:].sum()) if self.reads_on else 0


def joined(rows: Sequence[FormattedInput]) -> Sample:
    """Concatenates the rows of a sample."""
    return {
        "tokens": np.fromiter(chain.from_iterable(row.ids for row in rows), np.int32),
        "segments": np.fromiter(chain.from_iterable(row.segments for row in rows), np.int8),
        "lengths": np.array([len(row.ids) for row in rows], np.int64),
    }


def check_bare(card: Family) -> None:
    """Refuses to leave out special tokens that the model has read since its pretraining."""
    if not card.task_tokens:
        able = [name for name, other in FAMILIES.items() if other.task_tokens]
        raise ConfigError(
            f"objective.marks is false, but {card.name} needs its special tokens; only "
            f"{', '.join(able)} can do without them"
        )


def split_rows(sample: Sample) -> list[Sample]:
    """Splits a sample into its rows."""
    ends = np.cumsum(sample["lengths"])[:-1]
    names = [name for name in ROWS if name in sample]
    parts = (np.split(sample[name], ends) for name in names)
    return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
