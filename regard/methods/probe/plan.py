"""What is asked for, in values that a file can hold."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from regard.core.errors import ConfigError, FormatError

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
    data: str = ""  # text, or CoNLL-U: what auto:NAME, heads and structure read
    valid: str = ""
    test: str = ""
    kind: str = "linear"
    hidden: int = 256  # of an MLP
    dropout: float = 0.0
    decay: float = 0.0
    epochs: int = 0  # at most; 0: 100 of labels, 40 (as published) of structure
    control: bool = False
    untrained: bool = True
    mix: bool = False
    seeds: int = 3
    layers: list[int] = field(default_factory=list)  # none: all
    pooling: str = "mean"
    length: int = 0  # tokens read at once; 0: the model's context
    limit: int = LIMIT
    split: str = "train"  # of a prepared directory
    cache: str = ""  # a directory for states that are kept; "": beside the result, until it is done
    fields: dict[str, str] = field(default_factory=dict)
    form: str = ""
    header: bool | None = None
    download: bool = False
    skip: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("epochs", 0), ("limit", 10), ("length", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"--{name} is {getattr(self, name)}; it is at least {least}")
        if self.decay < 0:
            raise ConfigError(f"--decay is {self.decay:g}; it is 0 or more")
        if not self.task:
            raise ConfigError(
                "--task is missing; give a labelled file, auto:NAME, heads or structure"
            )
        given, about = self.given(), "auto" if self.task.startswith("auto:") else self.task
        for name in IGNORED.get(about, IGNORED["file"]):
            if name in given:
                option = OPTIONS.get(name, name)
                raise ConfigError(f"--task {self.task} has no use for --{option}; leave it out")
        if "hidden" in given and not self.kind.startswith("mlp"):
            raise ConfigError(f"--kind {self.kind} has no use for --hidden, the width of an MLP; "
                              "leave it out, or choose mlp")  # fmt: skip

    def given(self) -> list[str]:
        """What is not as it would be if nothing were said."""
        return [name for name, value in usual().items() if getattr(self, name) != value]

    def facts(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def usual() -> dict[str, Any]:
    """Every option that may be left out, and what it then is."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(Plan):
        if each.default is not MISSING:
            found[each.name] = each.default
        elif each.default_factory is not MISSING:
            found[each.name] = each.default_factory()
    return found


def read_plan(out: Path) -> tuple[Plan, dict[str, Any]]:
    """The plan of a directory that was begun, and what its data and model were."""
    file = out / PLAN
    if not file.is_file():
        raise ConfigError(f"{out} has no {PLAN}, so no probing was begun there")
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        return Plan(**held["plan"]), dict(held["digests"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{file} cannot be read: {error}") from None
