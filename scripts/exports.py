"""Exports a small model of every kind to every target, and writes what came out of it to
`regard/exports/matrix.json`, which `regard models --exports` prints.

    python scripts/exports.py                        every cell
    python scripts/exports.py --only gpt2 t5 --to onnx gguf

The weights are random and large, so that an error shows. The tokenizer is one that llama.cpp knows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import regard
from regard.core.errors import RegardError
from regard.core.files import write_text
from regard.data.builtin import python_docs
from regard.data.vocabulary import train
from regard.exports.base import PRECISIONS, ExportSource
from regard.exports.matrix import FILE
from regard.exports.run import TARGETS, export_source, target

SMALL: dict[str, Any] = {"width": 32, "heads": 4, "layers": 2, "context": 128}
FREE = {key: value for key, value in SMALL.items() if key != "context"}  # positions are computed
ROWS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> (published size, other fields)
    "transformer": ("transformer-base", FREE | {"ffn_size": 64}),
    "transformer, pre-norm": ("transformer-base", FREE | {"ffn_size": 64, "norm": "pre"}),
    "bert": ("bert-tiny", SMALL | {"ffn_size": 64, "activation": "gelu"}),
    "roberta": ("roberta-base", SMALL | {"ffn_size": 64}),
    "gpt1": ("gpt1", SMALL),
    "gpt2": ("gpt2", SMALL),
    "gpt3": ("gpt3-small", SMALL | {"band": 9}),
    "transformer-xl": (
        "transformer-xl-wt103-base",
        FREE | {"head_size": 8, "ffn_size": 64, "mem_len": 24, "cutoffs": (), "clamp_len": 20},
    ),
    "xlnet": ("xlnet-base", FREE | {"head_size": 8, "ffn_size": 64}),
    "longformer": ("longformer-base-4096", SMALL | {"ffn_size": 64, "window": 8}),
    "t5": ("t5-small", FREE | {"head_size": 8, "ffn_size": 64}),
    "t5, v1.1": ("t5-v1_1-small", FREE | {"head_size": 8, "ffn_size": 64}),
    "llama": ("llama3-8b", SMALL | {"kv_heads": 2, "ffn_size": 64}),
    "lstm": ("lstm-medium", {"width": 32, "layers": 2}),
}
DEVIATION = 0.15  # of the weights
VOCABULARY = 400


def tokenizer() -> Any:
    """Trains a small tokenizer that every target can express."""
    texts = [text[:3000] for text in python_docs()[:40]]
    return train("gpt2-bpe", texts, vocab_size=VOCABULARY, lower=None, marks=2)


def specimen(name: str, words: Any) -> Any:
    """Returns an opened small model with random weights."""
    size, fields = ROWS[name]
    ids: dict[str, int] = {}
    known = words.ready
    for field, word in (
        ("pad_id", "<|pad|>"),
        ("eos_id", "<|endoftext|>"),
        ("start_id", "<|pad|>"),
    ):
        if hasattr(regard.sizes()[size], field):
            ids[field] = known.token_to_id(word)
    model = regard.create(size, **fields | {"vocab_size": len(words)} | ids)
    dice = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for part, value in model.named_parameters():
            value.normal_(0.0, DEVIATION, generator=dice)
            if "norm" in part and part.endswith("weight"):
                value.add_(1.0)
    return regard.LoadedModel(model.eval(), words)


def cells(rows: list[str], targets: list[str], precisions: list[str]) -> Iterator[dict[str, Any]]:
    """Exports, and yields what came out for every model, target and precision."""
    words = tokenizer()
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows:
            source = ExportSource(specimen(row, words))
            for name in targets:
                for precision in precisions:
                    out = Path(scratch) / f"{row}-{name}-{precision}"
                    yield {"model": row, "to": name, "precision": precision} | outcome(
                        source, name, out, precision
                    )


def outcome(source: ExportSource, name: str, out: Path, precision: str) -> dict[str, Any]:
    """Returns the figures of an export, or why there is none."""
    try:
        report = export_source(source, name, out, precision)
    except RegardError as error:
        return {"equal": False, "because": str(error)}
    figures = report["compared"]
    return {"equal": True} | {
        key: figures[key]
        for key in ("quantity", "difference", "tokens", "agreement", "perplexity", "cosine")
        if figures.get(key) is not None
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--to", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--precision", nargs="*", default=list(PRECISIONS), choices=PRECISIONS)
    options = parser.parse_args()
    table = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {"cells": []}
    for cell in cells(options.only, options.to, options.precision):
        print(json.dumps(cell), flush=True)
        key = [cell[part] for part in ("model", "to", "precision")]
        others = [c for c in table["cells"] if [c[p] for p in ("model", "to", "precision")] != key]
        table["cells"] = sorted(
            [*others, cell],
            key=lambda c: (list(ROWS).index(c["model"]), list(TARGETS).index(c["to"]),
                           PRECISIONS.index(c["precision"])),
        )  # fmt: skip
        runtimes = table.setdefault("runtimes", {})
        runtimes[cell["to"]] = versions(cell["to"])
        write_text(FILE, json.dumps(table, indent=1, ensure_ascii=False) + "\n")


def versions(name: str) -> dict[str, str]:
    """Returns the versions of the modules that convert and open a target."""
    modules = {package: import_module(package) for package in target(name).packages}
    return {
        package: getattr(module, "__version__", None) or version(package)
        for package, module in modules.items()
    }


if __name__ == "__main__":
    main()
