"""The code that objectives with labeled examples share. Rows of different lengths are laid out as
their model expects them, and predictions are made with the same code that training uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ConfigError, FormatError
from regard.core.files import read_json, write_json
from regard.data.batching import Ragged, Rows, by_length, padded
from regard.data.input_formats import InputFormat
from regard.models import FAMILIES
from regard.models.family import Family
from regard.objectives.base import Batch, Hooks, Objective, Sample
from regard.objectives.reading import check_room, inner
from regard.tasks import task as find
from regard.tasks.base import Prediction, Task
from regard.tasks.corpus import TaskCorpus
from regard.tasks.knowledge import KnowledgeInputs
from regard.tasks.task_file import TASK, TASK_KINDS
from regard.tasks.task_tokens import grown

ROWS = ("tokens", "segments", "facts")  # the entries of a sample with one value per token


def task_facts(directory: Path) -> dict[str, Any]:
    """Reads task.json of a model directory. Returns an empty table if there is none."""
    file = directory / TASK
    return read_json(file, error=FormatError, advice="restore it", kinds=TASK_KINDS) or {}


def text_writers() -> list[str]:
    """Returns the families that learn every task as text."""
    return [name for name, card in FAMILIES.items() if card.writes_tasks]


class Variants(Protocol):
    """Gives the variant of an example for an epoch, or None to use the example as it is."""

    def of(self, example: Any, epoch: int, index: int) -> Any: ...


class LabeledObjective(Objective, Hooks):
    """An objective for labeled examples. A subclass implements `encode` (the rows), `loss`, and
    `predict` with `merge` (the predictions)."""

    corpus: TaskCorpus  # type: ignore[assignment]
    variants: Variants | None = None  # of the training examples
    varies: ClassVar[bool] = False  # can it use variants?
    stretches = False
    first_is_global: ClassVar[bool] = True  # does a Longformer's first token attend globally?

    @classmethod
    def suits(cls, card: Family) -> bool:
        """Returns whether models of a family can learn this. They need an input format."""
        return card.input_format is not None

    @classmethod
    def learners(cls) -> list[str]:
        """Returns the families that can learn this, encoders first: causal models did something
        else in their papers."""
        able = [card for card in FAMILIES.values() if cls.suits(card)]
        return [card.name for card in sorted(able, key=lambda card: card.model.causal)]

    @property
    def causal(self) -> bool:
        """Whether the model reads from left to right."""
        return self.card.model.causal

    @property
    def task(self) -> Task:
        return find(self.corpus.task)

    def prepare(self) -> None:
        family, task = self.options.family, self.task
        if family not in FAMILIES or not self.suits(FAMILIES[family]):
            writers = text_writers()
            others = f" ({' and '.join(writers)} learn it as text)" if task.writable else ""
            raise ConfigError(
                f"{family or 'this model'} cannot learn {task.name} with a head; these can: "
                f"{', '.join(self.learners())}{others}"
            )
        self.card = FAMILIES[family]
        assert self.card.input_format is not None
        self.frame: InputFormat = self.card.input_format
        self.prepare_rows()

    def prepare_rows(self) -> None:
        self.cut = 0  # the number of rows that were too long
        rows, segments = self.encode()
        self.knowledge = KnowledgeInputs.of(self)  # None: only the examples are used
        if self.knowledge is not None:
            rows, segments = self.knowledge.inform(self, rows, segments)
        self.rows, self.segments = Ragged(rows), Ragged(segments, np.int8)

    def encode(self) -> tuple[Rows, Rows]:
        """Returns the ids and the segments of every row. Other facts are stored by row index."""
        raise NotImplementedError

    def texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of many texts at once, without special tokens."""
        fast = self.corpus.tokenizer.ready
        return [e.ids for e in fast.encode_batch_fast(list(texts), add_special_tokens=False)]

    @property
    def note(self) -> str:
        return "; ".join(self.notes())

    def notes(self) -> list[str]:
        """Returns what a user should know about the data before a run."""
        lines = list(self.corpus.notes)
        lines += self.cut_notes(self.cuts(), f" of the {self.corpus.split} data")
        if self.knowledge is not None:
            lines += self.knowledge.notes(self.corpus.split, self.learning)
        return lines

    # -- rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def mean_len(self) -> float:
        return float(self.rows.sizes.mean())

    @cached_property
    def max_len(self) -> int:
        """The number of tokens of the longest sample. A sample may be several rows."""
        return int(self.rows.sizes.max())

    @property
    def longest(self) -> int:
        """The number of tokens of the longest row that a model reads."""
        return self.max_len

    def order(self, epoch: int) -> np.ndarray | None:
        """Returns the order of the samples in an epoch. In validation it is always the same one, in
        which the first samples are like the others."""
        epoch = epoch if self.learning else 0
        cached = self.order_of
        if cached[0] != epoch:
            order = by_length(self.rows.sizes, self.batch_size, self.seed, epoch)
            cached = self.order_of = epoch, order
        return cached[1]

    def sample(self, epoch: int, index: int) -> Sample:
        varied = None if self.variants is None else self.variant(epoch, index)
        if varied is not None and self.knowledge is not None:
            varied = self.knowledge.varied(varied, self)
        return self.plain(index) if varied is None else varied

    def plain(self, index: int) -> Sample:
        """Returns a row as it was encoded."""
        return {
            "tokens": self.rows[index],
            "segments": self.segments[index],
            **({} if self.knowledge is None else self.knowledge.sample(index)),
            **self.extra(index),
        }

    def variant(self, epoch: int, index: int) -> Sample | None:
        """Returns the row of a variant of an example, encoded now, or None to use the example as it
        is.

        Rows are ordered by the lengths of the examples. A variant is about as long as its example;
        one that is longer than the longest example is not used, so a batch that fits in memory
        still does.
        """
        raise NotImplementedError

    def extra(self, index: int) -> Sample:
        """Returns what a sample holds in addition to its row, such as its label."""
        return {}

    def collate(self, samples: Sequence[Sample]) -> Batch:
        pad = self.corpus.special.pad
        tokens, attention_mask = self.table(samples, "tokens", 0 if pad is None else pad)
        arrays: dict[str, np.ndarray] = {"tokens": tokens, "attention_mask": attention_mask}
        if self.frame.segments:
            arrays["segments"] = self.table(samples, "segments", self.frame.beyond)[0]
        for name in samples[0]:
            if name not in ROWS:
                arrays[name] = np.stack([sample[name] for sample in samples])
        known = {} if self.knowledge is None else self.knowledge.collate(samples, tokens)
        return {name: torch.from_numpy(value) for name, value in arrays.items()} | known

    def table(self, samples: Sequence[Sample], name: str, fill: int) -> tuple[Any, Any]:
        rows = [sample[name] for sample in samples]
        return padded(rows, fill, left=self.frame.left)

    def tokens_in(self, batch: Batch) -> int:
        return int(batch["attention_mask"].sum())

    def targets_in(self, batch: Batch) -> int:
        return 0

    best_by = "metric"

    def better(self, new: float, old: float) -> bool:
        """Returns whether `new` is better: the first figure of every task should be high."""
        return new > old

    @property
    def word_loss(self) -> str:
        return ""

    # -- the model

    def hidden(self, model: Any, batch: Batch) -> Tensor:
        """Returns hidden states [B, T, width]."""
        tokens, attention_mask, extra = batch["tokens"], batch["attention_mask"], {}
        if self.causal:
            ahead: Tensor = model(tokens)  # padding is on the right, so no token attends to it
            return ahead
        if self.frame.segments:
            extra["segments"] = batch["segments"]
        if "global_tokens" in inner(model).accepts:
            extra["global_tokens"] = self.global_rows(batch)
        if self.knowledge is not None:
            extra |= self.knowledge.given(batch)
        y: Tensor = model(tokens, None if bool(attention_mask.all()) else attention_mask, **extra)
        return y

    def global_rows(self, batch: Batch) -> Tensor:
        """Returns a Longformer's tokens with global attention: the first ([CLS]), or none."""
        tokens: Tensor = batch["tokens"]
        if self.first_is_global:
            return tokens.new_zeros(tokens.size(0), 1)
        return torch.zeros_like(tokens, dtype=torch.bool)

    def adapt_model(self, model: Any) -> Any:
        if self.card.task_tokens:
            return grown(model, max(self.corpus.vocab_size, self.corpus.special.ids()[-1] + 1))
        model = LabeledObjective.opened(self, model, None)
        return model if self.knowledge is None else self.knowledge.fitted(model)

    def check(self, model: Any) -> None:
        family = inner(model).family.name
        if family != self.options.family:
            raise ConfigError(
                f"the model is a {family}, but this objective is for {self.options.family}; give a "
                f"{self.options.family}"
            )
        check_room(model, self.longest)
        config, last = inner(model).config, int(self.segments.flat.max(initial=0))
        if last >= getattr(config, "segments", last + 1) and self.frame.segments:
            raise ConfigError(
                f"two texts need {last + 1} segments, and this model learned {config.segments}; "
                "give one text, or a model with more segments"
            )
        if self.knowledge is not None:
            self.knowledge.check(inner(model))

    # -- answers

    def cut_notes(self, counts: Counter[str], data: str = "") -> list[str]:
        """Reports too long texts from the counts of `cuts`; `data` says which texts they are."""
        if not counts["cut"]:
            return []
        return [
            f"{counts['cut']:,} of {counts['examples']:,} texts{data} have more than "
            f"{self.seq_len:,} tokens and were cut"
        ]

    def cuts(self) -> Counter[str]:
        """Counts the examples that were cut, or read in windows."""
        return Counter(examples=len(self.corpus), cut=self.cut)

    def predict(self, model: Any, batch: Batch) -> list[Any]:
        """Returns the output of the model for each row of a batch, as plain values."""
        raise NotImplementedError

    def merge(self, outputs: list[Any]) -> list[Prediction]:
        """Returns one prediction for each example, from the outputs of all rows in order."""
        raise NotImplementedError

    # -- what is kept

    def settled(self) -> dict[str, Any]:
        return {} if self.knowledge is None else {"knowledge": self.knowledge.settled()}

    def hf_config(self) -> dict[str, Any]:
        labels = self.corpus.labels
        if not labels:
            return {}
        return {
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
        }

    def opened(self, model: Any, directory: Path | None) -> Any:
        """Returns a loaded model with what `save_extras` wrote beside it. An XLNet that learned
        half of its text backwards reads all of it forwards."""
        model.read_forwards()
        return model

    def save_extras(self, model: Any, out: Path) -> None:
        """Writes task.json, which holds all that is needed to use the model for its task."""
        known = {} if self.knowledge is None else {"knowledge": self.knowledge.keep(out)}
        facts = {
            "task": self.corpus.task,
            "objective": {"name": self.name, **asdict(self.options), **self.settled(), **known},
            "labels": self.corpus.labels,
            "length": self.seq_len,
        }
        write_json(out / TASK, facts)
