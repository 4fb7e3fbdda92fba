"""What all objectives share.

An objective turns a corpus into samples, samples into a batch, and a batch into a loss. A sample is
a pure function of (seed, epoch, index): every process gets the same one. Losses are sums with
counts, so that micro-batches and processes add up exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.core.seeding import permutation
from regard.data.corpus import Corpus
from regard.models.output import Heads
from regard.models.state import State

Sample = dict[str, np.ndarray]
Batch = dict[str, Any]  # name -> tensor; in a mixture, part -> batch


@dataclass
class Loss:
    """Sums in nats with their counts of targets. The training loss is Σ weight · sum / count."""

    sums: dict[str, Tensor]
    counts: dict[str, float]
    # Only reported: (sum, count). Both may be tensors, so that a compiled graph does not break.
    seen: dict[str, tuple[Tensor, Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class HeadAnswers:
    """The answers of a head for a batch, in the form in which two models are compared.

    Each row holds the logits of one distribution [K], or of several [P, K], which are averaged.
    """

    loss_name: str  # the name of the loss that is computed from these answers
    scores: Tensor  # [rows, K] or [rows, P, K]; there may be two dimensions of rows
    shares: Tensor | None = None  # [rows]: the weight of each row in the loss; None: all equal
    eligible: Tensor | None = None  # [rows, K] or [rows, 1, K]: the allowed classes; None: all
    asked: Tensor | None = None  # [rows]: which rows are answers, labeled or not; None: all
    regression: bool = False  # True if the scores are numbers [rows, 1] instead of logits


def yes_or_no(logits: Tensor) -> Tensor:
    """Turns logits [...] of "yes" into logits of two classes [..., 2]; that of "no" is 0."""
    return torch.stack([logits, torch.zeros_like(logits)], -1)


class Objective:
    """A way of learning from a corpus.

    A subclass declares `Options` (a frozen dataclass of what a recipe may set) and defines the
    samples and the loss.
    """

    Options: ClassVar[type]
    name: ClassVar[str]
    recurrent: ClassVar[bool] = False  # True if samples are contiguous streams with a state
    queries: ClassVar[bool] = False  # True if only XLNet's query rows are trained
    in_streams: bool = False  # True if independent samples come in the order of such streams
    # True if the loss compares the samples of a step with each other, so that a step is one batch.
    whole_steps: bool = False
    stretches: bool = True  # True if samples are pieces of a text; False: separate examples
    weights: dict[str, float]  # the weights of the sums; 1 unless set

    def __init__(
        self,
        corpus: Corpus,
        options: Any,
        *,
        seq_len: int,  # the tokens of a sample
        batch_size: int,  # the samples of a step, over all processes
        seed: int,
        learning: bool = True,  # False: validation, in which nothing may depend on the epoch
    ) -> None:
        self.corpus, self.options = corpus, options
        self.seq_len, self.batch_size = seq_len, batch_size
        self.seed, self.learning = seed, learning
        self.weights = {}
        self.order_of: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))
        self.prepare()
        if len(self) == 0:
            raise too_short(corpus, seq_len)

    @classmethod
    def build(cls, corpus: Corpus, options: Any, *, learning: bool, **sizes: int) -> Objective:
        """Builds an objective for training or, with `learning=False`, the one that validates it,
        which mostly has the same class. `sizes` are seq_len, batch_size and seed."""
        return cls(corpus, options, learning=learning, **sizes)

    def prepare(self) -> None:
        """Computes what is needed once, at the end of the constructor."""

    @property
    def note(self) -> str:
        """What a user should know about the samples before a run; "" for nothing."""
        return ""

    def __len__(self) -> int:
        """Returns the number of samples of one epoch."""
        raise NotImplementedError

    def sample(self, epoch: int, index: int) -> Sample:
        """Returns one sample, as a pure function of (seed, epoch, index)."""
        raise NotImplementedError

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Stacks samples of equal shapes."""
        return {k: torch.from_numpy(np.stack([s[k] for s in samples])) for k in samples[0]}

    @property
    def mean_len(self) -> float:
        """The mean number of tokens of a sample."""
        return float(self.seq_len)

    @property
    def max_len(self) -> int:
        """The number of tokens of the largest sample, for which a step must have memory."""
        return self.seq_len

    @property
    def longest(self) -> int:
        """The tokens of the longest row that a model reads; a sample may have several rows."""
        return self.max_len

    @property
    def rows_at_once(self) -> int | None:
        """The most rows whose activations are in memory together; None: all rows of a batch."""
        return None

    def tokens_in(self, batch: Batch) -> int | None:
        """Returns the tokens of a batch without padding; None if every sample has `seq_len`."""
        return None

    def counts(self, batch: Batch) -> dict[str, float]:
        """Returns the number of targets of each sum, before the model reads the batch."""
        raise NotImplementedError

    def counted(self, batch: Batch) -> dict[str, float]:
        """Returns the counts; {} in a compiled graph, which would break at every number."""
        return {} if torch.compiler.is_compiling() else self.counts(batch)

    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        """Returns the loss of a batch. `model` may be any object that is called like one of our
        models and has the same `output`, `read`, `heads`, `training` and `modules`."""
        raise NotImplementedError

    def begin(self, model: Any, rows: int) -> State | None:
        """Returns the state of `rows` streams at the start of an epoch; batches pass it on."""
        return None

    def heads(self) -> Heads | None:
        """Returns the heads that an encoder needs; None: the model is built as it is."""
        return None

    def check(self, model: Any) -> None:
        """Refuses a model that cannot learn this objective."""

    # -- how two passes of a model, or a student and its teacher, are compared

    comparable: ClassVar[bool] = False  # True if the answers of two models can be compared

    @property
    def word_loss(self) -> str:
        """The name of the loss of predicted words."""
        return self.name

    def head_answers(self, scores: Mapping[str, Tensor], batch: Batch) -> list[HeadAnswers]:
        """Returns the answers that `loss` read from heads; `scores` are the outputs of the heads by
        name (see `regard.training.capture`)."""
        return []

    def answer_counts(self, batch: Batch) -> dict[str, float]:
        """Returns how many rows `head_answers` gives for each loss, also rows without a label."""
        return {}

    # -- what a model that was trained with this objective can do

    pipeline_tag: ClassVar[str] = ""  # the pipeline tag of the Hugging Face Hub
    continues: ClassVar[bool] = True  # True if it can continue a text
    fills_blanks: ClassVar[bool] = False  # True if it can fill blanks inside a text
    writes_answers: ClassVar[bool] = False  # True if it answers a text with another text
    exact_bits: ClassVar[bool] = False  # True if `measure` counts every token of a text

    @classmethod
    def text_likelihood(cls, corpus: Corpus, **sizes: int) -> Objective | None:
        """Returns an objective that measures how likely a text is under a trained model, token by
        token; None if that is not defined. `sizes` are seq_len, batch_size and seed."""
        return None

    @classmethod
    def separate_texts(cls, config: Any) -> dict[str, Any]:
        """Returns its options for unrelated texts; `config` is the model's configuration."""
        return {}

    def targets_in(self, batch: Batch) -> int:
        """Returns how many rows of a batch need logits of the whole vocabulary."""
        return int(sum(self.counts(batch).values()))

    def measure(self, totals: Loss) -> dict[str, float]:
        """Returns metrics from the sums of a whole validation, the most important one first."""
        raise NotImplementedError

    # What chooses the model that is kept, unless the recipe says it: the loss, or the "metric", the
    # first figure of `measure`. Models that guess words say the same ones for long, and their
    # accuracy tells them apart less well than their loss does.
    best_by: Literal["loss", "metric"] = "loss"

    def better(self, new: float, old: float) -> bool:
        """Returns whether the first metric of `measure` has improved."""
        return new < old

    def badness(self, totals: Loss) -> float:
        """Returns the loss of a validation: the sum of the losses with their weights."""
        weights = ((name, self.weights.get(name, 1.0)) for name in totals.sums)
        return sum(w * float(totals.sums[n]) / max(totals.counts[n], 1e-9) for n, w in weights)

    # -- which samples form a step

    def order(self, epoch: int) -> np.ndarray | None:
        """Returns the order of an epoch's samples; None: they are not reordered."""
        if self.recurrent or not self.learning:
            return None
        epoch = 0 if self.in_streams else epoch  # streams are the same in every epoch
        cached = self.order_of  # read once: the thread that prepares batches writes it, too
        if cached[0] != epoch:
            if self.in_streams:
                order = streams(len(self), self.batch_size)
            else:
                order = permutation(len(self), self.seed, "order", epoch)
            cached = self.order_of = epoch, order
        return cached[1]

    def arrange(self, places: list[int]) -> list[int]:
        """Returns the order of samples in a micro-batch; `places` are indices in the step."""
        return places

    def get(self, number: int) -> Sample:
        """Returns sample `number` of the whole training, counted over all epochs."""
        epoch, place = divmod(number, len(self))
        order = self.order(epoch)
        return self.sample(epoch, place if order is None else int(order[place]))


class Hooks:
    """What an objective of a task or a method adds to a run besides its loss.

    An objective that adds something inherits from this class, too; training calls these methods and
    knows nothing else of tasks and methods.
    """

    def adapt_model(self, model: Any) -> Any:
        """Returns the model with what it lacks for this objective: rows for new tokens, or an added
        part. The model may be on the meta device; random weights come from torch's generator."""
        return model

    def auxiliary_models(self) -> list[str]:
        """Returns the directories of models that a step uses besides the trained one. A step
        depends on them and needs memory for them, and no checkpoint holds them."""
        return []

    def settled(self) -> dict[str, Any]:
        """Returns options that the data decided; the validation then uses them, too."""
        return {}

    def on_train_end(self, model: Any, valid: Objective | None) -> None:
        """Is called once before saving, in evaluation mode, with the validation objective."""

    def hf_config(self) -> dict[str, Any]:
        """Returns fields for the config.json of a model that was trained with this objective."""
        return {}

    def save_extras(self, model: Any, out: Path) -> None:
        """Writes the other files that are needed to use a saved model."""


def hooks_of(objective: Objective) -> Hooks:
    """Returns the objective itself if it has hooks, else hooks that do nothing."""
    return objective if isinstance(objective, Hooks) else Hooks()


def streams(samples: int, batch: int) -> np.ndarray:
    """Returns the order of samples in which `batch` readers each read a contiguous part."""
    each, longer = divmod(samples, batch)  # the first `longer` parts have one more sample
    starts = np.arange(batch) * each + np.minimum(np.arange(batch), longer)
    order = (np.arange(each)[:, None] + starts).reshape(-1)
    return np.concatenate([order, starts[:longer] + each])


def too_short(corpus: Corpus, length: int) -> InputError:
    return InputError(
        f"the {corpus.split} split has {len(corpus):,} tokens, too few for one sample of {length}; "
        f"prepare more text, or choose a smaller --seq-len, such as {max(1, len(corpus) // 4)}"
    )


def perplexity(nats: float, count: float) -> float:
    return float(np.exp(min(nats / max(count, 1.0), 700.0)))
