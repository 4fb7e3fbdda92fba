"""The attention language models, from the Transformer to T5, built from one attention core.

    model = regard.create("gpt2")        # a published size with fresh weights
    loaded = regard.load("path/or/name") # a model directory: .model .config .tokenizer .save(path)
    regard.save(model, "path")           # a directory that transformers opens
    with regard.record(model) as seen:   # the attention weights of every layer and head
        model(tokens)

Importing the package imports nothing heavy: torch comes with the first name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.exchange.directory import Loaded, load, save
    from regard.models import count_parameters, create, sizes
    from regard.study.record import record

__version__ = "0.1.0"

__all__ = [
    "Loaded",
    "__version__",
    "count_parameters",
    "create",
    "load",
    "record",
    "save",
    "sizes",
]

HOMES = {
    "Loaded": "regard.exchange.directory",
    "load": "regard.exchange.directory",
    "save": "regard.exchange.directory",
    "count_parameters": "regard.models",
    "create": "regard.models",
    "sizes": "regard.models",
    "record": "regard.study.record",
}
PACKAGES = {
    "attention", "augment", "claims", "compare", "decoding", "errors", "exchange", "extensions",
    "knowledge", "look", "models", "objectives", "probe", "study", "tasks", "text", "training",
    "workshop",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in HOMES:
        value = getattr(import_module(HOMES[name]), name)
    elif name in PACKAGES:
        value = import_module(f"regard.{name}")
    else:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *PACKAGES})
