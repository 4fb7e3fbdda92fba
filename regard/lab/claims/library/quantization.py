"""Quantization: weights of eight bits."""

from __future__ import annotations

from pathlib import Path

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import Workspace, seconds
from regard.lab.claims.engine.labeled_texts import Files
from regard.training.recipe import Table

LARGER: Table = {"vocab_size": 8000, "width": 768, "layers": 4, "heads": 12, "ffn_size": 3072,
          "context": 128}  # fmt: skip


def costs(small: bool, seed: int) -> dict[str, float]:
    """Measures the bytes, and the seconds per token when it writes one text, of a model so large
    that reading its weights takes most of the time."""
    import torch

    from regard.core.seeding import seed_torch
    from regard.formats.directory import Checkpoint
    from regard.methods.smaller import task_for
    from regard.models.extensions import extend
    from regard.models.gpt import GPT as Model
    from regard.models.gpt import GPTConfig

    with torch.random.fork_rng(devices=[]):
        seed_torch(seed, "quantization")
        model = Model(GPTConfig(**LARGER)).initialize().eval()
    if small:
        extend(model, "int8", {"kind": "weight", "exclude": []})
    tensors = [*model.parameters(), *model.buffers()]
    _, tokens, write = task_for(Checkpoint(model))
    return {
        "bytes": float(sum(x.numel() * x.element_size() for x in tensors)),
        "seconds a token": seconds(write) / tokens,
    }


def made_small(run: Path, files: Files, cell: ClaimCell, room: Workspace) -> dict[str, float]:
    from regard.evaluation.test import Plan as Testing
    from regard.evaluation.test import examine
    from regard.methods.quantize.run import Plan, quantize

    small = cell.arm == "int8"
    measured = costs(small, cell.seed)
    if small:
        quantize(str(run), run.with_name("int8"), Plan(repeats=0))
        tested = Testing(out=run.with_name("test"), resamples=1)
        figures = examine(str(run.with_name("int8")), [str(files["test"])], tested)["figures"]
        right = float(figures["accuracy"])
        measured |= {"accuracy": right, "error": 1.0 - right}
    return measured
