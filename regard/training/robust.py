"""A recipe's `[robust]`: what it leaves open is settled, and the rest checked; stochastic depth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.block import CrossBlock, PostNorm
from regard.core.errors import ConfigError
from regard.training.freezing import BACKWARD
from regard.training.recipe import Recipe, Robust
from regard.training.train_module import blocks

# What each adversary has, and its own choice. FreeLB's is that of its authors' code for MNLI, and
# the others move as far. Code that moves the weights has ε 1 and steps of 0.3 for the words of a
# whole batch; of a sequence that is moved by 0.3 a BERT learns little (docs/results.md).
OWN: dict[str, dict[str, float]] = {
    "": {},
    "fgm": {"radius": 0.1},
    "pgd": {"radius": 0.1, "rate": 0.03, "steps": 3},
    "freelb": {"radius": 0.3, "rate": 0.1, "steps": 2, "start": 0.1},
}
NUMBERS = ("radius", "rate", "steps", "start")
ADDS = "sigmoid"  # the gates that only add to the stream
SUBLAYERS = ("attention", "cross", "feed_forward")


def settle_robust(recipe: Recipe, processes: int) -> None:
    """Fills in what is left to the method, and refuses what it has not or cannot be."""
    chosen = recipe.robust
    own = OWN[chosen.adversary]
    for name in NUMBERS:
        given = getattr(chosen, name)
        if given < 0 or (name == "steps" and given == 0):
            setattr(chosen, name, own.get(name, given))
        elif name not in own:
            asked = f"robust.adversary is {chosen.adversary!r}, which has no such number"
            raise ConfigError(
                f"robust.{name} is {given:g}, and {asked}; leave it out, or choose one of "
                f"{', '.join(kind for kind, known in OWN.items() if name in known)}"
            )
    check_ranges(chosen)
    if disturbs(chosen) or chosen.agree or chosen.depth:
        check_engine(recipe, processes)


def check_ranges(chosen: Robust) -> None:
    for name in ("depth", "tokens"):
        if not 0 <= getattr(chosen, name) < 1:
            raise ConfigError(
                f"robust.{name} is {getattr(chosen, name):g}; it must be from 0 to below 1"
            )
    for name in ("agree", "noise", *OWN[chosen.adversary]):
        if not 0 <= getattr(chosen, name) < float("inf"):
            raise ConfigError(f"robust.{name} is {getattr(chosen, name):g}; it must be from 0 on")


def check_engine(recipe: Recipe, processes: int) -> None:
    """A compiled step would be compiled again for every pass, and one of dealt-out weights knows
    only one pass.
    """
    chosen, engine = recipe.robust, recipe.engine
    if engine.compile == "yes":
        raise ConfigError("what [robust] does to a step cannot be compiled; set engine.compile=no")
    engine.compile = "no"
    if processes > 1 and engine.parallel == "fsdp" and (chosen.adversary or chosen.agree):
        raise ConfigError(
            "robust.adversary and robust.agree read a batch several times, which weights that are "
            "dealt out cannot; set engine.parallel=ddp"
        )


def check_model(chosen: Robust, model: Any) -> None:
    if chosen.depth and not blocks(model):
        raise ConfigError(
            f"robust.depth leaves out layers, and {type(model).__name__} has none that it could do "
            "without; set it to 0"
        )
    gates = model.extensions.get("gates", {}).get("kind", ADDS)
    if chosen.depth and gates != ADDS:
        raise ConfigError(
            f"robust.depth leaves out what a layer adds, and with {gates} gates it also takes "
            f"away; choose extensions.gates.kind={ADDS}, or set robust.depth to 0"
        )


def disturbs(chosen: Robust) -> bool:
    """Are words disturbed at the embedding?"""
    return bool(chosen.adversary or chosen.noise or chosen.tokens)


def passes(chosen: Robust) -> float:
    """The work of a step, in plain ones."""
    chases = 2 + (1 - BACKWARD / 2) * (chosen.steps - 1)  # on the way no weight gets a gradient
    count = {"": 1.0, "fgm": 2.0, "pgd": chases, "freelb": float(chosen.steps)}
    return count[chosen.adversary] * (2 if chosen.agree else 1)


# -- stochastic depth


class Path:
    """One layer's choice for the examples of a batch, until the next."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.keep = torch.ones(())

    def draw(self, like: Tensor) -> None:
        shape = like.size(0), *[1] * (like.dim() - 1)
        kept = torch.rand(shape, device=like.device) >= self.rate
        self.keep = kept.to(like.dtype) / (1 - self.rate)


class Skipping(nn.Module):
    """In the place of a sub-layer's dropout: what the sub-layer adds is left out with its layer."""

    def __init__(self, dropout: nn.Module, path: Path, first: bool) -> None:
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
    """Stochastic depth (Huang et al. 2016): layer l of L is left out with probability
    p = depth · l / L.

    As there, one choice is made for a whole layer, so all of its sub-layers go together (their
    norms remain); unlike there it is made for each example and not for a batch, and what is kept is
    scaled by 1 / (1 - p) while learning, so that a model that has learned is used as it is. A
    decoder's layers are counted by themselves. Nothing of this is saved with the model.
    """
    found = blocks(model)
    for decoder in (False, True):
        stack = [block for block in found if isinstance(block, CrossBlock) == decoder]
        for number, block in enumerate(stack, 1):
            path = Path(depth * number / len(stack))
            for i, part in enumerate(sublayers(block)):
                part.dropout = Skipping(part.dropout, path, first=i == 0)


def sublayers(block: Any) -> list[Any]:
    """In the order in which they are read."""
    found = [getattr(block, name) for name in SUBLAYERS if hasattr(block, name)]
    for part in found:
        if not isinstance(part, PostNorm):
            raise ConfigError(
                f"robust.depth knows no {type(part).__name__}, which a layer of this model holds; "
                "set it to 0"
            )
    return found
