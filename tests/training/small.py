"""A tiny data directory with everything that belongs to one, and a recipe for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from regard.methods.runs import data_for
from regard.models import FAMILIES
from regard.training.loop import Loop
from regard.training.parallel import ProcessGroup
from regard.training.plan import TrainingPlan, prepare
from regard.training.recipe import Recipe, Resolved, make
from regard.training.resolve import (
    DataFacts,
    MachineFacts,
    ModelFacts,
    RunFacts,
    resolve,
    with_budget,
)
from tests.objectives.small import VOCABULARY, random_documents, write_corpus


def data(directory: Path, *, documents: int = 60, kind: str = "text") -> Path:
    """Words w0 … w39, in documents of a few sentences."""
    sentences = (2, 2) if kind == "pairs" else (2, 6)
    write_corpus(directory, random_documents(documents, sentences=sentences), kind=kind)
    vocabulary = {f"w{i}": i for i in range(VOCABULARY)}
    fast = Tokenizer(models.WordLevel(vocabulary, unk_token="w2"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    (directory / "tokenizer.json").write_text(fast.to_str(), encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "w1"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


SHAPES: dict[str, dict[str, Any]] = {
    "lstm": {"layers": 1, "width": 16, "dropout": 0.2},
    "transformer-xl": {
        "layers": 2, "width": 16, "heads": 2, "head_size": 8, "ffn_size": 32, "mem_len": 12,
        "cutoffs": [], "ratio": 1, "same_length": False, "clamp_len": 0,
    },
    "xlnet": {
        "layers": 2, "width": 16, "heads": 2, "head_size": 8, "ffn_size": 32, "mem_len": 12,
    },
    "t5": {"layers": 1, "width": 16, "heads": 2, "head_size": 8, "ffn_size": 32},
    "longformer": {"layers": 2, "width": 16, "heads": 2, "ffn_size": 32, "window": 8},
    "longformer-characters": {
        "layers": 2, "width": 16, "heads": 2, "ffn_size": 32, "windows": [4, 8],
    },
}  # fmt: skip
PLAIN = {"layers": 2, "width": 16, "heads": 2, "ffn_size": 32}
STILL: dict[str, dict[str, Any]] = {  # without dropout
    "gpt": {"dropout": 0.0, "dropout_attention": 0.0, "dropout_embedding": 0.0},
    "bert": {"dropout": 0.0, "dropout_attention": 0.0},
    "transformer-xl": {"dropout": 0.0},
    "xlnet": {"dropout": 0.0},
    "t5": {"dropout": 0.0},
    "lstm": {"dropout": 0.0},
}


def planned(asked_for: Recipe) -> TrainingPlan:
    """Everything of a run in this process, before its first step."""
    cpu = torch.device("cpu")
    return prepare(asked_for, ProcessGroup(), cpu, lambda text: None, data=data_for(asked_for))


def looped(asked_for: Recipe) -> Loop:
    return planned(asked_for).loop


def loop_of(family: str, where: Path, **changes: Any) -> Loop:
    return planned(recipe(family, where, **changes)).loop


def gradients(loop: Loop) -> dict[str, Tensor]:
    """Those of the first step, which are not cleared after it."""
    loop.optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
    loop.step(1)
    return {n: p.grad.clone() for n, p in loop.model.named_parameters() if p.grad is not None}


def same(one: dict[str, Tensor], two: dict[str, Tensor], within: float = 1e-12) -> None:
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert (two[name] - value).abs().max() <= within, name


def resolved(table: dict[str, Any], *, processes: int = 1, layers: int = 12) -> Resolved:
    """A recipe of a BERT, resolved by facts that no file or machine has to give."""
    card, machine = FAMILIES["bert"], MachineFacts(processes=processes)
    requested = make({"model": "bert"}, table)
    config = resolve(requested, DataFacts("masked"), card, machine, ModelFacts(768))
    return with_budget(config, card.trained(), RunFacts(100, 16.0, layers, 1.0))


def recipe(model: str, where: Path, **changes: Any) -> Recipe:
    """A few fast steps in full precision."""
    base: dict[str, Any] = {
        "model": model,
        "data": str(where),
        "shape": SHAPES.get(model, PLAIN),
        "batch": {"size": 4, "seq_len": 32},
        "budget": {"steps": 6},
        "optimizer": {"lr": 0.01},
        "schedule": {"name": "linear", "warmup": 2},
        "validation": {"every": 3},
        "engine": {"precision": "fp32", "compile": "no"},
    }
    return make(base, changes)
