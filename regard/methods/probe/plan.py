"""The options of `regard probe`, in values that a JSON file can hold."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any

from regard.core.errors import ConfigError
from regard.core.options import (
    DOWNLOAD,
    FIELD,
    FORMAT,
    HEADER,
    MAX_BYTES,
    SEEDS,
    SEQ_LEN,
    SKIP,
    SPLIT,
    VALID,
    Option,
    option_of,
)  # fmt: skip
from regard.core.options import LIMIT as EXAMPLES
from regard.data.files import check_max_bytes
from regard.data.readers import MOST

PLAN = "plan.json"
LIMIT = 4000  # sentences or texts
READING = ("fields", "form", "header")  # options for reading labeled files
IGNORED = {  # options that have no effect for a task
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
        Option("The task: a labeled file (CoNLL, CoNLL-U, jsonl, csv, …), auto:NAME, structure "
               "(trees), or heads (attention).", metavar="WHAT"),
    ] = ""  # fmt: skip
    data: Annotated[
        str | None,
        Option("The data of auto:NAME and heads: a text file or a prepared directory; structure "
               "(and heads) read CoNLL-U.", metavar="FILE"),
    ] = None  # fmt: skip
    valid: Annotated[str | None, VALID] = None
    test: Annotated[
        str | None,
        Option(
            "Measure on the examples of this file.",
            metavar="FILE",
            default="those of --valid, or a tenth of the data",
        ),
    ] = None
    kind: Annotated[
        str, Option("The probe: linear, mlp, mlp-2, or rank-N such as rank-32.", "--probe", "NAME")
    ] = "linear"
    hidden_size: Annotated[int, Option("The hidden size of an MLP.", "--mlp-size", "N")] = 256
    dropout: Annotated[float, Option("The dropout of a probe's input.", metavar="X")] = 0.0
    weight_decay: Annotated[float, Option("The weight decay.", "--weight-decay", "X")] = 0.0
    epochs: Annotated[
        int | None,
        Option("Train for at most X epochs; early stopping may end sooner.", metavar="X",
               default="100; for structure 40"),
    ] = None  # 40 as published  # fmt: skip
    control: Annotated[
        bool, Option("Also train on random labels of word types, to measure selectivity.")
    ] = False
    untrained: Annotated[bool, Option("Also probe untrained models of the same shape.")] = True
    mix: Annotated[bool, Option("Also train a probe on a learned mix of all layers.")] = False
    seeds: Annotated[int, SEEDS] = 3
    layers: Annotated[
        list[int],
        Option("Probe these layers, such as 0,3,-1; 0 is the input of layer 1.", metavar="LIST",
               default="all", commas=True),
    ] = field(default_factory=list)  # fmt: skip
    pooling: Annotated[
        str, Option("Use the mean of a word's pieces (of a text's tokens), or the first one.")
    ] = "mean"
    length: Annotated[int | None, SEQ_LEN] = None  # None: the model's context
    limit: Annotated[int, EXAMPLES] = LIMIT
    split: Annotated[str, SPLIT] = "train"
    cache: Annotated[
        str | None, Option("Keep the model's hidden states here for other runs.", metavar="DIR")
    ] = None  # None: inside --out, deleted at the end
    fields: Annotated[dict[str, str], FIELD] = field(default_factory=dict)
    form: Annotated[str | None, FORMAT] = None
    header: Annotated[bool | None, HEADER] = None
    download: Annotated[bool, DOWNLOAD] = False
    skip: Annotated[list[str], SKIP] = field(default_factory=list)
    max_bytes: Annotated[int, MAX_BYTES] = MOST

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("epochs", 0), ("limit", 10), ("length", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                option = option_of(type(self), name)
                raise ConfigError(f"{option} is {getattr(self, name)}; it must be at least {least}")
        check_max_bytes(self.max_bytes)
        if self.weight_decay < 0:
            raise ConfigError(f"--weight-decay is {self.weight_decay:g}; it must be 0 or more")
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
        """Returns the names of the options that differ from their defaults."""
        return [name for name, value in usual().items() if getattr(self, name) != value]


def usual() -> dict[str, Any]:
    """Returns the default of every option that may be left out."""
    defaults: dict[str, Any] = {}
    for each in fields(ProbePlan):
        if each.default is not MISSING:
            defaults[each.name] = each.default
        elif each.default_factory is not MISSING:
            defaults[each.name] = each.default_factory()
    return defaults
