"""Which weights learn at a step: all, all but the lowest layers, or ever lower ones.

The last is the gradual unfreezing of ULMFiT (Howard and Ruder 2018, 3.3). What learns is a function
of the step alone, so that a resumed run frees its layers when one that never stopped would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn

from regard.core.errors import ConfigError
from regard.training.recipe import Resolved
from regard.training.train_module import blocks

BOTTOM = {"embeddings", "tokens", "positions", "distances", "query"}  # what lies under the layers
BETWEEN = ("encoder.norm.", "encoder_norm.")  # what lies on an encoder, under a decoder
BACKWARD = 2 / 3  # of the work of a step


def levels(model: nn.Module) -> list[list[nn.Parameter]]:
    """The weights from the bottom up: the embeddings, then each layer, an encoder's before a
    decoder's. What stands above them (heads, the last norm) always learns and is not listed.

    A weight that several layers share belongs to the lowest of them.
    """
    layers = layers_of(model)
    found: list[list[nn.Parameter]] = [[] for _ in range(len(layers) + 1)]
    seen: set[int] = set()
    for place, layer in enumerate(layers, 1):
        for weight in layer.parameters():
            if id(weight) not in seen:
                seen.add(id(weight))
                found[place].append(weight)
    config: Any = model.config
    for name, weight in model.named_parameters():
        if id(weight) in seen:
            continue
        if BOTTOM & set(name.split(".")[:2]):
            found[0].append(weight)
        elif name.startswith(BETWEEN):
            found[config.layers].append(weight)
    return found


def layers_of(model: Any) -> list[nn.Module]:
    return blocks(model) or list(getattr(model, "layers", ()))  # an LSTM has no blocks


def freeze(config: Resolved, model: nn.Module) -> None:
    """What never will learn is frozen here, before there is an optimiser or an engine: neither then
    knows of it.
    """
    chosen = config.optimizer
    if chosen.zeros:
        hold_zeros(config.model, model)
    frozen = held(model, chosen.frozen or 0)
    if not chosen.thaw:
        for weight in frozen:
            weight.requires_grad_(False)
    elif len(frozen) == len(list(model.parameters())):
        raise ConfigError(
            f"nothing stands above the {len(layers_of(model))} layers that could learn while all "
            f"of them are frozen; choose optimizer.frozen below {len(layers_of(model))}"
        )


def held(model: nn.Module, frozen: int) -> list[nn.Parameter]:
    """The weights that so many frozen layers and the embeddings hold; none if `frozen` is 0."""
    return [weight for level in levels(model)[: frozen + 1 if frozen else 0] for weight in level]


def matrices_of(model: nn.Module) -> Iterator[nn.Parameter]:
    """Those of the layers, each once: no embeddings, no heads, no output."""
    seen: set[int] = set()
    for layer in layers_of(model):
        for name, value in layer.named_parameters():
            matrix = value.dim() == 2 and name.rpartition(".")[2].startswith("weight")
            if matrix and id(value) not in seen:
                seen.add(id(value))
                yield value


def hold_zeros(name: str, model: nn.Module) -> None:
    """Single weights that were pruned stay away. They get no gradient, and without one no optimiser
    moves a weight from 0, nor does decay.
    """
    matrices = list(matrices_of(model))
    known = not any(matrix.is_meta for matrix in matrices)
    if known and not any(bool((matrix == 0).any()) for matrix in matrices):
        raise ConfigError(
            f"optimizer.zeros keeps the zeros of {name}, and its layers have none; leave "
            "it out, or make some with 'regard prune --weights SHARE'"
        )
    for matrix in matrices:
        matrix.register_hook(partial(elsewhere, matrix))


def elsewhere(weight: Tensor, slope: Tensor) -> Tensor:
    """The gradient where a weight is not 0."""
    return slope.masked_fill(weight == 0, 0.0)


class Thaw:
    """Called before each step, frees what is due: a layer, and at last the embeddings."""

    def __init__(self, model: nn.Module, frozen: int, every: int) -> None:
        self.levels = levels(model)[: frozen + 1]
        self.frozen, self.every = frozen, every
        self.free = -1  # so many levels, from the top, as set last

    def __call__(self, step: int) -> None:
        free = min(step // self.every, len(self.levels))
        if free == self.free:
            return
        self.free = free
        for place, level in enumerate(self.levels):
            for weight in level:
                weight.requires_grad_(place >= len(self.levels) - free)


def work(model: nn.Module) -> float:
    """How much of the work of a step is left: nothing goes back through what lies under the lowest
    weight that learns.
    """
    layers = layers_of(model)
    learning = [any(p.requires_grad for p in layer.parameters()) for layer in layers]
    below = [*learning, True].index(True)
    return 1 - BACKWARD * below / len(layers)
