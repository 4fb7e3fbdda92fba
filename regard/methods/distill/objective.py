"""Distillation: a student learns the outputs of its teacher, for any objective that can be
distilled.

It wraps another objective and adds losses that compare the student with a frozen teacher on the
same batch. In a recipe:

    [objective]
    name = "distill"
    of = "masked"           # the objective that is distilled, and its options
    teacher = "my-bert"
    style = "distilbert"
    options = { share = 0.15 }

The losses, each with its weight:
    soft        T² · KL(teacher ‖ student) of the logits at temperature T (Hinton et al. 2015)
    hard        the loss of the objective itself
    cosine      1 - cos of the last hidden states (Sanh et al. 2019)
    hidden      mean squared error of hidden states, through one shared matrix if widths differ
    attention   mean squared error of the attention scores before the softmax
    embedding   mean squared error of the first layer's input (these three: Jiao et al. 2020, 3.1)

Validation uses the inner objective alone, so a student is chosen and measured by its own task.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import nn

from regard.core.errors import ConfigError, UnknownName
from regard.core.tables import fields_of, from_table
from regard.data.corpus import Corpus
from regard.methods.distill.layers import StackStates, capture_layers
from regard.methods.distill.losses import angles
from regard.methods.distill.parts import (
    SOFT,
    UnscoredCapture,
    answer_counts,
    answer_sums,
    distilled_kind,
    is_text_objective,
    last_rows,
    layer_counts,
    layer_sums,
    real_rows,
)
from regard.methods.distill.teacher import Teacher, check_student, mapped
from regard.models.output import Heads
from regard.models.state import State
from regard.objectives.base import Batch, Hooks, Loss, Objective, Sample, hooks_of
from regard.objectives.causal import choose
from regard.objectives.reading import inner as plain
from regard.training.capture import Capture

LAYERS = ("hidden", "attention", "embedding")
PARTS = ("soft", "hard", "cosine", *LAYERS)


class DistillStyle(NamedTuple):
    """The weights of the losses, as a paper has them."""

    temperature: float = 1.0
    soft: float = 0.0
    hard: float = 0.0
    cosine: float = 0.0
    hidden: float = 0.0
    attention: float = 0.0
    embedding: float = 0.0
    only: str = "targets"


# TinyBERT learns the layers first and the logits afterwards. Its code averages the cross-entropy
# over the classes: that is the loss here but for a constant and the number of classes as a factor.
STYLES = {
    "hinton": DistillStyle(2.0, soft=0.5, hard=0.5),
    "distilbert": DistillStyle(2.0, soft=5.0, hard=2.0, cosine=1.0, only="all"),
    "tinybert": DistillStyle(hidden=1.0, attention=1.0, embedding=1.0),
    "tinybert-answers": DistillStyle(soft=1.0),
}


@dataclass(frozen=True)
class DistillObjectiveOptions:
    """The options of the objective. An option that is None comes from the style, or is decided by
    the data."""

    of: str | None = None  # the objective that is distilled
    options: dict[str, Any] = field(default_factory=dict)  # of that objective
    teacher: str | None = None  # a model directory
    style: str = "hinton"  # distilbert, tinybert (the layers), tinybert-answers (after them)
    temperature: float | None = None
    soft: float | None = None
    hard: float | None = None
    cosine: float | None = None
    hidden: float | None = None
    attention: float | None = None
    embedding: float | None = None
    only: str | None = None  # compare logits at the "targets", or at "all" tokens but padding
    mapping: str | Sequence[int] = "uniform"  # "top", or the teacher's layer (from 1) for each
    family: str = ""  # filled in by the run: the input format of a labeled example
    marks: bool = True  # for a labeled objective: False if the teacher reads no special tokens
    digest: str | None = None  # filled in by the run: of the teacher's weights


class Distill(Objective, Hooks):
    """The objective of distillation. Its batches, heads, answers and metrics are those of the inner
    objective."""

    Options: ClassVar[type] = DistillObjectiveOptions
    name = "distill"
    inner: Objective

    @classmethod
    def build(cls, corpus: Corpus, options: Any, *, learning: bool, **sizes: int) -> Objective:
        """Builds the objective. Validation needs only the inner objective, and no teacher."""
        kind = cls if learning else inner_objective
        return kind(corpus, options, learning=learning, **sizes)

    def prepare(self) -> None:
        o = self.options
        sizes = {"seq_len": self.seq_len, "batch_size": self.batch_size, "seed": self.seed}
        self.inner = inner_objective(self.corpus, o, learning=self.learning, **sizes)
        self.seq_len, self.stretches = self.inner.seq_len, self.inner.stretches
        self.recurrent = self.inner.recurrent  # type: ignore[misc]
        self.chosen = chosen_style(o)
        self.wanted = {part for part in PARTS if getattr(self.chosen, part)}
        self.layers = self.wanted & set(LAYERS)
        self.teacher = Teacher(o.teacher, self.inner, o.digest)
        self.every = self.chosen.only == "all"
        if self.every and not is_text_objective(o.of):
            raise ConfigError(
                f'objective.only is "all", but {o.of} has logits at its targets only; leave it out'
            )
        first = self.collate([self.get(0)])
        self.weights = {name: self.weight(name) for name in self.counts(first)}

    def weight(self, name: str) -> float:
        """Returns the weight of one loss: the weight of its part, times the weight that the inner
        objective gives it."""
        within = self.inner.weights
        if name.startswith(SOFT):
            return self.chosen.soft * within.get(name.removeprefix(SOFT), 1.0)
        part = name.rpartition("_")[2]  # without the name of a stack
        part = "attention" if part == "cross" else part
        if part in PARTS:
            return float(getattr(self.chosen, part))
        return self.chosen.hard * within.get(name, 1.0)

    # -- the inner objective

    @property
    def note(self) -> str:
        return self.inner.note

    def __len__(self) -> int:
        return len(self.inner)

    def sample(self, epoch: int, index: int) -> Sample:
        return self.inner.sample(epoch, index)

    def order(self, epoch: int) -> Any:
        self.inner.in_streams = self.in_streams
        return self.inner.order(epoch)

    def arrange(self, places: list[int]) -> list[int]:
        return self.inner.arrange(places)

    def collate(self, samples: Sequence[Sample]) -> Batch:
        return self.inner.collate(samples)

    @property
    def mean_len(self) -> float:
        return self.inner.mean_len

    @property
    def max_len(self) -> int:
        return self.inner.max_len

    @property
    def longest(self) -> int:
        return self.inner.longest

    def tokens_in(self, batch: Batch) -> int | None:
        return self.inner.tokens_in(batch)

    def targets_in(self, batch: Batch) -> int:
        rows = answer_counts(self.inner, batch, every=self.every, pair=self.teacher.pair)
        words = int(next(iter(rows.values()))) if is_text_objective(self.options.of) else 0
        return max(words, self.inner.targets_in(batch))

    def auxiliary_models(self) -> list[str]:
        return [str(self.teacher.path)]

    def begin(self, model: Any, rows: int) -> State | None:
        return self.inner.begin(model, rows)

    def heads(self) -> Heads | None:
        return self.inner.heads()

    def hf_config(self) -> dict[str, Any]:
        return hooks_of(self.inner).hf_config()

    def save_extras(self, model: Any, out: Path) -> None:
        hooks_of(self.inner).save_extras(model, out)

    def measure(self, totals: Loss) -> dict[str, float]:
        return self.inner.measure(totals)

    @property
    def best_by(self) -> Literal["loss", "metric"]:  # type: ignore[override]
        return self.inner.best_by

    def better(self, new: float, old: float) -> bool:
        return self.inner.better(new, old)

    def settled(self) -> dict[str, Any]:
        """Returns the style in numbers, and what the data decided about the inner objective."""
        return self.chosen._asdict() | {
            "options": dict(self.options.options) | hooks_of(self.inner).settled(),
            "digest": self.teacher.digest,
        }

    # -- the student

    def adapt_model(self, model: Any) -> Any:
        """Adds the matrix from the student's width to the teacher's. It belongs to the student only
        during training."""
        model = hooks_of(self.inner).adapt_model(model)
        theirs = self.teacher.config.width
        if self.layers - {"attention"} and model.config.width != theirs:
            model.fit = nn.Linear(model.config.width, theirs)
        return model

    def on_train_end(self, model: Any, valid: Objective | None) -> None:
        if hasattr(model, "fit"):
            del model.fit
        hooks_of(self.inner).on_train_end(model, valid)

    def check(self, model: Any) -> None:
        self.inner.check(model)
        check_student(plain(model), self.teacher, self.wanted)
        self.mapping(model)

    def mapping(self, model: Any) -> dict[str, list[int]]:
        """Returns, for each stack, the teacher's layer (counted from 1) for each layer of the
        student."""
        if not self.layers:
            return {}
        return {
            name: mapped(self.options.mapping, len(layers), self.teacher.layers[name])
            for name, layers in plain(model).stacks().items()
        }

    # -- learning

    def counts(self, batch: Batch) -> dict[str, float]:
        counts = dict(self.inner.counts(batch)) if "hard" in self.wanted else {}
        if "soft" in self.wanted:
            soft = answer_counts(self.inner, batch, every=self.every, pair=self.teacher.pair)
            counts |= {f"{SOFT}{name}": count for name, count in soft.items()}
        rows = real_rows(self.inner, batch, self.teacher.pair)
        if "cosine" in self.wanted:
            counts["cosine"] = float(last_rows(rows).sum())
        return counts | layer_counts(rows, self.layers)

    @torch.compiler.disable
    def loss(self, model: Any, batch: Batch, state: State | None = None) -> Loss:
        """Runs the inner objective on both models and compares their outputs. It is not compiled,
        because the hooks that capture the layers would break the graph at every layer."""
        seen = Capture(model) if "hard" in self.wanted else UnscoredCapture(model)
        own, theirs = split_state(state, self.teacher.depth)
        with self.heard(model) as ours:
            plain_loss = self.inner.loss(seen, batch, own)
        teacher = UnscoredCapture(self.teacher.like(model))
        with torch.no_grad(), self.heard(teacher.model) as its:
            self.inner.loss(teacher, batch, theirs)
        join_states(state, own, theirs)
        sums = dict(plain_loss.sums) if "hard" in self.wanted else {}
        rows = real_rows(self.inner, batch, self.teacher.pair)
        if "soft" in self.wanted:
            softened = answer_sums(
                self.inner,
                seen,
                teacher,
                batch,
                temperature=self.chosen.temperature,
                every=self.every,
                pair=self.teacher.pair,
            )
            sums |= {f"{SOFT}{name}": value for name, value in softened.items()}
        if "cosine" in self.wanted:  # of the last hidden states (Sanh et al. 2019, 3)
            attention_mask = last_rows(rows)
            sums["cosine"] = angles(
                seen.hidden[-1][attention_mask], teacher.hidden[-1][attention_mask]
            ).sum()
        if self.layers:
            fit = getattr(plain(model), "fit", nn.Identity())
            sums |= layer_sums(ours, its, rows, self.mapping(model), fit, self.layers)
        return Loss(sums, self.counts(batch), plain_loss.seen)

    def heard(self, model: Any) -> AbstractContextManager[dict[str, StackStates]]:
        if not self.layers:
            return nullcontext({})
        return capture_layers(plain(model), attention="attention" in self.layers)


# -- options


def inner_objective(corpus: Any, options: Any, *, learning: bool, **sizes: int) -> Objective:
    """Builds the inner objective, the one that is distilled."""
    if not options.of:
        raise ConfigError(
            'objective.of is missing; name the objective that is distilled, such as of = "masked"'
        )
    kind = distilled_kind(options.of)
    names = fields_of(kind.Options)
    table = {k: getattr(options, k) for k in ("family", "marks") if k in names} | options.options
    if table.get("crf"):
        raise ConfigError(
            "the tags of a CRF depend on each other, so the teacher has no distribution for a "
            "single word; set crf = false in objective.options"
        )
    what = f"option of {options.of!r}"
    inner: Any = from_table(kind.Options, table, path="objective.options.", what=what)
    return kind(corpus, inner, learning=learning, **sizes)


def chosen_style(options: DistillObjectiveOptions) -> DistillStyle:
    """Returns the style, with the options that are set in place of its own numbers."""
    if options.style not in STYLES:
        raise UnknownName("style of distillation", options.style, STYLES)
    style = STYLES[options.style]
    numbers: dict[str, Any] = {
        name: float(value)
        for name in ("temperature", *PARTS)
        if (value := getattr(options, name)) is not None
    }
    usual = style.only if is_text_objective(options.of) else "targets"
    result = style._replace(**numbers, only=options.only or usual)
    choose("objective.only", result.only, ("targets", "all"))
    if result.temperature <= 0:
        raise ConfigError(f"objective.temperature is {result.temperature:g}; it must be above 0")
    for part in PARTS:
        if getattr(result, part) < 0:
            raise ConfigError(f"objective.{part} is {numbers[part]:g}; a weight must be 0 or more")
    if not any(getattr(result, part) for part in PARTS if part != "hard"):
        raise ConfigError(
            "every loss that uses the teacher has the weight 0; set soft, cosine, hidden, "
            "attention or embedding above 0, or train without a teacher"
        )
    return result


# -- the recurrent state: the student's layers first, then the teacher's


def split_state(state: State | None, depth: int) -> tuple[State | None, State | None]:
    """Divides a state into the states of the student and of the teacher."""
    if state is None:
        return None, None
    place = max(0, len(state.hidden) - depth)
    return (
        State(
            hidden=state.hidden[:place], attention_mask=state.attention_mask, length=state.length
        ),
        State(
            hidden=state.hidden[place:], attention_mask=state.attention_mask, length=state.length
        ),
    )


def join_states(state: State | None, own: State | None, theirs: State | None) -> None:
    """Joins the two states into one, which is saved in checkpoints like any other state."""
    if state is None or own is None or theirs is None:
        return
    state.hidden = [*own.hidden, *theirs.hidden]
    state.attention_mask, state.length = own.attention_mask, own.length
