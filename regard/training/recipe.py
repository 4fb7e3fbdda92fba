"""A recipe: all settings of a run, as one TOML file.

A setting that a recipe leaves open is None, and is not in the file. `resolve.py` fills it in, once,
before the first step, and returns a `FrozenConfig`, which is stored in the run's directory. Neither
of them is ever changed in place: `replaced` and `dataclasses.replace` return another one.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.core.files import write_text
from regard.core.options import (
    BATCH_SIZE,
    CLASSES,
    DOWNLOAD,
    FIELD,
    FORMAT,
    HEADER,
    LR,
    PRECISION,
    RECIPE,
    SEED,
    SIZE,
    SKIP,
    STEPS,
    TASK,
    THESAURUS,
    VALID,
    Option,
    has_option,
    option_of,
)
from regard.core.tables import Table, fields_of, from_table, without_none


@dataclass(frozen=True)
class BatchConfig:
    size: Annotated[int | None, BATCH_SIZE] = None  # samples of a step, over all processes
    seq_len: Annotated[
        int | None, Option("The tokens of a sample.", "--seq-len", "N", "at most the context")
    ] = None
    grad_accum: Annotated[
        int, Option("The micro-batches of a step in each process.", "--grad-accum", "N")
    ] = 1
    # "streams": each row of the batch continues in its own part of the text
    order: Literal["streams"] | None = None


@dataclass(frozen=True)
class Budget:
    """The length of a run, by one of these settings. Minutes become steps after a short
    calibration; with `clock` the time itself ends the run, and the schedule follows it: such a run
    ends exactly on time, but no two runs are alike."""

    steps: Annotated[int | None, STEPS] = None
    tokens: Annotated[int | None, Option("Train on at most N tokens.", "--max-tokens", "N")] = None
    minutes: Annotated[float | None, Option("Train for X minutes.", metavar="X")] = None
    epochs: Annotated[float | None, Option("Read the data X times.", metavar="X")] = None
    flops: float | None = None
    clock: bool = False


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
    betas: list[float] | None = None
    eps: float | None = None
    weight_decay: Annotated[
        float | None, Option("The weight decay.", "--weight-decay", "X", "the recipe's")
    ] = None
    grad_clip: Annotated[
        float | None,
        Option("The largest norm of the gradient; 0 turns clipping off.", "--grad-clip", "X",
               "the recipe's"),
    ] = None  # fmt: skip
    # A layer's learning rate is this factor times that of the layer above it
    layer_decay: float | None = None
    # The number of lowest layers that do not learn; the embeddings do not learn either
    freeze_layers: int | None = None
    # The steps after which the next lower layer is unfrozen; None: never
    unfreeze_every: int | None = None
    # Whether weights of the layers that are 0 (pruned) stay 0
    keep_sparsity: bool = False


@dataclass(frozen=True)
class Schedule:
    name: Annotated[
        str | None,
        Option("The schedule of the learning rate: linear, cosine, noam, constant, ….",
               "--schedule", "NAME", "the recipe's"),
    ] = None  # fmt: skip
    warmup: Annotated[
        float | None,
        Option("The learning rate rises from 0 in so many steps; below 1, in this share of all "
               "steps.", metavar="X", default="the recipe's"),
    ] = None  # fmt: skip
    min_lr_ratio: float | None = None  # the share of the rate that is left at the end
    power: float | None = None  # for "polynomial"
    until: float | None = None  # where the decay ends, in steps or as a share; None: at the end
    decay_fraction: float | None = None  # for "wsd": the share of steps in which the rate falls


@dataclass(frozen=True)
class Validation:
    every: int | None = None  # steps between validations; None: twenty validations in all
    samples: int | None = None  # None: as many as take a tenth of the time; all at the end
    patience: Annotated[
        int | None,
        Option("Stop after N validations without a better one.", metavar="N", default="never"),
    ] = None
    # What chooses the model that is kept: the lowest loss, or the best metric of the task and of
    # equal ones the lower loss. None: the metric where there is a task with one, else the loss.
    best: Literal["loss", "metric"] | None = None


@dataclass(frozen=True)
class Checkpointing:
    every: int | None = None  # steps between checkpoints; None: by time
    minutes: float = 5.0  # the most work that can be lost, if `every` is None
    keep: int = 2
    average: int | None = None  # the final model is the mean of this many last checkpoints


@dataclass(frozen=True)
class Engine:
    """How a run is computed; resolved once, because a resumed run must do the same."""

    # fp16 needs CUDA
    precision: Annotated[Literal["fp32", "bf16", "fp16", "fp64"] | None, PRECISION] = None
    compile: Literal["yes", "no"] | None = None
    checkpointing: bool = False  # activations are recomputed instead of stored
    parallel: Literal["ddp", "fsdp", "local-sgd"] = "ddp"  # only with several processes
    sync_every: int = 8  # local-sgd: steps between two averages
    sync_warmup: int = 100  # local-sgd: synchronous steps at the start
    device: Annotated[
        str | None, Option("The device: cpu, cuda, mps, ….", metavar="NAME", default="the fastest")
    ] = None
    threads: int | None = None
    processes: int | None = None
    native: bool | None = None  # compiled kernels are used; their rounding and dropout differ


@dataclass(frozen=True)
class ExamplesConfig:
    """Labeled data, which replaces prepared text if `task` is set."""

    task: Annotated[str | None, TASK] = None  # None: the data is text
    valid: Annotated[str | None, VALID] = None  # None: a `valid_fraction` of the data
    valid_fraction: float = 0.1
    folds: int | None = None  # cross-validation: the number of parts; part `fold` validates
    fold: int = 0
    # A second training file, such as one with a model's pseudo-labels
    extra_data: str | None = None
    format: Annotated[str | None, FORMAT] = None  # None: by the name of the file
    # role -> name of the field, or its number
    fields: Annotated[Table, FIELD] = field(default_factory=dict)
    header: Annotated[Literal["yes", "no"] | None, HEADER] = None  # None: by the first line
    download: Annotated[bool, DOWNLOAD] = False
    classes: Annotated[bool, CLASSES] = False
    prefix: str | None = None  # precedes every source of a task as text; None: only T5 has one
    skip: Annotated[list[str], SKIP] = field(default_factory=list)
    labels: list[str] | None = None  # the classes or tags of the data, in order
    digest: str | None = None  # the hash of the files


@dataclass(frozen=True)
class Robust:
    """Methods that make training harder and the model more robust; all are off unless set. A
    method's numbers that are left open are its defaults."""

    # An adversary moves the embeddings to where the loss is higher.
    adversary: Literal["fgm", "pgd", "freelb"] | None = None
    adv_radius: float | None = None  # the largest norm of a text's perturbation; freelb: 0 is any
    adv_lr: float | None = None  # pgd, freelb: the length of one step
    adv_steps: int | None = None  # pgd, freelb: the number of steps
    adv_init: float | None = None  # freelb: the size of the random start
    rdrop: float = 0.0  # R-Drop: the weight of the divergence of two passes
    # Stochastic depth: how often the last of L layers is dropped; layer l: l/L of that
    drop_path: float = 0.0
    token_noise: float = 0.0  # the share of tokens that are replaced by random ones
    neftune: float = 0.0  # added to embeddings: uniform, up to noise / sqrt(tokens * width)


@dataclass(frozen=True)
class Augment:
    """Variants of the labeled examples, made anew in every epoch."""

    methods: Annotated[
        list[str],
        Option("Read half of the examples as variants, new ones in every epoch: some of "
               "synonyms,insert,swap,delete (regard augment).", "--augment", "METHODS",
               commas=True),
    ] = field(default_factory=list)  # fmt: skip
    prob: float = 0.5  # the probability that an example is read as a variant of itself
    word_fraction: float | None = None  # the share of words that change; None: as in the paper
    source: Literal["paper", "code"] = "paper"  # where the rules of insertion differ
    thesaurus: Annotated[str | None, THESAURUS] = None
    model: str | None = None  # a masked model's directory, for "masked"
    top_k: int = 15  # candidates for a masked word
    # "zh": jieba cuts the words; "en": spaces do; None: depends on the text
    language: Literal["zh", "en"] | None = None
    digest: str | None = None  # the hash of the thesaurus


@dataclass(frozen=True)
class Recipe:
    model: str = ""
    data: str = ""
    size: Annotated[str | None, SIZE] = None  # None: the published shape
    # "budget": what learns most in minutes on a laptop; "paper": what the paper trained with;
    # None: the first for a laptop's size, the second for a published one
    recipe: Annotated[Literal["budget", "paper"] | None, RECIPE] = None
    seed: Annotated[int, SEED] = 1
    shape: Table = field(default_factory=dict)  # fields of the model's configuration
    objective: Table = field(default_factory=dict)  # its name and its options
    extensions: Table = field(default_factory=dict)  # parts added to the model: name -> options
    examples: ExamplesConfig = field(default_factory=ExamplesConfig)
    augment: Augment = field(default_factory=Augment)
    robust: Robust = field(default_factory=Robust)
    batch: BatchConfig = field(default_factory=BatchConfig)
    budget: Budget = field(default_factory=Budget)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    validation: Validation = field(default_factory=Validation)
    checkpoint: Checkpointing = field(default_factory=Checkpointing)
    engine: Engine = field(default_factory=Engine)

    @property
    def by_budget(self) -> bool:
        """Whether open settings are those that learn most in a budget; Muon belongs to them."""
        if self.recipe is not None:
            return self.recipe == "budget"
        return self.size is not None and self.optimizer.name in (None, "muon")

    def table(self) -> Table:
        """Returns the recipe as a TOML table; tables come after plain values."""
        return without_none(dataclasses.asdict(self))


# -- what is known once a recipe is resolved


@dataclass(frozen=True, kw_only=True)
class ResolvedBatch(BatchConfig):
    size: int
    seq_len: int


@dataclass(frozen=True, kw_only=True)
class ResolvedOptimizer(Optimizer):
    name: str
    lr: float
    betas: list[float]
    eps: float
    weight_decay: float
    grad_clip: float
    layer_decay: float


@dataclass(frozen=True, kw_only=True)
class ResolvedSchedule(Schedule):
    name: str
    min_lr_ratio: float
    power: float
    decay_fraction: float


@dataclass(frozen=True, kw_only=True)
class ResolvedEngine(Engine):
    precision: Literal["fp32", "bf16", "fp16", "fp64"]
    device: str
    threads: int
    processes: int
    native: bool


@dataclass(frozen=True, kw_only=True)
class Resolved(Recipe):
    """A recipe whose open settings depend on the model or on the number of steps."""

    batch: ResolvedBatch
    optimizer: ResolvedOptimizer
    schedule: ResolvedSchedule
    engine: ResolvedEngine


@dataclass(frozen=True, kw_only=True)
class ResolvedBudget(Budget):
    steps: int


@dataclass(frozen=True, kw_only=True)
class WholeSchedule(ResolvedSchedule):
    warmup: float


@dataclass(frozen=True, kw_only=True)
class ResolvedValidation(Validation):
    every: int
    samples: int
    best: Literal["loss", "metric"]


@dataclass(frozen=True, kw_only=True)
class FrozenConfig(Resolved):
    """All settings of a run: the content of RUN/recipe.toml, which the run follows."""

    budget: ResolvedBudget
    schedule: WholeSchedule
    validation: ResolvedValidation


R = TypeVar("R", bound=Recipe)


def replaced(recipe: R, /, **changes: Any) -> R:
    """Returns a recipe with other values: a table is merged into the section of its name, and any
    other value replaces the old one.

    >>> replaced(Recipe(), model="gpt", batch={"seq_len": 32}).batch.seq_len
    32
    """
    values = {
        name: dataclasses.replace(getattr(recipe, name), **value)
        if isinstance(value, dict) and dataclasses.is_dataclass(getattr(recipe, name))
        else value
        for name, value in changes.items()
    }
    return dataclasses.replace(recipe, **values)


def known(kind: type[R], recipe: Recipe) -> R:
    """Converts the recipe to a more resolved class; none of its fields may still be open."""
    return from_table(kind, dataclasses.asdict(recipe), what="recipe key")


# -- files and words


def read(path: Path) -> Table:
    """Reads the table of a recipe file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"there is no recipe {path}; give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not valid TOML: {error}") from None


def read_resolved(path: Path) -> FrozenConfig:
    """Reads the resolved recipe of a run."""
    return from_table(FrozenConfig, read(path), what="recipe key")


def find(name: str) -> Path:
    """Returns the path of a recipe file, or of a built-in recipe by its name."""
    here = Path(__file__).parent.parent / "recipes"
    names = sorted(file.stem for file in here.glob("*.toml"))
    if name in names and not Path(name).is_file():
        return here / f"{name}.toml"
    if not Path(name).is_file() and not name.endswith(".toml"):
        raise UnknownName("recipe", name, names, "(or give a file)")
    return Path(name)


def write(recipe: Recipe, path: Path) -> None:
    write_text(path, dump(recipe))


def dump(recipe: Recipe) -> str:
    import tomli_w

    return tomli_w.dumps(recipe.table())


def make(*tables: Table) -> Recipe:
    """Builds a recipe from tables; later tables override earlier ones."""
    recipe = Recipe()
    for table in tables:
        recipe = changed(recipe, table)
    return recipe


def changed(recipe: Recipe, table: Table) -> Recipe:
    """Returns a recipe with the values of a table, which are checked. For a key that other
    libraries call differently, or that stands in another table, the error names ours; keys that
    were renamed here are named all at once."""
    try:
        return from_table(Recipe, table, what="recipe key", base=recipe)
    except UnknownName as error:
        from regard.core.foreign import KEYS, ours, plain  # tables that only a wrong name needs

        check_old_keys(table)
        keys = option_keys()
        known = KEYS.get(plain(error.name), "")
        if "." not in error.name and "=" in known:
            raise UnknownName("recipe key", error.name, (), meant=known) from None
        option = ours(error.name, keys) or f"--{plain_option(error.name)}"
        if option not in keys or keys[option].rpartition(".")[0] == error.name.rpartition(".")[0]:
            raise
        advice = f"({option} on the command line)"
        raise UnknownName("recipe key", error.name, (), advice, meant=keys[option]) from None


def check_old_keys(table: Table) -> None:
    from regard.core.foreign import RENAMED

    sections = {name: part for name, part in table.items() if isinstance(part, dict)}
    keys = [f"{name}.{key}" for name, part in sections.items() for key in part]
    if old := [key for key in keys if key in RENAMED]:
        names = "; ".join(f"{key!r} is called {RENAMED[key]!r} now" for key in old)
        raise UnknownName("recipe key", old[0], (), hint=names)


def differences(recipe: Recipe) -> list[str]:
    """Returns the settings that differ from the defaults, as KEY=VALUE."""
    usual, changes = Recipe().table(), []
    for name, value in recipe.table().items():
        inner = value if isinstance(value, dict) else {}
        known: Any = usual.get(name, {})
        changes += [f"{name}.{key}={one}" for key, one in inner.items() if known.get(key) != one]
        changes += [f"{name}={value}"] if value != known and not isinstance(value, dict) else []
    return changes


def plain_option(key: str) -> str:
    return key.rpartition(".")[2].replace("_", "-")


def option_keys() -> dict[str, str]:
    """Returns the keys that have an option of their own: --lr is optimizer.lr, and so on."""
    keys = {option_of(Recipe, name): name for name in fields_of(Recipe) if has_option(Recipe, name)}
    for name, kind in fields_of(Recipe).items():
        if dataclasses.is_dataclass(kind):
            inner = [each for each in fields_of(kind) if has_option(kind, each)]  # type: ignore[arg-type]
            keys |= {option_of(kind, each): f"{name}.{each}" for each in inner}  # type: ignore[arg-type]
    return keys


def overrides(words: Iterable[str]) -> Table:
    """Parses `batch.size=16` and so on into a table; a value is TOML, or a plain word."""
    table: Table = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals and Path(word).is_file():
            raise ConfigError(f"{word!r} is a file, and no override; labeled data go with --data")
        if not equals or not key:
            raise ConfigError(f"{word!r} is no override; write KEY=VALUE, as in batch.size=16")
        inner = table
        *path, last = key.strip().split(".")
        for name in path:
            inner = inner.setdefault(name, {})
        inner[last] = value_of(text.strip())
    return table


def value_of(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
