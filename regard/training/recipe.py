"""A recipe: everything that decides a run, as one TOML file.

What a recipe leaves open (a rate of "paper", a budget in minutes, the precision) is resolved once,
before the first step, and the resolved recipe stands in the run's directory.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.core.files import write_text

Table = dict[str, Any]


@dataclass
class Batches:
    samples: int = 0  # of a step, over all processes; 0: chosen
    length: int = 0  # tokens of a sample; 0: chosen
    accumulate: int = 1  # micro-batches of a step, in each process
    order: str = ""  # "streams": each place of a step reads on in its own stretch of the text


@dataclass
class Budget:
    """One of these; the others are 0. Minutes become steps after a short calibration; with `clock`
    the time itself ends the run, and the schedule goes by it: as exact as a step, and no run like
    another.
    """

    steps: int = 0
    tokens: int = 0
    minutes: float = 0.0
    epochs: float = 0.0
    flops: float = 0.0
    clock: bool = False


@dataclass
class Optimizer:
    """What is "paper" or below 0 is taken from the model's paper."""

    name: str = "paper"  # adam, adamw, bert-adam, adafactor, sgd, muon
    rate: float = -1.0  # the highest rate; -1: the paper's, raised for narrower models
    betas: list[float] = field(default_factory=list)
    epsilon: float = -1.0
    decay: float = -1.0
    clip: float = -1.0  # norm of the gradient; 0: none
    fall: float = -1.0  # the rate of a layer is so many times that of the one above it
    frozen: int = 0  # so many lowest layers do not learn, nor the embeddings under them
    thaw: int = 0  # the next lower layer is freed after so many steps; 0: never
    zeros: bool = False  # weights of the layers that are 0 stay so: what pruning has left out


@dataclass
class Schedule:
    name: str = "paper"
    warmup: float = -1.0  # steps, or a share of all if below 1
    floor: float = -1.0  # share of the rate that stays at the end
    power: float = -1.0  # of "polynomial"
    until: float = 0.0  # where the decay ends, in steps or as a share; 0: at the end


@dataclass
class Validation:
    every: int = 0  # steps; 0: twenty times in all
    samples: int = 0  # 0: as many as take a tenth of the time; the whole split comes at the end
    patience: int = 0  # stop after so many validations without a better one; 0: never


@dataclass
class Checkpoint:
    every: int = 0  # steps; 0: by time
    minutes: float = 5.0  # the most work that can be lost, when `every` is 0
    keep: int = 2
    average: int = 0  # the model is the mean of so many last checkpoints


@dataclass
class Engine:
    """How it is computed; resolved once, because a resumed run must do the same."""

    precision: str = "auto"  # fp32, bf16, fp16 (CUDA), fp64
    compile: str = "auto"  # yes, no
    checkpointing: bool = False  # activations are computed again instead of kept
    parallel: str = "ddp"  # fsdp, local-sgd; only with several processes
    every: int = 8  # local-sgd: steps between two averages
    warmup: int = 100  # local-sgd: synchronous steps before
    device: str = "auto"
    threads: int = 0
    processes: int = 0
    native: bool = True  # are the compiled passes there? They round and drop otherwise


@dataclass
class Examples:
    """Labelled data, which takes the place of prepared text where `task` says so."""

    task: str = ""  # classify, tag, …; "": the data is text
    valid: str = ""  # a file of its own; "": a `share` of the data
    share: float = 0.1
    folds: int = 0  # cross-validation: so many parts, of which number `fold` validates
    fold: int = 0
    more: str = ""  # a second file to learn from, such as labels that a model has given
    form: str = ""  # jsonl, csv, …; "": by the name of the file
    fields: Table = field(default_factory=dict)  # role -> name of the field, or its number
    header: str = ""  # yes, no: does the first line of a table name its columns? "": by its words
    download: bool = False  # may hub:NAME be fetched?
    classes: bool = False  # the labels of `similar` are classes, not scores
    prefix: str = "paper"  # before every source of a task as text; "paper": T5's own, else none
    skip: list[str] = field(default_factory=list)  # kinds of errors whose records are left out
    labels: list[str] = field(default_factory=list)  # settled: the classes or tags in their order
    digest: str = ""  # settled: of the files


@dataclass
class Robust:
    """What makes learning harder and what is learned sturdier; all of it is off unless asked for.

    What is below 0 is the method's own.
    """

    adversary: str = ""  # fgm, pgd, freelb: embeddings are moved to where the loss is higher
    radius: float = -1.0  # the farthest that those of a text are moved; freelb: 0 is any distance
    rate: float = -1.0  # pgd, freelb: by so much in one step
    steps: int = 0  # pgd, freelb: how many; 0: the method's own
    start: float = -1.0  # freelb: how far they are moved at random before the first step
    agree: float = 0.0  # R-Drop: the weight of what two passes with other dropout disagree on
    depth: float = 0.0  # stochastic depth: how often the last layer of L is left out; layer l: l/L
    tokens: float = 0.0  # the share of tokens that are replaced by random ones
    noise: float = 0.0  # added to embeddings: uniform, up to noise / sqrt(tokens * width)


@dataclass
class Augment:
    """Variants of the labelled examples, made anew in every epoch."""

    methods: list[str] = field(default_factory=list)  # synonyms, insert, swap, delete, masked
    chance: float = 0.5  # that an example is read as a variant of itself
    share: float = -1.0  # of its words are changed; below 0: as the number of examples suggests
    source: str = "paper"  # or "code": where the rules of insertion differ
    thesaurus: str = ""  # a file, a directory of WordNet; "" or "wordnet": that of the machine
    model: str = ""  # a masked model's directory, for "masked"
    top: int = 15  # candidates of a masked word
    language: str = ""  # "zh": words are cut by jieba; "en": at spaces; "": by the text
    digest: str = ""  # settled: of the thesaurus


@dataclass
class Recipe:
    model: str = ""
    data: str = ""
    size: str = ""  # tiny, small, medium: a shape for a laptop; "": the published one
    seed: int = 1
    shape: Table = field(default_factory=dict)  # fields of the model's configuration
    objective: Table = field(default_factory=dict)  # its name and its options
    extensions: Table = field(default_factory=dict)  # parts added to the model: name -> options
    examples: Examples = field(default_factory=Examples)
    augment: Augment = field(default_factory=Augment)
    robust: Robust = field(default_factory=Robust)
    batch: Batches = field(default_factory=Batches)
    budget: Budget = field(default_factory=Budget)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    validation: Validation = field(default_factory=Validation)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    engine: Engine = field(default_factory=Engine)

    def table(self) -> Table:
        """As TOML has it; tables come after plain values."""
        return without_none(dataclasses.asdict(self))


CHOICES = {
    "examples.header": ("", "yes", "no"),
    "augment.source": ("paper", "code"),
    "augment.language": ("", "zh", "en"),
    "batch.order": ("", "streams"),
    "robust.adversary": ("", "fgm", "pgd", "freelb"),
    "engine.precision": ("auto", "fp32", "bf16", "fp16", "fp64"),
    "engine.compile": ("auto", "yes", "no"),
    "engine.parallel": ("ddp", "fsdp", "local-sgd"),
}


def read(path: Path) -> Table:
    """The table of a recipe file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"there is no recipe {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not valid TOML: {error}") from None


def find(name: str) -> Path:
    """A recipe file, or one that comes along, by its name."""
    here = Path(__file__).parent.parent / "recipes"
    known = sorted(file.stem for file in here.glob("*.toml"))
    if name in known and not Path(name).is_file():
        return here / f"{name}.toml"
    if not Path(name).is_file() and not name.endswith(".toml"):
        raise UnknownName("recipe", name, known, "(or give a file)")
    return Path(name)


def write(recipe: Recipe, path: Path) -> None:
    write_text(path, dump(recipe))


def dump(recipe: Recipe) -> str:
    import tomli_w

    return tomli_w.dumps(recipe.table())


def make(*tables: Table) -> Recipe:
    """A recipe of tables, the later ones overruling the earlier."""
    recipe = Recipe()
    for table in tables:
        fill(recipe, table)
    return recipe


def fill(target: Any, table: Table, path: str = "") -> None:
    """Sets fields by name, checking names and kinds."""
    kinds = get_type_hints(type(target))
    for key, value in table.items():
        where = f"{path}{key}"
        if key not in kinds:
            raise UnknownName("recipe key", where, [f"{path}{name}" for name in kinds])
        held = getattr(target, key)
        if dataclasses.is_dataclass(held):
            if not isinstance(value, dict):
                raise ConfigError(f"{where} is {value!r}; it is a table of {list_of(held)}")
            fill(held, value, f"{where}.")
        elif isinstance(held, dict):
            if not isinstance(value, dict):
                raise ConfigError(f"{where} is {value!r}; it is a table, such as {where}.name = …")
            held.update(value)
        else:
            setattr(target, key, checked(where, value, held))


def checked(where: str, value: Any, held: Any) -> Any:
    """The value in the kind of the default that it replaces."""
    if where in CHOICES and value not in CHOICES[where]:
        raise UnknownName(where, str(value), CHOICES[where])
    if isinstance(held, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(held):
        raise ConfigError(f"{where} is {value!r}; it must be {type(held).__name__}")
    return value


def list_of(held: Any) -> str:
    return ", ".join(f.name for f in dataclasses.fields(held))


def overrides(words: Iterable[str]) -> Table:
    """`batch.samples=16` and so on as a table; the value is TOML, or a plain word."""
    table: Table = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"{word!r} is no override; write KEY=VALUE, as in batch.samples=16")
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


def without_none(table: Table) -> Table:
    """TOML has no None; plain values first, as it wants them."""
    kept = {k: v for k, v in table.items() if v is not None}
    plain = {k: v for k, v in kept.items() if not isinstance(v, dict)}
    return plain | {k: without_none(v) for k, v in kept.items() if isinstance(v, dict)}
