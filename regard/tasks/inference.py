"""What a model says of many rows: in batches of similar length, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from regard.tasks.parallel_inference import side_by_side
from regard.training.train_module import autocast, evaluating, moved

if TYPE_CHECKING:
    from regard.tasks.labelled import LabelledObjective

T = TypeVar("T")
TOKENS = 8192  # of a batch, padding included
FEW = 2048  # of a batch on a CPU, where what is still in its caches is fast
ROWS = 256  # of a batch


def said_of(objective: LabelledObjective, model: Any, precision: str = "fp32") -> list[Any]:
    """What a model says of each row of an objective."""
    like = next(model.parameters())

    def ask(places: list[int]) -> list[Any]:
        batch = objective.collate([objective.sample(0, place) for place in places])
        with torch.no_grad(), autocast(like.device, precision):
            return objective.predict(model, moved(batch, like.device, like.dtype))

    found: list[Any] = [None] * len(objective)
    batches = list(by_tokens(objective.rows.sizes, fitting(like.device)))
    with evaluating(model):
        for places, said in zip(batches, side_by_side(ask, batches, like.device), strict=True):
            for place, one in zip(places, said, strict=True):
                found[place] = one
    return found


def fitting(device: torch.device) -> int:
    """Tokens of a batch with which a device is fast."""
    return FEW if device.type == "cpu" else TOKENS


def portions(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def by_tokens(sizes: np.ndarray, tokens: int = TOKENS) -> Iterator[list[int]]:
    """Rows of similar size, as many as fit a batch."""
    batch: list[int] = []
    for place in np.argsort(-sizes, kind="stable").tolist():  # the widest first: it sets the memory
        if batch and (len(batch) == ROWS or (len(batch) + 1) * sizes[batch[0]] > tokens):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
