"""A recipe's `[robust]`: its checks of the model, its cost, and stochastic depth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.block import CrossBlock, PostNorm
from regard.core.errors import ConfigError
from regard.training.optimizer import BACKWARD
from regard.training.recipe_parts import Robust
from regard.training.train_module import blocks

ADDS = "sigmoid"  # the gates that only add to the residual stream
SUBLAYERS = ("attention", "cross", "feed_forward")


def check_model(chosen: Robust, model: Any) -> None:
    if chosen.drop_path and not blocks(model):
        raise ConfigError(
            f"robust.drop_path drops layers, but {type(model).__name__} has none that it could do "
            "without; set it to 0"
        )
    gates = model.extensions.get("gates", {}).get("kind", ADDS)
    if chosen.drop_path and gates != ADDS:
        raise ConfigError(
            f"robust.drop_path drops what a layer adds, but with {gates} gates it also takes away; "
            f"choose extensions.gates.kind={ADDS}, or set robust.drop_path to 0"
        )


def passes(chosen: Robust) -> float:
    """Returns the work of a step as a multiple of a plain step."""
    steps = chosen.adv_steps or 1
    chases = 2 + (1 - BACKWARD / 2) * (steps - 1)  # inner steps give no weight gradients
    count = {None: 1.0, "fgm": 2.0, "pgd": chases, "freelb": float(steps)}
    return count[chosen.adversary] * (2 if chosen.rdrop else 1)


# -- stochastic depth


class DropPathMask:
    """One layer's random choice for the examples of a batch, until the next draw."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.keep = torch.ones(())

    def draw(self, like: Tensor) -> None:
        shape = like.size(0), *[1] * (like.dim() - 1)
        staying = torch.rand(shape, device=like.device) >= self.rate
        self.keep = staying.to(like.dtype) / (1 - self.rate)


class DropPath(nn.Module):
    """Replaces a sub-layer's dropout: the sub-layer's output is dropped with its whole layer."""

    def __init__(self, dropout: nn.Module, path: DropPathMask, first: bool) -> None:
        super().__init__()
        self.dropout, self.path, self.first = dropout, path, first

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dropout(x)
        if not self.training:
            return y
        if self.first:
            self.path.draw(y)
        return y * self.path.keep.to(y.dtype)


def deepen(model: Any, depth: float) -> None:
    """Adds stochastic depth (Huang et al. 2016): layer l of L is dropped with probability p = depth
    · l / L.

    As in the paper, one choice is made for a whole layer, so all of its sub-layers are dropped
    together (their norms remain). Unlike in the paper, it is made for each example and not for a
    batch, and what remains is scaled by 1 / (1 - p) during training, so that a trained model is
    used unchanged. A decoder's layers are counted by themselves. Nothing of this is saved with the
    model.
    """
    layers = blocks(model)
    for decoder in (False, True):
        stack = [block for block in layers if isinstance(block, CrossBlock) == decoder]
        for number, block in enumerate(stack, 1):
            path = DropPathMask(depth * number / len(stack))
            for i, part in enumerate(sublayers(block)):
                part.dropout = DropPath(part.dropout, path, first=i == 0)


def sublayers(block: Any) -> list[Any]:
    """Returns the sub-layers in the order in which they run."""
    parts = [getattr(block, name) for name in SUBLAYERS if hasattr(block, name)]
    for part in parts:
        if not isinstance(part, PostNorm):
            raise ConfigError(
                f"robust.drop_path cannot drop a {type(part).__name__}, which is in a layer of "
                "this model; set it to 0"
            )
    return parts
