"""A recipe: all settings of a run, as one TOML file.

A setting that a recipe leaves open is None, and is not in the file. `resolve.py` fills it in, once,
before the first step, and returns a `FrozenConfig`, which is stored in the run's directory. Neither
of them is ever changed in place: `replaced` and `dataclasses.replace` return another one.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from regard.core.errors import ConfigError, FormatError, UnknownName
from regard.core.files import naming, write_text
from regard.core.options import LOG, RECIPE, SEED, SIZE, Key, has_option, option_of
from regard.core.tables import Table, fields_of, from_table, without_none
from regard.training.recipe_parts import (
    Augment,
    BatchConfig,
    Budget,
    Checkpointing,
    Engine,
    ExamplesConfig,
    Optimizer,
    Robust,
    Schedule,
    Validation,
)

NEAR = 0.75  # of a key's letters: a word that is less like it means something else


@dataclass(frozen=True)
class Recipe:
    model: Annotated[str, Key("A family, a published size, or a model directory.")] = ""
    data: Annotated[str, Key("What 'regard prepare' made, or a file of labeled examples.")] = ""
    size: Annotated[str | None, SIZE] = None  # None: the published shape
    # "budget": what learns most in minutes on a laptop; "paper": what the paper trained with;
    # None: the first for a laptop's size, the second for a published one
    recipe: Annotated[Literal["budget", "paper"] | None, RECIPE] = None
    seed: Annotated[int, SEED] = 1
    log: Annotated[list[str] | None, LOG] = None  # None: tensorboard, if it is installed
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
    tensor: int
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
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not valid TOML: {error}") from None


def read_resolved(path: Path) -> FrozenConfig:
    """Reads the resolved recipe of a run, in which nothing may be missing."""
    table = read(path)
    with naming(path):
        return from_table(FrozenConfig, table, what="recipe key")


def read_recipe(path: Path) -> Recipe:
    """Reads a recipe file."""
    table = read(path)
    with naming(path):
        return make(table)


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
    """Returns a recipe with the values of a table, which are checked. For keys that other libraries
    call differently, or that stand in another table, the error names ours, all at once."""
    table = spelled_out(table)
    if wrong := [unknown_key(key) for key in unknown_keys(table)]:
        raise UnknownName.first_of(wrong)
    return from_table(Recipe, table, what="recipe key", base=recipe)


def spelled_out(table: Table) -> Table:
    """`objective = "masked"` is its name; an extension that is `true` has no options."""
    table = dict(table)
    if isinstance(table.get("objective"), str):
        table["objective"] = {"name": table["objective"]}
    parts = table.get("extensions")
    if isinstance(parts, dict):
        parts = {name: {} if part is True else part for name, part in parts.items()}
        table["extensions"] = {name: part for name, part in parts.items() if part is not False}
        for name, part in table["extensions"].items():
            if not isinstance(part, dict):
                raise ConfigError(
                    f"extensions.{name} is {part!r}; give true, or an option of it, such as "
                    f"extensions.{name}.NAME=VALUE"
                )
    return table


def unknown_keys(table: Table) -> list[str]:
    """The keys of a table that a recipe does not have; those of a shape, an objective or an
    extension are known only to the model.
    """
    keys, kinds = [], fields_of(Recipe)
    for name, value in table.items():
        kind = kinds.get(name)
        inner = fields_of(kind) if dataclasses.is_dataclass(kind) else {}  # type: ignore[arg-type]
        if isinstance(value, dict) and kind != Table:
            keys += [f"{name}.{key}" for key in value if key not in inner]
        elif kind is None:
            keys.append(name)
    if keys:  # what is called otherwise in a shape is told beside them
        from regard.core.foreign import RENAMED

        shape = table.get("shape")
        names = shape if isinstance(shape, dict) else {}
        keys += [f"shape.{key}" for key in names if f"shape.{key}" in RENAMED]
    return keys


def unknown_key(key: str) -> UnknownName:
    """Returns the error that says what a key of others, or of before, is called here."""
    from regard.core.foreign import RENAMED, instead, key_for, ours, plain
    from regard.core.foreign_options import ARGUMENTS

    if key in RENAMED:
        return UnknownName("recipe key", key, (), hint=f"it is called {RENAMED[key]!r} now")
    word, options = key.rpartition(".")[2], option_keys()
    foreign, remark = key_for(word)
    if foreign:
        return UnknownName("recipe key", key, (), remark, meant=foreign)
    option = ours(word, options) or f"--{word.replace('_', '-')}"
    if option in options:
        advice = f"({option} on the command line)"
        return UnknownName("recipe key", key, (), advice, meant=options[option])
    hint = instead(word)
    if "MODEL" in ARGUMENTS.get(plain(word), ""):
        hint = "give it as MODEL, the first word after the command"
    elif ours(word, ["--out"]):
        hint = "say --out DIRECTORY"
    known = [f"{name}.{each}" for name, kind in fields_of(Recipe).items()
             if dataclasses.is_dataclass(kind) for each in fields_of(kind)]  # type: ignore[arg-type]  # fmt: skip
    same = [each for each in known if each.endswith(f".{word}")]
    near = same or difflib.get_close_matches(key, [*known, *fields_of(Recipe)], 1, NEAR)
    hint = hint or (f"did you mean {near[0]!r}?" if near else "'regard recipes --keys' lists all")
    return UnknownName("recipe key", key, (), hint=hint)


def differences(recipe: Recipe) -> list[str]:
    """Returns the settings that differ from the defaults, as KEY=VALUE."""
    usual, changes = Recipe().table(), []
    for name, value in recipe.table().items():
        inner = value if isinstance(value, dict) else {}
        known: Any = usual.get(name, {})
        changes += [f"{name}.{key}={one}" for key, one in inner.items() if known.get(key) != one]
        changes += [f"{name}={value}"] if value != known and not isinstance(value, dict) else []
    return changes


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
        inner, value = table, value_of(text.strip())
        *path, last = key.strip().split(".")
        if key.strip() == "objective" and isinstance(value, str):
            path, last = ["objective"], "name"
        for name in path:
            if not isinstance(inner.get(name), dict | bool | None):
                raise ConfigError(f"{word!r} contradicts {name}={inner[name]}; give one of them")
            inner[name] = inner[name] if isinstance(inner.get(name), dict) else {}
            inner = inner[name]
        if not (value is True and isinstance(inner.get(last), dict)):
            inner[last] = value
    return table


def value_of(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
