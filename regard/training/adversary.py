"""Perturbs the word embeddings during training: by an adversary, by noise, or by replaced words.

An adversary adds δ to the output of the word embedding, before positions, where the loss rises:

    fgm     Miyato et al. 2017: δ = ε g/‖g‖; the gradient is the clean one plus that at δ
    pgd     Madry et al. 2018: K steps δ ← Π(δ + α g/‖g‖) into the ball of radius ε; the gradient is
            the clean one plus that at the last δ
    freelb  Zhu et al. 2020: from a random δ, K passes whose gradients are averaged, with a step as
            above (the ball is left out if ε is 0) between two of them

g is the gradient at the embeddings, norms are those of a whole sequence, and padding is not
perturbed. Every sequence that a model reads has its own ball: the encoder's and the decoder's (as
in Sato et al. 2019). The embeddings' own weights need no gradient for this, so they may be frozen.
All passes of a micro-batch use the same dropout, and start from the same memory, if the model has
one; the first pass gives the loss that is reported and the memory that is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.kernels import wide
from regard.core.errors import ConfigError
from regard.core.seeding import LARGEST, keyed
from regard.data.corpus import Special
from regard.models.state import State
from regard.objectives.base import Batch
from regard.training.loop import ForwardBackward, Parts, Place
from regard.training.recipe_parts import Robust

SMALLEST = 1e-8  # the least norm in a division
MARKED = (
    ("tokens", "attention_mask"),
    ("source", "source_attention_mask"),
)  # the keys of a batch: ids, and the mask of tokens that are not padding


@dataclass
class Perturbation:
    """The perturbation of one sequence [B, T, width], and its `attention_mask` [B, T, 1]."""

    delta: Tensor
    attention_mask: Tensor

    def climb(self, rate: float, radius: float | None) -> None:
        slope = self.delta.grad
        if slope is not None:
            self.delta = climbed(self.delta.detach(), slope * self.attention_mask, rate, radius)


def climbed(delta: Tensor, slope: Tensor, rate: float, radius: float | None) -> Tensor:
    """Takes a step of length `rate` up the gradient, then back into the ball (None: there is no
    ball)."""
    delta = delta + slope * (rate / norm(slope).clamp_min(SMALLEST)).to(slope.dtype)
    if radius is None:
        return delta
    far = norm(delta)
    return delta * torch.where(far > radius, radius / far, 1.0).to(delta.dtype)


def norm(x: Tensor) -> Tensor:
    """Returns the norm of each example as a whole, [B, 1, 1]."""
    y: Tensor = wide(x).flatten(1).norm(dim=1)
    return y[:, None, None]


def word_embedding(model: Any) -> nn.Module:
    """Returns the word embedding of any of our models, whatever wraps it."""
    for owner in (model, getattr(model, "embeddings", None)):
        embedding = getattr(owner, "tokens", None)
        if isinstance(embedding, nn.Module):
            return embedding
    raise ConfigError(
        f"{type(model).__name__} has no embedding of words to perturb; leave [robust] out"
    )


class AdversarialReader:
    """Reads micro-batches with perturbed words, as a recipe's `[robust]` says.

    All random numbers are a function of (seed, step, micro-batch, sequence), and none is taken from
    the generator that dropout uses.
    """

    def __init__(
        self, model: Any, chosen: Robust, special: Special, vocab_size: int, seed: int
    ) -> None:
        self.embedding, self.chosen, self.seed = word_embedding(model), chosen, seed
        self.pad = special.pad
        attacks = {None: self.plain, "fgm": self.fgm, "pgd": self.pgd, "freelb": self.freelb}
        self.attack = attacks[chosen.adversary]
        self.radius, self.rate = chosen.adv_radius or 0.0, chosen.adv_lr or 0.0
        self.steps, self.first = chosen.adv_steps or 1, chosen.adv_init or 0.0
        if chosen.token_noise:
            self.others = ReplacementTokens(special, vocab_size, model.config.vocab_size)
        self.place: Place = (0, 0)
        self.marks: list[tuple[Tensor, Tensor]] = []
        self.moves: list[Perturbation] = []
        self.call = 0  # the number of sequences that this pass has read

    def __call__(
        self, go: ForwardBackward, place: Place, batch: Batch, state: State | None
    ) -> Parts:
        self.place, self.marks, self.moves = place, list(marks(batch)), []

        def again(state: State | None, **more: Any) -> Parts:
            self.call = 0
            return go(state, **more)

        with self.hooked():
            return self.attack(again, state)

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Perturbs only inside this context; other callers see the model unchanged."""
        hooks = (
            self.embedding.register_forward_pre_hook(self.before),
            self.embedding.register_forward_hook(self.after),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self.marks, self.moves = [], []

    # -- the passes

    def plain(self, go: ForwardBackward, state: State | None) -> Parts:
        return go(state)

    def fgm(self, go: ForwardBackward, state: State | None) -> Parts:
        return self.chased(go, state, 1, self.radius, None)

    def pgd(self, go: ForwardBackward, state: State | None) -> Parts:
        return self.chased(go, state, self.steps, self.rate, self.radius)

    def chased(
        self,
        go: ForwardBackward,
        state: State | None,
        steps: int,
        rate: float,
        radius: float | None,
    ) -> Parts:
        """Runs the clean pass, then one pass per step; of these only the last gives weight
        gradients."""
        past = copy(state)
        parts = go(state, last=False)
        for step in range(1, steps + 1):
            self.climb(rate, radius, learns=step < steps)
            if step < steps:
                inputs = [move.delta for move in self.moves]
                go(copy(past), last=False, inputs=inputs)
            else:
                go(past)
        return parts

    def freelb(self, go: ForwardBackward, state: State | None) -> Parts:
        past, share = copy(state), 1 / self.steps
        parts = go(state, last=self.steps == 1, share=share)
        for step in range(2, self.steps + 1):
            last = step == self.steps
            self.climb(self.rate, self.radius or None, learns=not last)
            go(copy(past), last=last, share=share)
        return parts

    def climb(self, rate: float, radius: float | None, learns: bool) -> None:
        for move in self.moves:
            move.climb(rate, radius)
            move.delta = move.delta.detach().requires_grad_(learns)

    # -- at the embedding

    @property
    def idle(self) -> bool:
        """Whether the model is called for something other than training."""
        return not (torch.is_grad_enabled() and self.embedding.training)

    def before(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self.idle:
            return None
        tokens = inputs[0]
        self.attention_mask = self.real_of(tokens)
        if not self.chosen.token_noise:
            return None
        dice = self.dice("tokens", tokens.device)
        return self.others.put(tokens, self.attention_mask, self.chosen.token_noise, dice), *inputs[
            1:
        ]

    def after(self, module: nn.Module, inputs: tuple[Any, ...], y: Tensor) -> Tensor | None:
        if self.idle:
            return None
        chosen, number = self.chosen, self.call
        if chosen.neftune:
            y = y + chosen.neftune * self.uniform(y, "noise")
        if chosen.adversary:
            if number == len(self.moves):
                self.moves.append(Perturbation(self.start(y), self.attention_mask[..., None]))
            y = y + self.moves[number].delta
        self.call += 1
        return y

    def start(self, y: Tensor) -> Tensor:
        """Returns δ before the first pass."""
        if self.chosen.adversary == "freelb" and self.first:
            return (self.first * self.uniform(y, "start")).requires_grad_()
        return torch.zeros_like(y, requires_grad=True)

    def uniform(self, like: Tensor, purpose: str) -> Tensor:
        """Returns numbers between -1 and 1, divided by √(tokens · width); 0 at padding."""
        drawn = torch.empty_like(like, requires_grad=False)
        drawn.uniform_(-1, 1, generator=self.dice(purpose, like.device))
        count = (self.attention_mask.sum(1) * like.size(-1)).clamp_min(1).to(like.dtype)
        return drawn * (self.attention_mask / count.sqrt()[:, None])[..., None]

    def dice(self, purpose: str, device: torch.device) -> torch.Generator:
        key = keyed(self.seed, f"disturbed {purpose}", *self.place, self.call)
        return torch.Generator(device).manual_seed(int(key.integers(LARGEST)))

    def real_of(self, tokens: Tensor) -> Tensor:
        """Returns [B, T], the tokens that are not padding, from the batch's mask or else from the
        padding id. Without either, padding stands behind a text that is read from left to right: it
        changes nothing."""
        for ids, attention_mask in self.marks:
            if ids.data_ptr() == tokens.data_ptr() and ids.shape == tokens.shape:
                return attention_mask
        return torch.ones_like(tokens, dtype=torch.bool) if self.pad is None else tokens != self.pad


def marks(batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields ids with their attention masks; the batch of a mixture holds batches."""
    for value in batch.values():
        if isinstance(value, dict):
            yield from marks(value)
    for ids, real in MARKED:
        if ids in batch and real in batch:
            yield batch[ids], batch[real]


class ReplacementTokens:
    """The tokens that may replace others: all but the special tokens."""

    def __init__(self, special: Special, vocab_size: int, rows: int) -> None:
        special_ids = set(special.ids())
        self.words = torch.tensor([i for i in range(vocab_size) if i not in special_ids])
        if len(self.words) < 2:
            raise ConfigError(
                "robust.token_noise needs a vocabulary of at least two words; set it to 0"
            )
        self.number = torch.full((max(rows, vocab_size),), -1)  # the index of each id in `words`
        self.number[self.words] = torch.arange(len(self.words))

    def put(
        self, tokens: Tensor, attention_mask: Tensor, share: float, dice: torch.Generator
    ) -> Tensor:
        """Replaces each word with probability `share`, never by itself."""
        if self.words.device != tokens.device:
            self.words, self.number = self.words.to(tokens.device), self.number.to(tokens.device)
        count, where = len(self.words), {"generator": dice, "device": tokens.device}
        chosen = torch.rand(tokens.shape, **where) < share  # type: ignore[call-overload]
        steps = torch.randint(1, count, tokens.shape, **where)  # type: ignore[call-overload]
        number = self.number[tokens]
        new = self.words[(number + steps) % count].to(tokens.dtype)
        return torch.where(chosen & attention_mask & (number >= 0), new, tokens)
