"""The base class of all extensions, and helpers to replace parts of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar, Self

import torch
from torch import nn

from regard.core.errors import ConfigError, UnknownName
from regard.core.tables import from_table
from regard.data.tokenizer import Tokenizer


class Extension:
    """A part that can be added to a model. A subclass declares `Options` (a frozen dataclass with
    values that JSON can hold) and says how a model is changed."""

    Options: ClassVar[type]
    name: ClassVar[str]
    choices: ClassVar[Mapping[str, Collection[str]]] = {}  # option -> its allowed values
    least: ClassVar[Mapping[str, int]] = {}  # option -> its smallest value
    learns: ClassVar[bool] = True  # True if a model with this extension can be trained
    lr_factor: ClassVar[float] = 1.0  # of the learning rate of a recipe that names none
    grows: ClassVar[bool] = True  # False: the embeddings of new tokens would never learn
    closes: ClassVar[str] = ""  # what to do before another extension can be added

    def __init__(self, options: Any) -> None:
        self.options = options

    @classmethod
    def of(cls, options: dict[str, Any]) -> Self:
        """Builds an extension from a table of options; names, types and values are checked."""
        path = f"extensions.{cls.name}."
        checked: Any = from_table(cls.Options, options, path=path, what="option")
        for name, known in cls.choices.items():
            if getattr(checked, name) not in known:
                raise UnknownName(name, getattr(checked, name), known, f"({path}{name})")
        for name, least in cls.least.items():
            if getattr(checked, name) < least:
                raise ConfigError(
                    f"{path}{name} is {getattr(checked, name)}; it must be at least {least}"
                )
        return cls(checked)

    def table(self) -> dict[str, Any]:
        """Returns the options as config.json holds them."""
        return dataclasses.asdict(self.options)

    def check(self, model: Any) -> None:
        """Refuses a model to which this extension cannot be added."""

    def apply(self, model: Any) -> None:
        """Changes the model in place; on the meta device there are only shapes."""
        raise TypeError(f"{type(self).__name__} does not say what it changes")

    def initialize(self, model: Any, tokenizer: Tokenizer | None) -> None:
        """Initializes the new weights of a model whose weights are not loaded from a file."""

    @classmethod
    def resolved(cls, options: dict[str, Any], directory: str) -> dict[str, Any]:
        """Returns the options of a run that starts from a model directory; "": from no model."""
        return options

    def frozen(self, model: Any) -> Iterator[nn.Parameter]:
        """Yields the weights that do not learn in a model with this extension."""
        yield from ()


def adopt(part: nn.Module, plain: nn.Module) -> None:
    """Initializes `part`, which will replace `plain`, with all attributes of `plain`. Weights are
    not copied, so tied weights stay tied."""
    nn.Module.__init__(part)
    for name, value in vars(plain).items():
        vars(part)[name] = copy(value) if isinstance(value, dict | set) else value


@contextmanager
def made_like(model: Any) -> Iterator[None]:
    """Creates new parts inside this context on the device and in the dtype of the model."""
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    before = torch.get_default_dtype()
    if like is not None:
        torch.set_default_dtype(like.dtype)
    try:
        with torch.device(model.device):
            yield
    finally:
        torch.set_default_dtype(before)
