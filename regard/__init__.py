"""The attention language models, from the Transformer to T5, built from one attention core.

    model = regard.create("gpt2")        # a published size with fresh weights
    loaded = regard.load("path/or/name") # a model directory: .model .config .tokenizer .save(path)
    regard.save(model, "path")           # a directory that transformers opens
    with regard.record(model) as seen:   # the attention weights of every layer and head
        model(tokens)
    regard.train("gpt", "data", out="my-gpt", lr=1e-3)  # every command is a function, too

Importing the package imports nothing heavy: torch is imported with the first name that needs it.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from regard.core import VERSION as __version__

# OpenMP's threads wait for each other by spinning, for milliseconds. Beside other work a small
# model then learns tens of times slower (benchmarks/busy.py): a thread that spins has used up its
# time when it has something to do. GNU's library reads this once, when torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

if TYPE_CHECKING:
    from regard.api import LoadedModel, load
    from regard.attention.recorder import record
    from regard.formats.directory import save
    from regard.models import count_parameters, create, sizes

__all__ = [
    "LoadedModel",
    "__version__",
    "count_parameters",
    "create",
    "load",
    "record",
    "save",
    "sizes",
]

HOMES = {
    "LoadedModel": "regard.api",
    "load": "regard.api",
    "save": "regard.formats.directory",
    "count_parameters": "regard.models",
    "create": "regard.models",
    "sizes": "regard.models",
    "record": "regard.attention.recorder",
}
VERBS = {  # the commands that are Python functions, too, and the module of each
    **dict.fromkeys(("prepare", "check", "augment"), "data"),
    **dict.fromkeys(("train", "finetune", "distill", "align", "plan"), "learn"),
    **dict.fromkeys(("evaluate", "probe", "compare"), "measure"),
    **dict.fromkeys(("quantize", "prune"), "shrink"),
    **dict.fromkeys(("info", "convert", "recipes", "push", "doctor"), "catalog"),
    "export": "export",
    **dict.fromkeys(("look", "draw"), "picture"),
    "claims": "measure",
}
PACKAGES = {
    "attention", "core", "data", "decoding", "evaluation", "exports", "formats", "lab", "methods",
    "metrics", "models", "objectives", "report", "serve", "tasks", "training",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in HOMES:
        value = getattr(import_module(HOMES[name]), name)
    elif name in VERBS:
        command = import_module(f"regard.cli.{VERBS[name]}").COMMANDS[name]
        if isinstance(command, tuple):  # regard.draw.masks(…), regard.claims.run(…)
            inner = {each: one.as_function() for each, one in command[2].items()}
            example = f"Examples: regard.{name}.{f', regard.{name}.'.join(inner)}"
            value = SimpleNamespace(**inner, __doc__=f"{command[1]}\n\n{example}")
        else:
            value = command.as_function()
    elif name in PACKAGES:
        value = import_module(f"regard.{name}")
    else:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *VERBS, *PACKAGES})
