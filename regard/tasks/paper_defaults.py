"""What the papers fine-tuned with; each set is a starting point that a recipe may change."""

from __future__ import annotations

from typing import Any

from regard.core.errors import ConfigError
from regard.training.optimizer import entry

# What learns a task from labelled rows, and as what; the others learn it as text.
OBJECTIVES = {
    "classify": "classify",
    "entail": "classify",
    "similar": "classify",
    "choose": "choose",
    "tag": "tag",
    "answer": "answer",
}
TEXT = ("translate", "summarise", "converse")  # a text from a text, whatever the model
WRITERS = ("t5", "transformer")  # families that learn every task as text

_bert = entry(rate=2e-5, epsilon=1e-6, decay=0.01, warmup=0.1, batch=32, length=128, epochs=3)
_gpt = entry(rate=6.25e-5, decay=0.01, schedule="gpt1", warmup=0.002, batch=32, length=512,
             epochs=3)  # fmt: skip
_xlnet = entry(rate=2e-5, epsilon=1e-6, warmup=0.1, batch=32, length=512, epochs=3)
_longformer = entry(rate=3e-5, epsilon=1e-6, decay=0.01, warmup=0.1, batch=32, length=4096,
                    epochs=4)  # fmt: skip

# By family and task; "" is any task. Lengths are the most tokens of a row.
PAPER: dict[str, dict[str, dict[str, Any]]] = {
    "bert": {
        "": _bert,
        "tag": _bert | {"batch": 16, "epochs": 5},
        "answer": _bert | {"rate": 3e-5, "batch": 12, "length": 384, "epochs": 2},
        "choose": _bert | {"batch": 16},
    },
    "gpt": {"": _gpt},
    "xlnet": {
        "": _xlnet,
        "similar": _xlnet | {"rate": 5e-5, "length": 128},
        "answer": _xlnet | {"rate": 3e-5, "batch": 48, "fall": 0.75},
    },
    "longformer": {
        "": _longformer,
        "classify": _longformer | {"epochs": 15},
    },
    "t5": {
        "": entry(optimizer="adafactor", rate=1e-3, epsilon=1e-30, clip=0.0, schedule="constant",
                  batch=128, length=512, epochs=10),
    },
    "transformer": {"": entry(rate=1e-4, warmup=0.1, batch=64, length=256, epochs=10)},
    "transformer-xl": {"": _gpt | {"rate": 1e-4, "length": 256, "schedule": "linear"}},
    "lstm": {"": entry(optimizer="adam", rate=5e-4, clip=5.0, batch=32, length=256, epochs=10)},
}  # fmt: skip
PAPER["longformer-characters"] = PAPER["transformer-xl"]


def finetuning(family: str, task: str) -> dict[str, Any]:
    """What the paper of a family fine-tuned with on such a task."""
    if family not in PAPER:
        raise ConfigError(f"{family} is not known to learn {task}")
    return dict(PAPER[family].get(task) or PAPER[family][""])
