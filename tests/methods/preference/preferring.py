"""Tiny models that go on with a text, in a directory as they start from one, and preferences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.api import load
from regard.core.seeding import keyed
from regard.data.examples import Preference
from regard.formats.directory import save
from regard.objectives.base import Batch, Loss
from regard.tasks.corpus import TaskCorpus
from tests.objectives.rules import tiny
from tests.tasks.judging import TOKENIZER, build, ids, model_of

ABLE = ("gpt", "transformer-xl", "lstm", "longformer-characters")
UNEVEN = [
    Preference("a b c", "d e", "f"),
    Preference("g", "h", "i j k l"),
    Preference("", "a a", "b"),
    Preference(("a", "b c"), "d", "e f g"),
]


def gpt(directory: Path, **changes: Any) -> Path:
    """A small GPT with a tokenizer of a few words."""
    return save(model_of("gpt", {}, **changes), directory, TOKENIZER)


def other(directory: Path, family: str) -> Path:
    return save(tiny(family, vocab_size=len(TOKENIZER)), directory, TOKENIZER)


def opened(path: Path) -> Any:
    return load(path).model.double().eval()


def moved_from(path: Path, seed: int = 0) -> Any:
    """The model of a directory, some steps away from it."""
    model, dice = opened(path), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=dice, dtype=p.dtype))
    return model


def corpus_of(
    examples: Sequence[Preference], path: Path | str = "", split: str = "train"
) -> TaskCorpus:
    return TaskCorpus("prefer", examples, TOKENIZER, [], split, path=str(path))


def make(kind: Any, examples: Sequence[Preference], path: Path | str = "", **options: Any) -> Any:
    family, split = options.pop("family", "gpt"), options.pop("split", "train")
    return build(kind, family, corpus_of(examples, path, split), **options)


def batch_of(objective: Any, places: Sequence[int] | None = None, epoch: int = 0) -> Batch:
    chosen = range(len(objective)) if places is None else places
    return objective.collate([objective.sample(epoch, i) for i in chosen])


def spoken(model: Any, prompt: list[int], reply: list[int]) -> Tensor:
    """log p of each token of a reply, from a row of its own."""
    row = torch.tensor([[*prompt, *reply]])
    log_p = F.log_softmax(model.logits(model(row)), -1)[0]
    places = range(len(prompt) - 1, len(prompt) + len(reply) - 1)
    return torch.stack([log_p[at, token] for at, token in zip(places, reply, strict=True)])


def learned(loss: Loss, objective: Any, of: dict[str, float] | None = None) -> Tensor:
    """As the training loop adds it up."""
    counts = loss.counts if of is None else of
    parts = [
        value * objective.weights.get(name, 1.0) / counts[name] for name, value in loss.sums.items()
    ]
    return torch.stack(parts).sum()


def gradients(model: Any) -> list[Tensor]:
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return grads


def parts_equal_the_whole(objective: Any, model: Any, micro: Sequence[Sequence[int]]) -> None:
    """Sums, figures and gradients of uneven micro-batches, in double precision."""
    whole = objective.loss(model, batch_of(objective))
    learned(whole, objective).backward()
    together = gradients(model)
    sums: dict[str, float] = dict.fromkeys(whole.sums, 0.0)
    for places in micro:
        part = objective.loss(model, batch_of(objective, places))
        learned(part, objective, whole.counts).backward()
        for name, value in part.sums.items():
            sums[name] += float(value)
    for name, value in whole.sums.items():
        assert abs(float(value) - sums[name]) < 1e-10, name
    for one, many in zip(together, gradients(model), strict=True):
        assert (one - many).abs().max() < 1e-10


def planted(count: int, seed: int = 0) -> list[Preference]:
    """The chosen reply has an "a" where the rejected one has a "b"."""
    pairs = []
    for i in range(count):
        dice = keyed(seed, "planted", i)
        words = [" ".join(dice.choice(list("cdefghijkl"), int(dice.integers(1, 4))))] * 2
        prompt = " ".join(dice.choice(list("cdefghijkl"), 3))
        pairs.append(Preference(f"{prompt} {i % 7}", f"{words[0]} a", f"{words[1]} b"))
    return pairs


def words(text: str) -> list[int]:
    return ids(text)
