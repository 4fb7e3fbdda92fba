"""The parts of a recipe: one table of its file each, with what is said of every key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from regard.core.options import (
    BATCH_SIZE,
    CLASSES,
    DOWNLOAD,
    FIELD,
    FORMAT,
    HEADER,
    LR,
    MAX_BYTES,
    PRECISION,
    SKIP,
    STEPS,
    TASK,
    THESAURUS,
    VALID,
    Key,
    Option,
)
from regard.core.tables import Table


@dataclass(frozen=True)
class BatchConfig:
    size: Annotated[int | None, BATCH_SIZE] = None  # samples of a step, over all processes
    seq_len: Annotated[
        int | None, Option("The tokens of a sample.", "--seq-len", "N", "at most the context")
    ] = None
    grad_accum: Annotated[
        int, Option("The micro-batches of a step in each process.", "--grad-accum", "N")
    ] = 1
    order: Annotated[
        Literal["streams"] | None,
        Key("streams: each row of the batch continues in its own part of the text."),
    ] = None


@dataclass(frozen=True)
class Budget:
    """The length of a run, by one of these settings. Minutes become steps after a short
    calibration; with `clock` the time itself ends the run, and the schedule follows it: such a run
    ends exactly on time, but no two runs are alike."""

    steps: Annotated[int | None, STEPS] = None
    tokens: Annotated[int | None, Option("Train on at most N tokens.", "--max-tokens", "N")] = None
    minutes: Annotated[float | None, Option("Train for X minutes.", metavar="X")] = None
    epochs: Annotated[float | None, Option("Read the data X times.", metavar="X")] = None
    flops: Annotated[float | None, Key("Train for X floating point operations.")] = None
    clock: Annotated[bool, Key("With minutes: the time itself ends the run, not steps.")] = False


@dataclass(frozen=True)
class Optimizer:
    """The optimizer. A setting that is left open comes from the model's paper: `training` and
    `finetuning` of the family's card, at the end of its file in regard/models."""

    name: Annotated[
        str | None,
        Option("The optimizer: adam, adamw, bert-adam, adafactor, sgd or muon.", "--optimizer",
               "NAME", "the recipe's"),
    ] = None  # fmt: skip
    lr: Annotated[float | None, LR] = None  # the paper's is raised for narrower models
    betas: Annotated[list[float] | None, Key("The two betas of Adam, such as [0.9,0.95].")] = None
    eps: Annotated[float | None, Key("The epsilon of Adam.")] = None
    weight_decay: Annotated[
        float | None, Option("The weight decay.", "--weight-decay", "X", "the recipe's")
    ] = None
    grad_clip: Annotated[
        float | None,
        Option("The largest norm of the gradient; 0 turns clipping off.", "--grad-clip", "X",
               "the recipe's"),
    ] = None  # fmt: skip
    layer_decay: Annotated[
        float | None, Key("A layer's learning rate is X times that of the layer above it.")
    ] = None
    freeze_layers: Annotated[
        int | None, Key("The N lowest layers do not learn; the embeddings do not either.")
    ] = None
    unfreeze_every: Annotated[
        int | None, Key("The next lower layer is unfrozen after N steps; open: never.")
    ] = None
    keep_sparsity: Annotated[bool, Key("Weights of the layers that are 0 (pruned) stay 0.")] = False


@dataclass(frozen=True)
class Schedule:
    name: Annotated[
        str | None,
        Option("The schedule of the learning rate: linear, cosine, noam, constant, ….",
               "--schedule", "NAME", "the recipe's"),
    ] = None  # fmt: skip
    warmup: Annotated[
        float | None,
        Option("The learning rate rises from 0 for this many steps; below 1, for this share of all "
               "steps.", metavar="X", default="the recipe's"),
    ] = None  # fmt: skip
    min_lr_ratio: Annotated[float | None, Key("The share of the rate that is left at the end.")] = (
        None
    )
    power: Annotated[float | None, Key("The power of the schedule polynomial.")] = None
    until: Annotated[
        float | None, Key("Where the decay ends, in steps or as a share; open: at the end.")
    ] = None
    decay_fraction: Annotated[
        float | None, Key("wsd: the share of all steps in which the rate falls.")
    ] = None


@dataclass(frozen=True)
class Validation:
    every: Annotated[
        int | None, Key("Steps between two validations; open: twenty of them in all.")
    ] = None
    samples: Annotated[
        int | None,
        Key("Samples of a validation; open: what takes a tenth of the time. The last one has all."),
    ] = None
    patience: Annotated[
        int | None,
        Option("Stop after N validations without a better one.", metavar="N", default="never"),
    ] = None
    best: Annotated[
        Literal["loss", "metric"] | None,
        Key("What chooses the model that is kept: loss (the lowest), or metric (the best of the "
            "task, then the lower loss); open: metric where a task has one."),
    ] = None  # fmt: skip


@dataclass(frozen=True)
class Checkpointing:
    every: Annotated[int | None, Key("Steps between two checkpoints; open: by time.")] = None
    minutes: Annotated[float, Key("Minutes between two: the most work that can be lost.")] = 5.0
    keep: Annotated[int, Key("How many checkpoints stay.")] = 2
    at_words: Annotated[
        list[int] | None,
        Key("The model is also saved, as RUN/words-1M and so on, when so many words of the text "
            "were read, counted over all passes: [1000000,10000000]."),
    ] = None  # fmt: skip
    average: Annotated[
        int | None, Key("The final model is the mean of the last N checkpoints.")
    ] = None


@dataclass(frozen=True)
class Engine:
    """How a run is computed; resolved once, because a resumed run must do the same."""

    # fp16 needs CUDA
    precision: Annotated[Literal["fp32", "bf16", "fp16", "fp64"] | None, PRECISION] = None
    compile: Annotated[Literal["yes", "no"] | None, Key("Use torch.compile: yes or no.")] = None
    checkpointing: Annotated[
        bool, Key("Activations are recomputed instead of stored: less memory.")
    ] = False
    parallel: Annotated[
        Literal["ddp", "fsdp", "local-sgd"],
        Key("How several processes (torchrun) work together: ddp, fsdp or local-sgd."),
    ] = "ddp"
    tensor: Annotated[
        int | None,
        Key("With fsdp: so many neighboring processes split each layer (tensor parallelism) and "
            "read the same data, such as 2; open: 1."),
    ] = None  # fmt: skip
    sync_every: Annotated[int, Key("local-sgd: steps between two averages.")] = 8
    sync_warmup: Annotated[int, Key("local-sgd: synchronous steps at the start.")] = 100
    device: Annotated[
        str | None, Option("The device: cpu, cuda, mps, ….", metavar="NAME", default="the fastest")
    ] = None
    threads: Annotated[int | None, Key("Threads of a process.")] = None
    processes: Annotated[int | None, Key("Processes of the run; torchrun decides it.")] = None
    native: Annotated[
        bool | None, Key("Compiled kernels are used; their rounding and dropout differ.")
    ] = None


@dataclass(frozen=True)
class ExamplesConfig:
    """Labeled data, which replaces prepared text if `task` is set."""

    task: Annotated[str | None, TASK] = None  # None: the data is text
    valid: Annotated[str | None, VALID] = None  # None: a `valid_fraction` of the data
    valid_fraction: Annotated[float, Key("The share of the data that validates.")] = 0.1
    folds: Annotated[
        int | None, Key("Cross-validation: the number of parts; part `fold` validates.")
    ] = None
    fold: Annotated[int, Key("The part that validates, counted from 0.")] = 0
    extra_data: Annotated[
        str | None, Key("A second training file, such as one with a model's pseudo-labels.")
    ] = None
    format: Annotated[str | None, FORMAT] = None  # None: by the name of the file
    # role -> name of the field, or its number
    fields: Annotated[Table, FIELD] = field(default_factory=dict)
    header: Annotated[Literal["yes", "no"] | None, HEADER] = None  # None: by the first line
    max_bytes: Annotated[int | None, MAX_BYTES] = None  # None: that of the readers
    download: Annotated[bool, DOWNLOAD] = False
    classes: Annotated[bool, CLASSES] = False
    prefix: Annotated[
        str | None, Key("Precedes every source of a task as text; open: only T5 has one.")
    ] = None
    skip: Annotated[list[str], SKIP] = field(default_factory=list)
    labels: Annotated[
        list[str] | None, Key("The classes or tags in their order; open: those of the data.")
    ] = None
    digest: Annotated[str | None, Key("The hash of the files, which a run writes.")] = None


@dataclass(frozen=True)
class Robust:
    """Methods that make training harder and the model more robust; all are off unless set. A
    method's numbers that are left open are its defaults."""

    adversary: Annotated[
        Literal["fgm", "pgd", "freelb"] | None,
        Key("An adversary moves embeddings to where the loss is higher: fgm, pgd or freelb."),
    ] = None
    adv_radius: Annotated[
        float | None, Key("The largest norm of a text's perturbation; freelb: 0 is any.")
    ] = None
    adv_lr: Annotated[float | None, Key("pgd, freelb: the length of one step.")] = None
    adv_steps: Annotated[int | None, Key("pgd, freelb: the number of steps.")] = None
    adv_init: Annotated[float | None, Key("freelb: the size of the random start.")] = None
    rdrop: Annotated[float, Key("R-Drop: the weight of the divergence of two passes.")] = 0.0
    drop_path: Annotated[
        float,
        Key("Stochastic depth: how often the last of L layers is dropped; layer l: l/L of that."),
    ] = 0.0
    token_noise: Annotated[float, Key("The share of tokens that are replaced by random ones.")] = (
        0.0
    )
    neftune: Annotated[
        float, Key("NEFTune: uniform noise on embeddings, up to X / sqrt(tokens * width).")
    ] = 0.0


@dataclass(frozen=True)
class Augment:
    """Variants of the labeled examples, made anew in every epoch."""

    methods: Annotated[
        list[str],
        Option("Read half of the examples as variants, new ones in every epoch: some of "
               "synonyms,insert,swap,delete (regard augment).", "--augment", "METHODS",
               commas=True),
    ] = field(default_factory=list)  # fmt: skip
    prob: Annotated[
        float, Key("The probability that an example is read as a variant of itself.")
    ] = 0.5
    word_fraction: Annotated[
        float | None, Key("The share of words that change; open: as in the paper.")
    ] = None
    source: Annotated[
        Literal["paper", "code"], Key("Whose rule of insertion is used: paper or code.")
    ] = "paper"
    thesaurus: Annotated[str | None, THESAURUS] = None
    model: Annotated[str | None, Key("The directory of a masked model, for the method masked.")] = (
        None
    )
    top_k: Annotated[int, Key("The candidates for a masked word.")] = 15
    language: Annotated[
        Literal["zh", "en"] | None,
        Key("zh: jieba cuts the words; en: spaces do; open: depends on the text."),
    ] = None
    digest: Annotated[str | None, Key("The hash of the thesaurus, which a run writes.")] = None
