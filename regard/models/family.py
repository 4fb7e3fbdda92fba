"""The card of a model family: all facts about the family as a whole, in one place.

Each model's file ends with its card, `FAMILY`. Code that needs a fact about a family (its sizes,
the objective of its paper, the learning rate of a fine-tuning, the input format of a pair of texts)
reads the card. No other file holds a table by family.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.core.errors import ConfigError, UnknownName
from regard.data.input_formats import InputFormat, PassageFormat

if TYPE_CHECKING:
    from regard.models.base import Config, Model


@dataclass(frozen=True, kw_only=True)
class PaperDefaults:
    """The training settings of a paper. `lr` is the highest learning rate, or a factor with the
    schedule "noam". From scratch, a narrower model has a higher one: see
    `regard/training/resolve.py`."""

    lr: float
    optimizer: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    layer_decay: float = 1.0  # the rate of a layer, times that of the one above it
    schedule: str = "linear"
    warmup: float = 0  # steps, or a share of all steps if it is below 1
    min_lr_ratio: float = 0.0
    power: float = 1.0  # of the schedule "polynomial"
    until: float | None = None  # where the decay ends, as a share of all steps
    decay_fraction: float = 0.5  # of the schedule "wsd": in this share of all steps the rate falls
    steps: int | None = None
    batch_size: int | None = None  # sequences
    seq_len: int | None = None  # tokens; in fine-tuning the most tokens of a row
    epochs: int | None = None
    batch_tokens: int | None = None  # of the source, and as many of the target
    differs: str = ""  # where this is not what the paper did

    def replace(self, **changes: Any) -> PaperDefaults:
        return dataclasses.replace(self, **changes)


# A model that fills blanks learns from short samples first where words stand: docs/results.md.
HIDING_LENGTHS = ((2e6, 32), (1e7, 64), (4e7, 128))

# What learns most in a few minutes on a laptop: docs/results.md has the runs.
BUDGET_TRAINING = PaperDefaults(
    lr=5e-3, optimizer="muon", betas=(0.9, 0.95), weight_decay=0.1, schedule="wsd", warmup=0.05,
    decay_fraction=0.5, batch_tokens=1024,
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A laptop size. A family turns it into fields of its configuration."""

    layers: int
    width: int
    heads: int

    def fields(self) -> dict[str, Any]:
        """Returns the fields of nearly all configurations; the feed-forward network is 4 times as
        wide."""
        return {
            "layers": self.layers,
            "width": self.width,
            "heads": self.heads,
            "ffn_size": 4 * self.width,
        }

    @property
    def head_size(self) -> int:
        return self.width // self.heads


SHAPES = {"tiny": Shape(2, 128, 2), "small": Shape(4, 256, 4), "medium": Shape(6, 512, 8)}


def plain_shape(shape: Shape, seq_len: int) -> dict[str, Any]:
    return shape.fields()


def any_objective(objective: str, options: Any, seq_len: int) -> dict[str, Any]:
    return {}


# How tensor parallelism splits the parts of a block over processes (Shoeybi et al. 2019, 3): by
# the names of its modules, with * for any letters. A family adds what it has of its own.
#   heads       each process has the projections (or the Score's vectors) of some heads
#   colwise     each has some outputs of a matrix, or some columns of an embedding
#   rowwise     each has some inputs of a matrix; the outputs are summed over the processes
#   shared      several split matrices read the same rows, whose gradients are summed once
#   vocabulary  each has the embeddings, or the logits, of some words
CORE_PLAN: Mapping[str, str] = {
    "*.attention.layer.project": "heads",
    "*.attention.layer.out": "rowwise",
    "*.cross.layer.project": "heads",
    "*.cross.layer.out": "rowwise",
    "*.feed_forward.layer": "shared",
    "*.feed_forward.layer.wide": "colwise",
    "*.feed_forward.layer.gate": "colwise",
    "*.feed_forward.layer.narrow": "rowwise",
}
WORDS_PLAN: Mapping[str, str] = {"tokens": "vocabulary", "output": "vocabulary"}
RELATIVE_PLAN: Mapping[str, str] = {
    "*.layer.score": "heads", "*.score.distance": "colwise"
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    name: str
    model: type[Model]
    config: type[Config]
    paper: str
    year: int
    sizes: Mapping[str, Any]  # the published ones: name -> configuration
    objective: str  # what its paper learns from raw text
    training: Mapping[str, PaperDefaults]  # "": the family; else sizes that begin with the key
    finetuning: Mapping[str, PaperDefaults]  # by task; "": any other task
    # What a laptop's size learns with; the options of its objectives then, by their names.
    budget_training: PaperDefaults = BUDGET_TRAINING
    budget_objectives: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Up to how many tokens in all, how long the samples of plain text are then.
    budget_lengths: tuple[tuple[float, int], ...] = ((4e6, 64), (1.5e7, 128))
    later: tuple[tuple[str, str, int], ...] = ()  # (beginning of a size's name, its paper, year)
    scratch_lr: float | None = None  # where `training` is for weights that are trained already
    laptop: Callable[[Shape, int], dict[str, Any]] = plain_shape  # (shape, tokens of a sample)
    # (name of the objective, its options, tokens of a sample) -> fields that a new model needs
    # to learn it; most models learn every objective as they are.
    objective_fields: Callable[[str, Any, int], dict[str, Any]] = any_objective
    # The objective on plain running text, where the paper's own reads pairs of sentences.
    text_objective: str = ""
    other_objectives: tuple[str, ...] = ()  # it can also learn these from plain running text
    compared: bool = True  # does it stand in a comparison that names no models?
    input_format: InputFormat | None = None  # how a text, or two, are laid out for a head
    passage_format: PassageFormat | None = None  # how a question and its passage are laid out
    answer_head: str = "answer"  # or "span", which seeks the end for a given start
    task_tokens: tuple[str, ...] = ()  # roles that a task adds to a tokenizer that lacks them
    writes_tasks: bool = False  # it learns every task as text
    task_prefixes: bool = False  # the paper puts the name of a task before its text
    # What the loss of the language model counts beside that of a task; None: with the head of a
    # task such a model has no language model.
    auxiliary_loss: float | None = None
    lora_targets: tuple[str, ...] = ("query", "value")  # which have adapters (Hu et al. 2021)
    tensor_plan: Mapping[str, str] = field(default_factory=lambda: {**CORE_PLAN, **WORDS_PLAN})
    smooths_labels: bool = False  # the paper smooths labels where a task is learned as text

    @property
    def running_objective(self) -> str:
        """The objective that it learns from plain running text."""
        return self.text_objective or self.objective

    def source(self, size: str) -> tuple[str, int]:
        """Returns the paper and the year of one size."""
        for start, paper, year in self.later:
            if size.startswith(start):
                return paper, year
        return self.paper, self.year

    def trained(self, size: str = "") -> PaperDefaults:
        """Returns the training settings of a size's paper, or of the family if the size has no
        entry."""
        keys = [key for key in self.training if key and f"{size}-".startswith(f"{key}-")]
        return self.training[max(keys, key=len, default="")]

    def finetuned(self, task: str) -> PaperDefaults:
        """Returns the fine-tuning settings of the paper for this task."""
        if not self.finetuning:
            raise ConfigError(f"{self.name} is not known to learn {task}")
        return self.finetuning.get(task) or self.finetuning[""]

    def shape(self, size: str, seq_len: int) -> dict[str, Any]:
        """Returns the fields of the configuration for a laptop size."""
        if size not in SHAPES:
            raise UnknownName(
                "size", size, [*SHAPES, "auto"], "(or name a published size as MODEL)"
            )
        return self.laptop(SHAPES[size], seq_len)
