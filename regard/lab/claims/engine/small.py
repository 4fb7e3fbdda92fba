"""Training in a few lines, for models that no recipe builds: with other positions or other
norms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.position import sinusoids
from regard.core.seeding import seed_torch
from regard.data.corpus import Corpus
from regard.lab.claims.engine.experiment import Workspace
from regard.lab.claims.engine.texts import python_docs
from regard.models import create
from regard.objectives import objective
from regard.objectives.base import Objective
from regard.training.optimizer import clip, optimizer, set_rate
from regard.training.parallel import ProcessGroup
from regard.training.schedule import schedule
from regard.training.train_module import TrainModule, validate

XL: dict[str, Any] = {
    "head_size": 32, "cutoffs": (), "ratio": 1, "mem_len": 0, "same_length": False, "clamp_len": 0,
}  # fmt: skip
SHAPE: dict[str, Any] = {"layers": 2, "width": 128, "heads": 4, "ffn_size": 512}
READ = 16384  # tokens of unseen text, the same number at every length


def task(name: str, data: Path, split: str, length: int, batch: int, seed: int, **o: Any) -> Any:
    """Builds an objective on a split of prepared text."""
    kind = objective(name)
    learning = split == "train"
    corpus = Corpus.open(data, split)
    options = kind.Options(**o)
    return kind(corpus, options, seq_len=length, batch_size=batch, seed=seed, learning=learning)


def learn(model: Any, goal: Objective, steps: int, rate: float, seed: int) -> None:
    """Trains with AdamW, a tenth of warm-up, a linear decay, and gradients clipped to norm 1."""
    seed_torch(seed, "dropout")
    adam = optimizer("adamw", model, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    at = schedule("linear", lr=rate, warmup=0.1, steps=steps)
    model.train()
    for step in range(steps):
        first = step * goal.batch_size
        samples = [goal.get(number) for number in range(first, first + goal.batch_size)]
        loss = goal.loss(model, goal.collate(samples))
        set_rate(adam, at(step + 1))
        adam.zero_grad()
        total: Any = sum(loss.sums[name] / loss.counts[name] for name in loss.sums)
        total.backward()
        clip(model.parameters(), 1.0)
        adam.step()
    model.eval()


def judged(model: Any, goal: Objective, samples: int = 0) -> dict[str, float]:
    """Returns the metrics of a validation objective."""
    cpu = torch.device("cpu")
    learner = TrainModule(model, goal)
    return validate(learner, goal, ProcessGroup(), cpu, "fp32", samples=samples).figures


class ComputedPositions(nn.Module):
    """Computed positions: `sinusoids`, or a learned vector times the `integers` 0, 1, 2, … or times
    numbers from 0 to 1, where the last position has 1 (`unit`).

    All have about the scale of a GPT's learned positions at initialization.
    """

    def __init__(self, kind: str, width: int, size: float) -> None:
        super().__init__()
        self.kind, self.width, self.size = kind, width, size
        if kind != "sinusoids":
            self.vector = nn.Parameter(torch.randn(width) * size)

    def forward(self, at: Tensor) -> Tensor:
        if self.kind == "sinusoids":
            return sinusoids(at, self.width) * self.size * 2**0.5
        number = at.float()
        if self.kind == "unit":
            number = number / number.amax(-1, keepdim=True).clamp_min(1.0)
        y: Tensor = number[..., None] * self.vector
        return y


def model_with(positions: str, vocab_size: int, context: int, seed: int) -> Any:
    """Builds a GPT with learned positions or `ComputedPositions`; for `relative` positions a
    Transformer-XL."""
    seed_torch(seed, "weights")
    if positions == "relative":
        return create("transformer-xl", vocab_size=vocab_size, **SHAPE, **XL)
    model: Any = create("gpt", vocab_size=vocab_size, context=context, **SHAPE)
    if positions != "learned":
        model.positions = ComputedPositions(positions, model.config.width, model.config.init_std)
    return model


def bits_at_lengths(
    positions: str, lengths: tuple[int, ...], seed: int, room: Workspace
) -> dict[int, float]:
    """Trains a model on pieces of 64 tokens and returns its bits per byte on pieces of other
    lengths."""
    data = python_docs(room.place)
    learning = task("causal", data, "train", 64, 16, seed)
    model = model_with(positions, learning.corpus.vocab_size, max(lengths), seed)
    learn(model, learning, room.steps(300), 1e-3, seed)
    return {
        n: judged(model, task("causal", data, "valid", n, 8, seed), READ // n)["bits_per_byte"]
        for n in lengths
    }


class BatchNorm(nn.Module):
    """Batch norm for rows: it normalizes every component over all rows of all texts, with
    padding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x.flatten(0, -2)).view_as(x)
        return y


def with_batch_norms(model: nn.Module) -> None:
    """Replaces every layer norm by a batch norm."""
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(part, name, BatchNorm(child.normalized_shape[0]))
