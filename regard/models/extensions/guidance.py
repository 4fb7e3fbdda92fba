"""Attention that is guided by knowledge: softmax(q kᵀ / √d + λ·B + mask).

B = Σ b_r · rule_r(i, j) is what rules, edges of a graph or priors say about two tokens, each with a
weight b. λ is a constant, or learned per layer (or per head), and may be gated by the query row:
λ_i = λ · σ(w·q_i). Without a Guide for the batch the model is exactly the plain one, to the bit; it
also is where λ is 0 and nothing is learned.

A learned λ is softplus(gρ) - softplus(0) with ρ = 0 at the start. A softplus alone is never 0, so
training could not start at the plain model. With its start value subtracted it does start there,
with half of the gradient of a plain number, and it stays above -log 2: knowledge can become as
strong as needed, but can be reversed only up to that value. Learned weights b start at 1 under a
learned λ and at 0 under a fixed λ, so that training starts at the plain model, too. An optimizer
like Adam moves every number by about the learning rate per step; at the learning rates of
fine-tuning, λ and b would hardly move, so both learn g = 100 times faster than the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.attention import Attention
from regard.attention.pattern import Pattern
from regard.attention.position import Placed, View
from regard.core.errors import ConfigError, InputError
from regard.data.tokenizer import Tokenizer
from regard.models.extensions.base import Extension

STRENGTHS = ("fixed", "learned", "heads")
WEIGHTS = ("fixed", "learned")
GAIN = 100.0  # λ and b learn this many times faster than the model


@dataclass(frozen=True)
class GuidanceOptions:
    rules: list[str] = field(default_factory=lambda: ["entity", "related"])
    strength: str = "heads"  # λ: "fixed", "learned" per layer, or learned per head ("heads")
    value: float = 1.0  # the value of a fixed λ
    weights: str = "learned"  # b: "fixed" at 1, or "learned" for each rule and head
    gated: bool = False  # True if λ is gated by the query row


class ConstantTable(nn.Module):
    """A table [rows, columns] of one constant that is not learned."""

    def __init__(self, shape: tuple[int, ...], value: float) -> None:
        super().__init__()
        self.shape, self.value = shape, value

    def forward(self, like: Tensor) -> Tensor:
        return like.new_full(self.shape, self.value)

    def silent(self) -> bool:
        return self.value == 0.0


class RuleWeights(nn.Module):
    """b: one learned number for each rule and head."""

    def __init__(self, rules: int, heads: int, start: float) -> None:
        super().__init__()
        self.start = start
        self.each = nn.Parameter(torch.empty(rules, heads))

    def reset(self) -> None:
        nn.init.constant_(self.each, self.start / GAIN)

    def forward(self, like: Tensor) -> Tensor:
        return (self.each * GAIN).to(like.dtype)

    def silent(self) -> bool:
        return is_silent(self.each)


class GuidanceStrength(nn.Module):
    """λ = softplus(gρ) - softplus(0), one number for all heads or one for each head."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.empty(count))

    def reset(self) -> None:
        nn.init.zeros_(self.raw)

    def forward(self, like: Tensor) -> Tensor:
        plain = F.softplus(torch.zeros_like(self.raw))
        return (F.softplus(self.raw * GAIN) - plain).to(like.dtype)

    def silent(self) -> bool:
        return is_silent(self.raw)


class OpenGate(nn.Module):
    """No gate: every row is guided equally."""

    def forward(self, bias: Tensor, q: Tensor, pattern: Pattern) -> Tensor:
        return bias


class Gate(nn.Module):
    """λ_i = σ(w·q_i): a row decides how much it is guided. At the start every row has one half."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, size))

    def reset(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, bias: Tensor, q: Tensor, pattern: Pattern) -> Tensor:
        queries = torch.einsum("bhqd,hd->bhq", q, self.weight.to(q.dtype))
        return bias * pattern.rows(queries.sigmoid()[..., None])


def is_silent(weight: Tensor) -> bool:
    """Returns whether a weight is all 0 and not learned: then the plain kernel is used."""
    if (torch.is_grad_enabled() and weight.requires_grad) or torch.compiler.is_compiling():
        return False
    return not bool(weight.any())


class GuidedScore(nn.Module):
    """A layer's own score plus the guidance."""

    def __init__(self, inner: nn.Module, heads: int, size: int, o: GuidanceOptions) -> None:
        super().__init__()
        self.inner, self.rules = inner, len(o.rules)
        count = heads if o.strength == "heads" else 1
        fixed = o.strength == "fixed"
        self.strength = ConstantTable((1,), o.value) if fixed else GuidanceStrength(count)
        start, learned = 0.0 if fixed else 1.0, o.weights == "learned"
        shape = (self.rules, heads)
        self.weights = RuleWeights(*shape, start) if learned else ConstantTable(shape, 1.0)
        self.gate = Gate(heads, size) if o.gated else OpenGate()

    def forward(self, q: Tensor, k: Tensor, view: View, scale: float) -> Placed:
        queries, k, bias = self.inner(q, k, view, scale)
        features: Tensor | None = getattr(view, "features", None)
        if features is None or self.strength.silent() or self.weights.silent():
            return queries, k, bias
        if features.size(1) != self.rules:
            raise InputError(
                f"the guide has {features.size(1)} rules, and this model was trained with "
                f"{self.rules}; give the same rules in the same order"
            )
        each = self.weights(features) * self.strength(features)  # [rules, heads]
        added = torch.einsum("fh,bfqk->bhqk", each, features)
        added = self.gate(added, q, view.pattern)
        return queries, k, added if bias is None else bias + added

    def reset(self) -> None:
        for part in (self.strength, self.weights, self.gate):
            if isinstance(part, GuidanceStrength | RuleWeights | Gate):
                part.reset()


class Guidance(Extension):
    """Adds a guided score to every attention of an encoder; decoders are not changed."""

    Options: ClassVar[type] = GuidanceOptions
    name = "guidance"
    choices: ClassVar = {"strength": STRENGTHS, "weights": WEIGHTS}

    def check(self, model: Any) -> None:
        o = self.options
        named = isinstance(o.rules, list) and all(isinstance(rule, str) for rule in o.rules)
        if not named or not o.rules or len(set(o.rules)) < len(o.rules):
            raise ConfigError(
                f"extensions.guidance.rules is {o.rules!r}; it must be a list of names, each once"
            )
        if not list(attentions(model)):
            raise ConfigError(
                f"{type(model).__name__} has no encoder that could be guided; choose bert, "
                "roberta, longformer, xlnet, t5 or transformer"
            )

    def apply(self, model: Any) -> None:
        for part in attentions(model):
            project = part.project
            part.score = GuidedScore(part.score, project.heads, project.size, self.options)

    def initialize(self, model: Any, tokenizer: Tokenizer | None) -> None:
        for part in model.modules():
            if isinstance(part, GuidedScore):
                part.reset()


def attentions(model: Any) -> Iterable[Attention]:
    """Returns the attentions of a model's encoder; none for a model without an encoder."""
    stack = {"encoder": "", "encoder-decoder": "encoder"}.get(model.kind)
    blocks = [] if stack is None else model.stacks()[stack]
    return [part for block in blocks for part in block.modules() if isinstance(part, Attention)]
