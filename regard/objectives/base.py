"""What all ways of learning share.

An objective turns a corpus into samples, samples into a batch, and a batch into a loss. A sample
is a pure function of (seed, epoch, index): whichever process asks, it gets the same one. Losses
are sums with counts, so that micro-batches and processes add up exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.core.seeding import permutation
from regard.data.corpus import Corpus
from regard.models.output import Heads
from regard.models.state import State

Sample = dict[str, np.ndarray]
Batch = dict[str, Any]  # of tensors; a mixture's holds batches


@dataclass
class Loss:
    """Sums in nats, each over so many targets. What learns is Σ weight · sum / count."""

    sums: dict[str, Tensor]
    counts: dict[str, float]
    # Only reported: (sum, of how many). Both may be tensors, so that no graph breaks at a number.
    seen: dict[str, tuple[Tensor, Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class HeadAnswers:
    """What a head says of a batch, in the form in which two models are compared by it.

    Each row holds the logits of one distribution [K], or of several [P, K] whose mean counts.
    """

    loss_name: str  # of the loss that is computed from these answers
    scores: Tensor  # [rows, K] or [rows, P, K]; there may be two dimensions of rows
    shares: Tensor | None = None  # [rows]: how much each row counts in the loss; None: all alike
    eligible: Tensor | None = None  # [rows, K] or [rows, 1, K]: what can be chosen; None: all
    asked: Tensor | None = None  # [rows]: which rows are answers, labeled or not; None: all
    regression: bool = False  # the scores are numbers [rows, 1], and no logits


def yes_or_no(logits: Tensor) -> Tensor:
    """The logits [...] of yes as those of two classes [..., 2]: that of no is 0."""
    return torch.stack([logits, torch.zeros_like(logits)], -1)


class Objective:
    """A way of learning from a corpus.

    A subclass declares `Options` (a frozen dataclass: what a recipe may set) and says how a sample
    is made and what the loss is.
    """

    Options: ClassVar[type]
    name: ClassVar[str]
    recurrent: ClassVar[bool] = False  # samples are contiguous streams and a state goes along
    queries: ClassVar[bool] = False  # only rows that ask for a word learn, and no others
    in_streams: bool = False  # samples that stand alone come in the order of such streams
    stretches: bool = True  # samples are stretches of a text; else each is an example of its own
    weights: dict[str, float]  # of the sums; 1 unless set

    def __init__(
        self,
        corpus: Corpus,
        options: Any,
        *,
        length: int,  # tokens of a sample
        batch: int,  # samples of a step, over all processes
        seed: int,
        learning: bool = True,  # False: validation, where nothing may depend on the epoch
    ) -> None:
        self.corpus, self.options = corpus, options
        self.length, self.batch, self.seed, self.learning = length, batch, seed, learning
        self.weights = {}
        self.order_of: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))
        self.prepare()
        if len(self) == 0:
            raise too_short(corpus, length)

    @classmethod
    def build(cls, corpus: Corpus, options: Any, *, learning: bool, **sizes: int) -> Objective:
        """One to learn by, or one that validates what learns by this: mostly of the same kind.
        `sizes` are length, batch and seed.
        """
        return cls(corpus, options, learning=learning, **sizes)

    def prepare(self) -> None:
        """What is computed once."""

    @property
    def note(self) -> str:
        """What a user should know of the samples before a run; "" for nothing."""
        return ""

    def __len__(self) -> int:
        """Samples of one epoch."""
        raise NotImplementedError

    def sample(self, epoch: int, index: int) -> Sample:
        """A pure function of (seed, epoch, index)."""
        raise NotImplementedError

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Samples of equal shapes, one above the other."""
        return {k: torch.from_numpy(np.stack([s[k] for s in samples])) for k in samples[0]}

    @property
    def mean_len(self) -> float:
        """Tokens of a sample, in the mean."""
        return float(self.length)

    @property
    def max_len(self) -> int:
        """Tokens of the largest sample: what a step must have memory for."""
        return self.length

    @property
    def longest(self) -> int:
        """Tokens of the longest row that a model reads: of one sample there may be several."""
        return self.max_len

    def tokens_in(self, batch: Batch) -> int | None:
        """Tokens of a batch without padding; None where every sample has `length`."""
        return None

    def counts(self, batch: Batch) -> dict[str, float]:
        """Over how many targets each sum will run: known before the model has seen the batch."""
        raise NotImplementedError

    def counted(self, batch: Batch) -> dict[str, float]:
        """The counts, but not inside of a compiled graph, which would break at every number."""
        return {} if torch.compiler.is_compiling() else self.counts(batch)

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        """`model` may be anything that is called like one of ours and answers as one of ours does
        by its `output`, `read`, `heads`, `training` and `modules`.
        """
        raise NotImplementedError

    def begin(self, model: Any, rows: int) -> State | None:
        """What goes along from batch to batch of `rows` streams, at the start of an epoch."""
        return None

    def heads(self) -> Heads | None:
        """Heads that an encoder needs to learn this; None: the model is built as it is."""
        return None

    def check(self, model: Any) -> None:
        """Refuses a model that cannot learn this."""

    # -- what two passes of a model, or a student and its teacher, are compared by

    comparable: ClassVar[bool] = False  # can the answers of two models be compared?

    @property
    def word_loss(self) -> str:
        """The name of the loss of guessed words."""
        return self.name

    def head_answers(self, scores: Mapping[str, Tensor], batch: Batch) -> list[HeadAnswers]:
        """The answers that `loss` read from heads; `scores` are what each head gave, by its name
        (see `regard.training.capture`).
        """
        return []

    def answer_counts(self, batch: Batch) -> dict[str, float]:
        """How many rows `head_answers` gives for each loss, those without a label included."""
        return {}

    # -- what a model that has learned this can be asked

    pipeline_tag: ClassVar[str] = ""  # the word of the Hugging Face hub for what it can do
    continues: ClassVar[bool] = True  # can it go on with a text?
    fills_blanks: ClassVar[bool] = False  # can it guess what is missing inside of a text?
    writes_answers: ClassVar[bool] = False  # does it answer a text with another?
    exact_bits: ClassVar[bool] = False  # does `measure` give the bits of every token of a text?

    @classmethod
    def text_likelihood(cls, corpus: Corpus, **sizes: int) -> Objective | None:
        """An objective that asks such a model how likely a text is, token by token; None where it
        cannot say. `sizes` are length, batch and seed.
        """
        return None

    @classmethod
    def separate_texts(cls, config: Any) -> dict[str, Any]:
        """Its options for texts that do not go on from one to the next; `config` is the model's."""
        return {}

    def targets_in(self, batch: Batch) -> int:
        """How many rows of a batch need logits of the whole vocabulary."""
        return int(sum(self.counts(batch).values()))

    def measure(self, totals: Loss) -> dict[str, float]:
        """What people read, from the sums of a whole validation; the most telling one first."""
        raise NotImplementedError

    def better(self, new: float, old: float) -> bool:
        """Is the first figure of `measure` better so?"""
        return new < old

    def badness(self, totals: Loss) -> float:
        """What the model that is kept has least of: the loss. An accuracy would keep the oldest of
        many models that guess the same words.
        """
        weights = ((name, self.weights.get(name, 1.0)) for name in totals.sums)
        return sum(w * float(totals.sums[n]) / max(totals.counts[n], 1e-9) for n, w in weights)

    # -- which samples make a step

    def order(self, epoch: int) -> np.ndarray | None:
        """The order of an epoch's samples; None: as they come."""
        if self.recurrent or not self.learning:
            return None
        epoch = 0 if self.in_streams else epoch  # the same in every epoch
        cached = self.order_of  # in one piece: the thread that prepares batches writes it, too
        if cached[0] != epoch:
            if self.in_streams:
                order = streams(len(self), self.batch)
            else:
                order = permutation(len(self), self.seed, "order", epoch)
            cached = self.order_of = epoch, order
        return cached[1]

    def arrange(self, places: list[int]) -> list[int]:
        """The order in which a micro-batch holds its samples; places are those in the step."""
        return places

    def get(self, number: int) -> Sample:
        """Sample `number` of the whole training, counted over all epochs."""
        epoch, place = divmod(number, len(self))
        order = self.order(epoch)
        return self.sample(epoch, place if order is None else int(order[place]))


class Hooks:
    """What an objective of a task or of a method adds to a run, besides what it learns.

    An objective that adds something inherits from this, too; training asks at these places and
    knows nothing else of tasks and methods.
    """

    def adapt_model(self, model: Any) -> Any:
        """The model with what it lacks for this: rows for new tokens, a part of its own. It may
        have no memory for its weights yet; random ones come from torch's generator.
        """
        return model

    def auxiliary_models(self) -> list[str]:
        """The directories of models that a step asks beside the one that learns. A step depends on
        them and needs memory for them, and no checkpoint holds them.
        """
        return []

    def settled(self) -> dict[str, Any]:
        """Options that the data decided; what validates then goes by them, too."""
        return {}

    def on_train_end(self, model: Any, valid: Objective | None) -> None:
        """Called once before the model is saved, in evaluation, with what validates."""

    def hf_config(self) -> dict[str, Any]:
        """What belongs into config.json of a model that has learned this."""
        return {}

    def save_extras(self, model: Any, out: Path) -> None:
        """Writes beside a saved model what else is needed to use it."""


def hooks_of(objective: Objective) -> Hooks:
    """The objective itself where it adds something, else hooks that do nothing."""
    return objective if isinstance(objective, Hooks) else Hooks()


def streams(samples: int, batch: int) -> np.ndarray:
    """Samples that tile a text, as `batch` readers see them that each read a stretch of it."""
    each, longer = divmod(samples, batch)  # so many stretches have one more
    starts = np.arange(batch) * each + np.minimum(np.arange(batch), longer)
    order = (np.arange(each)[:, None] + starts).reshape(-1)
    return np.concatenate([order, starts[:longer] + each])


def too_short(corpus: Corpus, length: int) -> InputError:
    return InputError(
        f"the {corpus.split} split has {len(corpus):,} tokens, too few for one sample of {length}; "
        "give more text or a smaller length"
    )


def perplexity(nats: float, count: float) -> float:
    return float(np.exp(min(nats / max(count, 1.0), 700.0)))
