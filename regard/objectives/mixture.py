"""Several objectives at once, from one corpus or several, in fixed shares.

Raw text alone, labeled tasks as text alone, or both (data-driven, task-driven and mixed
pre-training) are mixtures of text corpora and corpora of pairs. In a recipe:

    [objective]
    name = "mixture"
    parts = [
        { name = "text", objective = "span", share = 0.8 },
        { name = "tasks", objective = "pairs", share = 0.2, data = "data/tasks", options = {} },
    ]

The part of a sample is not random: the parts take turns evenly, so that any n consecutive samples
hold n · share samples of a part, plus or minus one for each part named before it and one for
itself. If share · batch is an integer, every step holds the same number. Each part runs through its
own epochs, so no sample of it comes twice before all came once (Brown et al. 2020, 2.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch

from regard.core.errors import ConfigError
from regard.core.tables import from_table
from regard.data.corpus import Corpus
from regard.models.output import Heads
from regard.models.state import State
from regard.objectives import objective
from regard.objectives.base import Batch, Loss, Objective, Sample


@dataclass(frozen=True)
class MixturePart:
    name: str
    objective: str
    share: float  # its share of the samples, relative to the other parts
    data: str | None = None  # a data directory; None: that of the whole mixture
    weight: float | None = None  # the weight of its losses; None: its share of the samples
    seq_len: int | None = None  # the tokens of its samples; None: those of the mixture
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MixtureOptions:
    parts: Sequence[dict[str, Any]] = ()  # tables with the fields of MixturePart


class Mixture(Objective):
    """A batch holds one batch for each part in it; losses are named part.loss."""

    Options: ClassVar[type] = MixtureOptions
    name = "mixture"

    def prepare(self) -> None:
        parts = [part_of(table) for table in self.options.parts]
        check_parts(parts)
        total = sum(Fraction(str(part.share)) for part in parts)
        shares = [Fraction(str(part.share)) / total for part in parts]
        self.parts = {
            part.name: self.make(part, float(share))
            for part, share in zip(parts, shares, strict=True)
        }
        sizes = [len(part) for part in self.parts.values()]
        self.shares = shares if self.learning else [Fraction(n, sum(sizes)) for n in sizes]
        self.samples = sum(sizes)
        if self.learning:  # an epoch ends when every part has been read once
            self.samples = max(int(-(-n // s)) for n, s in zip(sizes, shares, strict=True))
        self.sums: dict[str, list[str]] = {}
        for part, share, built in zip(parts, shares, self.parts.values(), strict=True):
            names = list(built.counts(built.collate([built.get(0)])))
            self.sums[part.name] = names
            own = max(float(share), 1 / self.batch_size) if part.weight is None else part.weight
            for name in names:
                self.weights[f"{part.name}.{name}"] = own * built.weights.get(name, 1.0)

    def make(self, part: MixturePart, share: float) -> Objective:
        kind = objective(part.objective)
        if kind is Mixture or kind.recurrent:
            raise ConfigError(
                f"part {part.name!r}: {part.objective!r} cannot be mixed, because its samples "
                "depend on each other; use it alone"
            )
        what = f"option of {part.objective!r}"
        options: Any = from_table(kind.Options, part.options, what=what)
        return kind.build(
            self.corpus_of(part),
            options,
            seq_len=part.seq_len or self.seq_len,
            batch_size=max(1, round(self.batch_size * share)),
            seed=self.seed,
            learning=self.learning,
        )

    def corpus_of(self, part: MixturePart) -> Corpus:
        if part.data is None:
            return self.corpus
        other, own = Corpus.open(part.data, self.corpus.split), self.corpus
        if (other.vocab_size, other.special) != (own.vocab_size, own.special):
            raise ConfigError(
                f"part {part.name!r}: {part.data} has {other.vocab_size:,} tokens and "
                f"{own.directory} has {own.vocab_size:,}, or their special tokens differ; prepare "
                f"both with one tokenizer ('regard prepare … --tokenizer {own.directory}')"
            )
        return other

    def __len__(self) -> int:
        return self.samples

    def place(self, number: int) -> tuple[int, int]:
        """Returns the part of sample `number`, and its number in the part over all epochs."""
        rest = Fraction(1)
        for i, share in enumerate(self.shares[:-1]):
            part = share / rest
            before = number * part.numerator // part.denominator
            if (number + 1) * part.numerator // part.denominator > before:
                return i, before
            number, rest = number - before, rest - share
        return len(self.shares) - 1, number

    def get(self, number: int) -> Sample:
        which, own = self.place(number)
        sample = list(self.parts.values())[which].get(own)
        return {"part": np.array(which), **sample}

    def sample(self, epoch: int, index: int) -> Sample:
        return self.get(epoch * len(self) + index)

    def order(self, epoch: int) -> None:
        """Returns None: each part has its own order."""
        return

    def collate(self, samples: Sequence[Sample]) -> Batch:
        batch = {}
        for i, (name, part) in enumerate(self.parts.items()):
            own = [
                {k: v for k, v in sample.items() if k != "part"}
                for sample in samples
                if sample["part"] == i
            ]
            if own:
                batch[name] = part.collate(own)
        return batch

    def names(self) -> Iterable[str]:
        return (f"{part}.{name}" for part, names in self.sums.items() for name in names)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Returns the counts of all parts, absent ones as 0: processes must agree on the names."""
        counts = dict.fromkeys(self.names(), 0.0)
        for name, own in batch.items():
            counts |= prefixed(name, self.parts[name].counts(own))
        return counts

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        device = next(model.parameters()).device
        sums = {name: torch.zeros((), device=device) for name in self.names()}
        counts: dict[str, float] = dict.fromkeys(sums, 0.0)
        seen: dict[str, Any] = {}
        for name, own in batch.items():
            part_loss = self.parts[name].loss(model, own)
            sums |= prefixed(name, part_loss.sums)
            counts |= prefixed(name, part_loss.counts)
            seen |= prefixed(name, part_loss.seen)
        return Loss(sums, counts, seen)

    def heads(self) -> Heads | None:
        of_parts = [heads for part in self.parts.values() if (heads := part.heads()) is not None]
        return (
            {name: size for heads in of_parts for name, size in heads.items()} if of_parts else None
        )

    def check(self, model: Any) -> None:
        for part in self.parts.values():
            part.check(model)

    def measure(self, totals: Loss) -> dict[str, float]:
        """Returns the training loss and the metrics of every part."""
        loss = sum(
            self.weights[name] * float(value) / totals.counts[name]
            for name, value in totals.sums.items()
        )
        figures = {"loss": loss}
        for name, part in self.parts.items():
            own = Loss(
                of_part(name, totals.sums), of_part(name, totals.counts), of_part(name, totals.seen)
            )
            if own.sums:
                figures |= prefixed(name, part.measure(own))
        return figures


def part_of(table: dict[str, Any]) -> MixturePart:
    """Builds a part from its table; the names of its fields are checked."""
    own = {"name": str(table.get("objective", "")), **table}
    return from_table(MixturePart, own, path="objective.parts.", what="field of a mixture's part")


def check_parts(parts: Sequence[MixturePart]) -> None:
    if not parts:
        raise ConfigError(
            "a mixture has no parts; give tables with an objective and a share and, if needed, a "
            "name, data, weight, seq_len and options"
        )
    for name, count in Counter(part.name for part in parts).items():
        if count > 1 or "." in name or not name:
            raise ConfigError(
                f"{count} parts of the mixture have the name {name!r}; names must differ, must "
                "not be empty and must not contain a dot"
            )
    for part in parts:
        weight, seq_len = part.weight or 0.0, 1 if part.seq_len is None else part.seq_len
        if part.share <= 0 or weight < 0 or seq_len < 1:
            raise ConfigError(
                f"part {part.name!r} has share {part.share}, weight {weight} and seq_len "
                f"{seq_len}; a share must be above 0, a weight at least 0, and seq_len at least 1"
            )


def prefixed(part: str, table: dict[str, Any]) -> dict[str, Any]:
    return {f"{part}.{name}": value for name, value in table.items()}


def of_part(part: str, table: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries of one part without its prefix: the inverse of `prefixed`."""
    start = f"{part}."
    return {name[len(start) :]: v for name, v in table.items() if name.startswith(start)}
