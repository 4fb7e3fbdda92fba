"""A model and its objective as one module: what is compiled, and what the parallel engines wrap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention.block import Block
from regard.models.state import State
from regard.objectives.base import Batch, Objective

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}


class Learner(nn.Module):
    """Called with a batch, gives (sums that learn, what is only seen) as dictionaries of tensors,
    which every engine understands.
    """

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(
        self, batch: Batch, state: State | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        loss = self.objective.loss(self.model, batch, state)
        seen = {name: pair[0] for name, pair in loss.seen.items()}
        return loss.sums, seen | {
            f"{name}/of": counted(pair[1]) for name, pair in loss.seen.items()
        }


def counted(value: Tensor | float) -> Tensor:
    """Of how many, as exactly as the device can say it."""
    if isinstance(value, Tensor) and value.device.type == "mps":  # which has no float64
        return value.float()
    return torch.as_tensor(value, dtype=torch.float64)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Products in half precision; weights, norms, softmax and sums stay in fp32."""
    if precision in ("fp32", "fp64"):
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


def moved(batch: Batch, device: torch.device, dtype: torch.dtype | None = None) -> Batch:
    """The batch on a device; floating shares in the dtype of the weights."""

    def one(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: one(v) for k, v in value.items()}
        if not isinstance(value, Tensor):
            return value
        if dtype is not None and value.is_floating_point():
            value = value.to(dtype)
        return value.to(device, non_blocking=True)

    return {k: one(v) for k, v in batch.items()}


def checkpoint_blocks(model: nn.Module) -> None:
    """Each block forgets its activations and computes them again when they are needed."""
    for block in blocks(model):
        block.run = recomputed


def blocks(model: nn.Module) -> list[Any]:
    """All layers of a model, an encoder's and a decoder's alike."""
    return [part for part in model.modules() if isinstance(part, Block)]


def recomputed(block: Block, *inputs: Any) -> Tensor:
    """A block's `run` that keeps only the inputs, and computes the rest again for the gradient."""
    if not torch.is_grad_enabled():
        return block.compute(*inputs)
    if torch.compiler.is_compiling():  # a graph has one mode, there and back
        y: Tensor = checkpoint(block.compute, *inputs, use_reentrant=False)
    else:
        y = checkpoint(in_mode, block, block.training, *inputs, use_reentrant=False)
    return y


def in_mode(block: Block, training: bool, *inputs: Any) -> Tensor:
    """On the way back a block is in the mode of the way there: an objective may have put the model
    at rest only while it asked.
    """
    now = block.training
    if now != training:
        block.train(training)
    try:
        return block.compute(*inputs)
    finally:
        if now != training:
            block.train(now)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Without dropout and without gradients, and as before afterwards."""
    was = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(was)
