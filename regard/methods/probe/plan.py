"""What is asked for, in values that a file can hold."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any

from regard.core.errors import ConfigError
from regard.core.options import (
    DOWNLOAD,
    FIELD,
    FORMAT,
    HEADER,
    SEEDS,
    SEQ_LEN,
    SKIP,
    SPLIT,
    VALID,
    Option,
    option_of,
)  # fmt: skip
from regard.core.options import LIMIT as EXAMPLES

PLAN = "plan.json"
LIMIT = 4000  # sentences or texts
READING = ("fields", "form", "header")  # how labeled files are read
IGNORED = {  # options that would change nothing
    "file": ("split",),
    "heads": ("valid", "test", "kind", "hidden_size", "dropout", "weight_decay", "epochs", "mix",
              "pooling", "cache", *READING),
    "structure": ("hidden_size", "dropout", "mix", "split", *READING),
    "auto": ("valid", "test", "skip", *READING),
}  # fmt: skip


@dataclass(frozen=True)
class ProbePlan:
    run: str
    task: Annotated[
        str,
        Option("A labeled file (CoNLL, CoNLL-U, jsonl, csv, …), auto:NAME, structure (trees), or "
               "heads (attention).", metavar="WHAT"),
    ] = ""  # fmt: skip
    data: Annotated[
        str | None,
        Option("What auto:NAME and heads read: a text or a prepared directory; structure (and "
               "heads) read CoNLL-U.", metavar="FILE"),
    ] = None  # fmt: skip
    valid: Annotated[str | None, VALID] = None
    test: Annotated[
        str | None,
        Option("Examples to measure on.", metavar="FILE", default="those of --valid, or a tenth"),
    ] = None
    kind: Annotated[
        str, Option("linear, mlp, mlp-2, or rank-N such as rank-32.", "--probe", "NAME")
    ] = "linear"
    hidden_size: Annotated[int, Option("Width of an MLP.", "--mlp-size", "N")] = 256
    dropout: Annotated[float, Option("Dropout of what a probe reads.", metavar="X")] = 0.0
    weight_decay: Annotated[float, Option("Weight decay.", "--weight-decay", "X")] = 0.0
    epochs: Annotated[
        int | None,
        Option("Read the data X times at most; validation ends it before.", metavar="X",
               default="100, of structure 40"),
    ] = None  # 40 as published  # fmt: skip
    control: Annotated[bool, Option("Also learn random labels of word types: selectivity.")] = False
    untrained: Annotated[bool, Option("Also ask untrained models of the same shape.")] = True
    mix: Annotated[bool, Option("Also a probe that reads a learned mix of all layers.")] = False
    seeds: Annotated[int, SEEDS] = 3
    layers: Annotated[
        list[int],
        Option("Which layers, such as 0,3,-1; 0 is what the first layer reads.", metavar="LIST",
               default="all", commas=True),
    ] = field(default_factory=list)  # fmt: skip
    pooling: Annotated[
        str, Option("The mean of a word's pieces (of a text's tokens), or the first.")
    ] = "mean"
    length: Annotated[int | None, SEQ_LEN] = None  # None: the model's context
    limit: Annotated[int, EXAMPLES] = LIMIT
    split: Annotated[str, SPLIT] = "train"
    cache: Annotated[
        str | None, Option("Keep the states of the model here for other questions.", metavar="DIR")
    ] = None  # None: beside the result, until it is done
    fields: Annotated[dict[str, str], FIELD] = field(default_factory=dict)
    form: Annotated[str | None, FORMAT] = None
    header: Annotated[bool | None, HEADER] = None
    download: Annotated[bool, DOWNLOAD] = False
    skip: Annotated[list[str], SKIP] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("epochs", 0), ("limit", 10), ("length", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                option = option_of(type(self), name)
                raise ConfigError(f"{option} is {getattr(self, name)}; it is at least {least}")
        if self.weight_decay < 0:
            raise ConfigError(f"--weight-decay is {self.weight_decay:g}; it is 0 or more")
        if not self.task:
            raise ConfigError(
                "--task is missing; give a labeled file, auto:NAME, heads or structure"
            )
        changed, about = self.changed(), "auto" if self.task.startswith("auto:") else self.task
        for name in IGNORED.get(about, IGNORED["file"]):
            if name in changed:
                option = option_of(type(self), name)
                raise ConfigError(f"--task {self.task} has no use for {option}; leave it out")
        if "hidden_size" in changed and not self.kind.startswith("mlp"):
            raise ConfigError(
                f"--probe {self.kind} has no use for --mlp-size, the width of an MLP; leave it "
                "out, or choose mlp"
            )

    def changed(self) -> list[str]:
        """The options that do not have their default."""
        return [name for name, value in usual().items() if getattr(self, name) != value]


def usual() -> dict[str, Any]:
    """The default of every option that may be left out."""
    defaults: dict[str, Any] = {}
    for each in fields(ProbePlan):
        if each.default is not MISSING:
            defaults[each.name] = each.default
        elif each.default_factory is not MISSING:
            defaults[each.name] = each.default_factory()
    return defaults
