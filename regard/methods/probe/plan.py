"""What is asked for, in values that a file can hold."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from regard.core.errors import ConfigError

PLAN = "plan.json"
LIMIT = 4000  # sentences or texts
OPTIONS = {"fields": "field", "form": "format"}  # called otherwise on the command line
READING = ("fields", "form", "header")  # how labelled files are read
IGNORED = {  # options that would change nothing
    "file": ("split",),
    "heads": ("valid", "test", "kind", "hidden", "dropout", "decay", "epochs", "mix", "pooling",
              "cache", *READING),
    "structure": ("hidden", "dropout", "mix", "split", *READING),
    "auto": ("valid", "test", "skip", *READING),
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    run: str
    task: str  # a file with labels, auto:NAME, heads or structure
    data: str | None = None  # text, or CoNLL-U: what auto:NAME, heads and structure read
    valid: str | None = None
    test: str | None = None
    kind: str = "linear"
    hidden: int = 256  # of an MLP
    dropout: float = 0.0
    decay: float = 0.0
    epochs: int | None = None  # at most; None: 100 of labels, 40 (as published) of structure
    control: bool = False
    untrained: bool = True
    mix: bool = False
    seeds: int = 3
    layers: list[int] = field(default_factory=list)  # none: all
    pooling: str = "mean"
    length: int | None = None  # tokens read at once; None: the model's context
    limit: int = LIMIT
    split: str = "train"  # of a prepared directory
    cache: str | None = None  # where states are kept; None: beside the result, until it is done
    fields: dict[str, str] = field(default_factory=dict)
    form: str | None = None
    header: bool | None = None
    download: bool = False
    skip: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("epochs", 0), ("limit", 10), ("length", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                raise ConfigError(f"--{name} is {getattr(self, name)}; it is at least {least}")
        if self.decay < 0:
            raise ConfigError(f"--decay is {self.decay:g}; it is 0 or more")
        if not self.task:
            raise ConfigError(
                "--task is missing; give a labelled file, auto:NAME, heads or structure"
            )
        changed, kind = self.changed(), "auto" if self.task.startswith("auto:") else self.task
        for name in IGNORED.get(kind, IGNORED["file"]):
            if name in changed:
                option = OPTIONS.get(name, name)
                raise ConfigError(f"--task {self.task} has no use for --{option}; leave it out")
        if "hidden" in changed and not self.kind.startswith("mlp"):
            raise ConfigError(f"--kind {self.kind} has no use for --hidden, the width of an MLP; "
                              "leave it out, or choose mlp")  # fmt: skip

    def changed(self) -> list[str]:
        """The options that do not have their default."""
        return [name for name, value in usual().items() if getattr(self, name) != value]


def usual() -> dict[str, Any]:
    """The default of every option that may be left out."""
    defaults: dict[str, Any] = {}
    for each in fields(Plan):
        if each.default is not MISSING:
            defaults[each.name] = each.default
        elif each.default_factory is not MISSING:
            defaults[each.name] = each.default_factory()
    return defaults
