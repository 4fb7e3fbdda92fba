"""Small model directories to damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.formats.directory import save

COMMON = {"layers": 2, "width": 16, "vocab_size": 31}
SIZES: dict[str, dict[str, Any]] = {
    "bert-tiny": {"heads": 4, "ffn_size": 24, "context": 12},
    "gpt2": {"heads": 4, "context": 12},
    "t5-small": {"heads": 2, "head_size": 4, "ffn_size": 24},
    "transformer-base": {"heads": 4, "ffn_size": 24, "bias": True},
    "xlnet-base": {"heads": 4, "head_size": 4, "ffn_size": 24},
    "longformer-base-4096": {"heads": 4, "ffn_size": 24, "context": 12, "window": 4},
    "roberta-base": {"heads": 4, "ffn_size": 24, "context": 12},
    "llama3.2-1b": {"heads": 4, "kv_heads": 2, "ffn_size": 24, "context": 12},
    "transformer-xl-wt103-base": {
        "heads": 4, "head_size": 4, "ffn_size": 24, "cutoffs": (9, 20), "mem_len": 8,
    },
}  # fmt: skip


class Directory:
    """A model directory that can be changed field by field and tensor by tensor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights = path / "model.safetensors"

    @property
    def config(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((self.path / "config.json").read_text())
        return values

    def change(self, **fields: Any) -> Path:
        (self.path / "config.json").write_text(json.dumps(self.config | fields))
        return self.path

    def tensors(self, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
        from safetensors.torch import load_file, save_file

        tensors = load_file(self.weights)
        change(tensors)
        save_file(tensors, self.weights)
        return self.path


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("originals")
    torch.manual_seed(0)
    for name, changes in SIZES.items():
        save(regard.create(name, **COMMON | changes), base / name)
    return base


@pytest.fixture
def directory(originals: Path, tmp_path: Path) -> Callable[[str], Directory]:
    """A fresh copy of one of them."""

    def copy(name: str) -> Directory:
        target = tmp_path / name
        shutil.copytree(originals / name, target)
        return Directory(target)

    return copy
