"""The objective of `embed`: contrastive learning, or a regression of the cosine of two texts.

Contrastive learning is a softmax over the positives and hard negatives of the whole step: of all of
them, the text must be nearest to its own positive (Oord et al. 2018; Henderson et al. 2017). So a
step cannot be divided into parts that do not see each other. `chunk` divides the work instead: the
texts are encoded a few at a time and once more in the backward pass (Gao et al. 2021b, GradCache),
with the same gradient as in one piece.

Equal passages are one passage: a copy of the right one elsewhere in the step is no negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels import wide
from regard.core.errors import ConfigError, InputError
from regard.core.seeding import permutation
from regard.data.batching import Rows
from regard.data.examples import fingerprint
from regard.data.input_formats import FormattedInput, framed
from regard.formats.registry import base_heads
from regard.formats.sentence import write_pipeline
from regard.models.output import Heads
from regard.objectives.base import Batch, Loss, Sample
from regard.objectives.causal import choose
from regard.tasks.base import Prediction
from regard.tasks.classify import moments, pearson
from regard.tasks.labeled import LabeledObjective
from regard.tasks.multi_row import joined, split_rows
from regard.tasks.pooling import POOLINGS, pooled
from regard.tasks.row_groups import grouped

LOSSES = ("contrastive", "cosine")


@dataclass(frozen=True)
class ContrastOptions:
    family: str = ""  # the family whose input format is used; it is set by the run
    loss: str | None = None  # contrastive, or cosine for scored pairs; None: as the data are
    temperature: float = 0.05  # of the softmax over cosines
    symmetric: bool = False  # the positive must find its text, too; the mean of both losses
    pooling: str | None = None  # mean, first, last or max; None: causal models last, others mean
    normalize: bool = True  # vectors are saved to have length 1; a cosine is the same without
    # Widths of the beginnings of a vector that are learned to be good vectors themselves
    # (Kusupati et al. 2022); the losses of all of them are added.
    matryoshka: list[int] = field(default_factory=list)
    chunk: int | None = None  # encode at most N texts at once, again in the backward pass
    score_range: list[float] | None = None  # the lowest and the highest score; None: 0 and 1


class Contrast(LabeledObjective):
    Options: ClassVar[type] = ContrastOptions
    name = "embed"
    first_is_global = False

    @property
    def best_by(self) -> Literal["loss", "metric"]:  # type: ignore[override]
        """In a batch, the accuracy stands still long before the vectors do."""
        return "loss" if self.contrastive else "metric"

    def prepare(self) -> None:
        o = self.options
        if not (isinstance(o.temperature, float | int) and 0 < o.temperature < math.inf):
            raise ConfigError(f"objective.temperature is {o.temperature!r}; it must be above 0")
        if o.pooling is not None:
            choose("pooling", o.pooling, POOLINGS)
        if o.chunk is not None and o.chunk < 1:
            raise ConfigError(f"objective.chunk is {o.chunk}; it must be at least 1")
        examples: Any = self.corpus.examples
        self.loss_kind = o.loss or self.kind_of_data(examples)
        choose("loss", self.loss_kind, LOSSES)
        self.contrastive = self.loss_kind == "contrastive"
        self.whole_steps = self.contrastive
        super().prepare()
        self.pooling = o.pooling or ("last" if self.causal else "mean")
        self.gold = np.array([self.scaled(e) for e in examples], np.float32)

    def kind_of_data(self, examples: Sequence[Any]) -> str:
        scored = [example.score is not None for example in examples]
        if any(scored) and not all(scored):
            place = examples[scored.index(False)].place
            raise InputError(
                f"{place}: this record has no score and others have one; learn from two files"
            )
        return "cosine" if all(scored) else "contrastive"

    def scaled(self, example: Any) -> float:
        """Returns a score as the cosine that it stands for: from 0 to 1."""
        if self.contrastive or example.score is None:
            if self.corpus.split in ("train", "valid") and not self.contrastive:
                raise InputError(f"{example.place}: the record has no score to learn from")
            return 0.0
        low, high = self.options.score_range or (0.0, 1.0)
        if not low < high or not low <= example.score <= high:
            raise InputError(
                f"{example.place}: the score is {example.score:g}, and scores are from {low:g} to "
                f"{high:g}; give their range, such as objective.score_range=[1,5]"
            )
        return float((example.score - low) / (high - low))

    # -- rows

    def prepare_rows(self) -> None:
        self.lengths: list[np.ndarray] = []
        self.keys: list[np.ndarray] = []
        super().prepare_rows()

    def encode(self) -> tuple[Rows, Rows]:
        rows, segments = [], []
        for texts, group in self.groups():
            self.cut += any(row.cut for row in group)
            sample = joined(group)
            self.lengths.append(sample["lengths"])
            keys = [int.from_bytes(fingerprint(text)[:7], "big") for text in texts]
            self.keys.append(np.array(keys, np.int64))
            rows.append(sample["tokens"])
            segments.append(sample["segments"])
        return rows, segments

    def groups(self) -> Iterator[tuple[list[str], list[FormattedInput]]]:
        """Yields the texts of each example and their rows: the text, its positive, negatives."""
        examples: Any = self.corpus.examples
        texts = [[e.text, e.text if e.positive is None else e.positive, *e.negatives]
                 for e in examples]  # fmt: skip
        every = list(dict.fromkeys(text for several in texts for text in several))
        ids = dict(zip(every, self.texts(every), strict=True))
        for several in texts:
            yield several, [self.row(ids[text]) for text in several]

    def row(self, ids: list[int]) -> FormattedInput:
        """Builds a row as `regard embed` does."""
        if not self.causal:
            return framed(self.frame, self.corpus.special, ids, None, self.seq_len)
        tokens = ids[: self.seq_len] or [self.corpus.special.end]
        return FormattedInput(tokens, [0] * len(tokens), len(ids) > self.seq_len)

    def notes(self) -> list[str]:
        """Adds whether the tokenizer of the directory reads a text as this objective does: then
        sentence-transformers gives the same vectors."""
        fast = self.corpus.tokenizer.ready
        plain, marked = (fast.encode("a", add_special_tokens=mark).ids for mark in (False, True))
        if not self.learning or self.row(plain).ids == marked:
            return super().notes()
        return [
            *super().notes(),
            "the post-processor of the tokenizer puts other special tokens around a text than this "
            "model reads, so sentence-transformers will give other vectors than 'regard embed'",
        ]

    @cached_property
    def longest(self) -> int:
        return max(int(sizes.max()) for sizes in self.lengths)

    @property
    def rows_at_once(self) -> int | None:
        return self.options.chunk

    def order(self, epoch: int) -> np.ndarray | None:
        """Returns a random order: rows of a step are sorted by length later, and negatives of one
        length only would be others."""
        epoch = epoch if self.learning else 0
        cached = self.order_of
        if cached[0] != epoch:
            cached = self.order_of = epoch, permutation(len(self), self.seed, "order", epoch)
        return cached[1]

    def plain(self, index: int) -> Sample:
        sample = super().plain(index)
        return sample | {"lengths": self.lengths[index], "keys": self.keys[index]}

    def extra(self, index: int) -> Sample:
        return {"gold": self.gold[index]}

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Returns the rows in groups of similar length. `place` says where each row of (texts,
        positives, negatives) stands among the rows of all groups; `keys` are hashes of the texts,
        and `owner` the sample of each negative."""
        split = [split_rows(sample) for sample in samples]
        rows = [each[0] for each in split] + [each[1] for each in split]
        rows += [row for each in split for row in each[2:]]
        keys = [s["keys"][0] for s in samples] + [s["keys"][1] for s in samples]
        keys += [key for s in samples for key in s["keys"][2:]]
        sizes = np.array([len(row["tokens"]) for row in rows])
        groups = grouped(sizes, self.options.chunk)
        order = np.concatenate(groups)
        batch: Batch = {
            str(i): super(Contrast, self).collate([rows[place] for place in group])
            for i, group in enumerate(groups)
        }
        counts = [len(each) - 2 for each in split]
        alone = {
            "place": np.argsort(order),
            "keys": np.array(keys, np.int64),
            "owner": np.repeat(np.arange(len(samples)), counts),
            "gold": np.array([sample["gold"] for sample in samples], np.float32),
        }
        return batch | {name: torch.from_numpy(value) for name, value in alone.items()}

    @staticmethod
    def groups_in(batch: Batch) -> list[Batch]:
        return [value for value in batch.values() if isinstance(value, dict)]

    def tokens_in(self, batch: Batch) -> int:
        return sum(int(group["attention_mask"].sum()) for group in self.groups_in(batch))

    # -- learning

    def heads(self) -> Heads | None:
        return base_heads(self.options.family)

    def counts(self, batch: Batch) -> dict[str, float]:
        return {self.name: float(batch["gold"].size(0))}

    def vectors(self, model: Any, batch: Batch) -> Tensor:
        """Returns the vectors [rows, width] in the order texts, positives, negatives."""

        def encode(group: Batch) -> Tensor:
            hidden = self.hidden(model, group)[..., : model.config.width]
            return pooled(wide(hidden), group["attention_mask"], self.pooling)

        again = self.options.chunk is not None and torch.is_grad_enabled()
        parts = [
            checkpoint(encode, group, use_reentrant=False) if again else encode(group)
            for group in self.groups_in(batch)
        ]
        return torch.cat(parts)[batch["place"]]

    def loss(self, model: Any, batch: Batch, state: Any = None) -> Loss:
        vectors = self.vectors(model, batch)
        width = vectors.size(1)
        seen: dict[str, tuple[Tensor, Any]] = {}
        total = vectors.new_zeros(())
        with torch.autocast(vectors.device.type, enabled=False):
            for size in self.widths(width):
                units = F.normalize(vectors[:, :size], dim=1)
                cost, shown = self.cost(units, batch)
                total = total + cost.sum()
                seen = shown if size == width else seen
        return Loss({self.name: total}, self.counted(batch), seen)

    def widths(self, width: int) -> list[int]:
        """Returns the widths that are learned, with the whole vector."""
        shorter = self.options.matryoshka
        if any(isinstance(n, bool) or not 0 < n <= width for n in shorter):
            raise ConfigError(
                f"objective.matryoshka is {shorter}; the vectors have {width} numbers, so give "
                f"widths from 1 to {width}"
            )
        return sorted({width, *shorter}, reverse=True)

    def cost(self, units: Tensor, batch: Batch) -> tuple[Tensor, dict[str, tuple[Tensor, Any]]]:
        """Returns the loss of each text [B], and sums that are only reported."""
        count = batch["gold"].size(0)
        texts, passages = units[:count], units[count:]
        if not self.contrastive:
            cosines = (texts * passages[:count]).sum(1)
            known = torch.ones_like(cosines, dtype=torch.bool)
            shown = {} if self.learning else moments(cosines.detach(), batch["gold"], known)
            return (cosines - batch["gold"]).square(), shown
        own = torch.arange(count, device=units.device)
        scores = texts @ passages.T / self.options.temperature
        keys = batch["keys"][count:]
        copies = keys[None] == keys[:count, None]  # the same passage elsewhere
        copies[own, own] = False
        scores = scores.masked_fill(copies, -torch.inf)
        cost = F.cross_entropy(scores, own, reduction="none")
        if self.options.symmetric:
            back = scores[:, :count].T
            cost = (cost + F.cross_entropy(back, own, reduction="none")) / 2
        right = (scores.argmax(1) == own).sum()
        return cost, {"right": (right, count)}

    def measure(self, totals: Loss) -> dict[str, float]:
        loss = float(totals.sums[self.name]) / max(totals.counts[self.name], 1e-9)
        if not self.contrastive:
            return {"pearson": pearson(totals), "squared_error": loss}
        right, of = totals.seen["right"]
        return {"in_batch_accuracy": float(right) / max(float(of), 1), "loss": loss}

    # -- answers

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        """Returns the vectors of each sample: its text, its positive, its negatives."""
        count = batch["gold"].size(0)
        vectors = F.normalize(self.vectors(model, batch), dim=1).cpu().numpy()
        own = [[vectors[i], vectors[count + i]] for i in range(count)]
        for row, owner in enumerate(batch["owner"].tolist()):
            own[owner].append(vectors[2 * count + row])
        return [np.stack(several) for several in own]

    def merge(self, outputs: list[Any]) -> list[Prediction]:
        """Returns the cosine of each text and its positive, with the vectors of all its texts."""
        return [Prediction(float(rows[0] @ rows[1]), None, rows) for rows in outputs]

    # -- what is kept

    def settled(self) -> dict[str, Any]:
        return super().settled() | {"loss": self.loss_kind, "pooling": self.pooling}

    def save_extras(self, model: Any, out: Path) -> None:
        super().save_extras(model, out)
        write_pipeline(
            out, pooling=self.pooling, normalize=self.options.normalize, length=self.seq_len,
            width=model.config.width,
        )  # fmt: skip
