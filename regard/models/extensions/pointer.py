"""A pointer to recently read words, which are likely to come again (Merity et al. 2016, pointer
sentinel).

    p(w) = g · p_vocabulary(w) + Σ_{i : x_i = w} a_i
    (a, g) = softmax([qᵀ h_i of the last `window` rows ; qᵀ s]),    q = tanh(W h + b)

s is the sentinel: its share g goes to the ordinary output. The row itself is in its window, as in
the paper.

Objectives and decoders pass single rows to an output, selected from any number of calls. So a row
carries what its pointer needs: after the `width` numbers of h come the weights a, the ids x_i
(integers, exact in 32 bits) and log g. Nothing has to be stored between a model and its output; the
rows before a call are in the state, like every other past.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.memory import KVCache
from regard.core.errors import ConfigError, InputError
from regard.data.tokenizer import Tokenizer
from regard.models.adaptive import AdaptiveOutput
from regard.models.extensions.base import Extension, adopt
from regard.models.output import CHUNK, Output, SoftTarget
from regard.models.state import State

LARGEST = 2**24  # a float32 holds smaller ids exactly


@dataclass(frozen=True)
class PointerOptions:
    window: int = 100  # the number of rows that can be pointed to
    open: float = 0.9  # about g at the start: the higher, the nearer to the plain model


class PointerMemory(NamedTuple):
    """The rows before those of a call, as many as the window needs."""

    hidden: Tensor  # [B, M, width]
    tokens: Tensor  # [B, M]
    attention_mask: Tensor  # [B, M]


class PointerParts(NamedTuple):
    """The parts of a row that an output reads."""

    hidden: Tensor  # [..., width]
    weights: Tensor  # [..., window]
    tokens: Tensor  # [..., window]
    log_g: Tensor  # [..., 1]


class PointerScores(nn.Module):
    """The module that computes where a row points to."""

    def __init__(self, width: int, vocab_size: int, window: int) -> None:
        super().__init__()
        self.width, self.vocab_size, self.window = width, vocab_size, window
        self.query = nn.Linear(width, width)
        self.sentinel = nn.Parameter(torch.zeros(width))

    def initialize(self, start: float) -> None:
        """Initializes so that the scores have variance 2 for rows of variance 1, half of it from b,
        and the sentinel outweighs them: b and s point in the same, random direction."""
        side = torch.randint(2, (self.width,), dtype=self.sentinel.dtype) * 2 - 1
        expected = self.window * math.e  # the sum of exp(z) over a full window
        wanted = math.log(start / (1 - start) * expected)
        nn.init.normal_(self.query.weight, std=1 / self.width)
        self.query.bias.copy_(side / self.width**0.5)
        self.sentinel.copy_(side * (wanted / self.width**0.5))

    def forward(
        self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor | None, past: PointerMemory
    ) -> Tensor:
        """Maps hidden [B, T, width] to the output's rows [B, T, width + 2 · window + 1]."""
        exact = torch.promote_types(hidden.dtype, torch.float32)
        there = (
            torch.ones_like(input_ids, dtype=torch.bool)
            if attention_mask is None
            else attention_mask
        )
        before = self.window - 1 - past.tokens.size(1)  # the missing rows before the text
        keys = F.pad(torch.cat([past.hidden.to(hidden.dtype), hidden], 1), (0, 0, before, 0))
        ids = F.pad(torch.cat([past.tokens, input_ids], 1), (before, 0)).unfold(1, self.window, 1)
        seen = F.pad(torch.cat([past.attention_mask, there], 1), (before, 0)).unfold(
            1, self.window, 1
        )
        q = torch.tanh(self.query(hidden))
        z = band(q, keys.to(q.dtype), self.window).to(exact).masked_fill(~seen, -torch.inf)
        own = (q @ self.sentinel.to(q.dtype)).to(exact)
        log_a = torch.cat([z, own[..., None]], -1).log_softmax(-1)
        weights, log_g = log_a[..., :-1].exp(), log_a[..., -1:]
        return torch.cat([hidden.to(exact), weights, ids.to(exact), log_g], -1)

    def parts(self, rows: Tensor) -> PointerParts:
        sizes = [self.width, self.window, self.window, 1]
        hidden, weights, tokens, log_g = rows.split(sizes, -1)
        return PointerParts(hidden.to(self.sentinel.dtype), weights, tokens.long(), log_g)


def band(q: Tensor, keys: Tensor, window: int) -> Tensor:
    """Returns q [B, T, d] · the `window` keys that end with each row: [B, T, window].

    keys is [B, window - 1 + T, d]. Blocks of rows are multiplied with all keys that any of their
    rows sees; in each product, row i begins i columns further right. Memory grows with T · window,
    not with T².
    """
    length = q.size(1)
    block = max(1, min(length, window))
    extra = -length % block
    q = F.pad(q, (0, 0, 0, extra)).unflatten(1, (-1, block))
    seen = F.pad(keys, (0, 0, 0, extra)).unfold(1, block + window - 1, block)  # [B, n, d, columns]
    scores = q @ seen
    columns = scores.size(-1)
    line = F.pad(scores.flatten(-2), (0, block))
    y: Tensor = line.unflatten(-1, (block, columns + 1))[..., :window]
    return y.flatten(1, 2)[:, :length]


def log_mixture(words: Tensor, mass: Tensor) -> Tensor:
    """Returns log(exp(words) + mass), with a gradient also where the mass is 0."""
    there = mass > 0
    return torch.where(there, torch.logaddexp(words, torch.where(there, mass, 1.0).log()), words)


class PointerOutput(Output):
    """An output whose rows also point. It replaces a model's own output and keeps all its parts.

    `layers` is the number of hidden states that the model itself puts into a state; those of the
    pointer come after them.
    """

    def __init__(self, plain: Output, pointer: PointerScores, layers: int) -> None:
        adopt(self, plain)
        self.pointer, self.layers = pointer, layers

    def rows(
        self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor | None, state: State | None
    ) -> Tensor:
        """Returns the hidden states together with what they point to."""
        pointer = self.pointer
        if state is None:
            past = empty_memory(hidden, input_ids)
        elif state.layers:
            cache = state.layers[-1]
            if not isinstance(cache, PointerCache):
                raise InputError("this state has no pointer cache; make it by model.start")
            past = recalled(cache, state, pointer.window)
            remember(cache, hidden, input_ids)
        else:
            own, before = state.hidden[: self.layers], state.hidden[self.layers :]
            past = unpacked(*before) if before else empty_memory(hidden, input_ids)
            state.hidden = [*own, packed(past, hidden, input_ids, attention_mask, pointer.window)]
        y: Tensor = pointer(hidden, input_ids, attention_mask, past)
        return y

    def caches(self, batch: int, capacity: int) -> list[KVCache]:
        like = self.pointer.sentinel
        keys = like.new_zeros(batch, 1, capacity, self.pointer.width)
        ids = like.new_zeros(batch, 1, capacity, 1, dtype=torch.float32)
        return [PointerCache(keys, ids)]

    def forward(self, rows: Tensor) -> Tensor:
        """Returns log-probabilities of the whole vocabulary."""
        hidden, weights, tokens, log_g = self.pointer.parts(rows)
        words = super().forward(hidden).to(rows.dtype).log_softmax(-1) + log_g
        return log_mixture(words, torch.zeros_like(words).scatter_add(-1, tokens, weights))

    def vocabulary_logprobs(self, hidden: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns log p_vocabulary of every target [N], without gradient, a few rows at a time."""
        size, parts = max(1, CHUNK // self.pointer.vocab_size), []
        with torch.no_grad():
            for h, t in zip(hidden.split(size), targets.split(size), strict=True):
                words = super().forward(h).to(dtype)
                parts.append(-F.cross_entropy(words, t, reduction="none"))
        return torch.cat(parts)

    def likelihoods(self, rows: Tensor, targets: Tensor) -> tuple[PointerParts, Tensor, Tensor]:
        """Returns the parts of the rows, log p of every target, and the vocabulary's share of it,
        through which no gradient flows."""
        parts = self.pointer.parts(rows)
        words = self.vocabulary_logprobs(parts.hidden, targets, rows.dtype) + parts.log_g[:, 0]
        mass = (parts.weights * (parts.tokens == targets[:, None])).sum(-1)
        return parts, log_mixture(words, mass), words

    def surprisal(self, rows: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        """Returns the sum over the targets. The gradient of -log(g p + m) at log p is -g p / (g p +
        m): the plain output's own gradient, with this factor as the share of a row."""
        if torch.compiler.is_compiling():  # the compiler plans its own memory
            each = -self(rows).gather(-1, targets[:, None])[:, 0]
            y: Tensor = (each if shares is None else each * shares).sum()
            return y
        parts, log_p, words = self.likelihoods(rows, targets)
        total = -(log_p if shares is None else log_p * shares).sum()
        if not torch.is_grad_enabled():
            return total
        own = (words - log_p).detach().exp()
        flows = super().surprisal(parts.hidden, targets, own if shares is None else own * shares)
        return total + (flows - flows.detach())

    def each(self, rows: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            return -self.likelihoods(rows, targets)[1]

    def softened(
        self, hidden: Tensor, targets: Tensor, soft: SoftTarget, shares: Tensor | None = None
    ) -> Tensor:
        raise ConfigError(
            "label smoothing and z_loss need one softmax, and a pointer mixes two; switch them "
            "off (objective.smoothing=0, objective.z_loss=0)"
        )


class AdaptivePointerOutput(PointerOutput, AdaptiveOutput):
    """A PointerOutput on an adaptive softmax."""


OUTPUTS: dict[type[Output], type[PointerOutput]] = {
    Output: PointerOutput,
    AdaptiveOutput: AdaptivePointerOutput,
}


# -- the rows of earlier calls


class PointerCache(KVCache):
    """The pointer's cache, after the layers': rows [B, 1, capacity, width] and ids [.., 1]."""


def empty_memory(hidden: Tensor, input_ids: Tensor) -> PointerMemory:
    empty = input_ids[:, :0]
    return PointerMemory(hidden.detach()[:, :0], empty, empty.bool())


def unpacked(rows: Tensor) -> PointerMemory:
    return PointerMemory(rows[..., :-2], rows[..., -2].long(), rows[..., -1].bool())


def packed(
    past: PointerMemory,
    hidden: Tensor,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    window: int,
) -> Tensor:
    """Returns the last rows as one tensor [B, M, width + 2], which a state can hold and reorder."""
    exact = torch.promote_types(hidden.dtype, torch.float32)
    there = (
        torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask
    )
    joined = [
        torch.cat([past.hidden.to(exact), hidden.detach().to(exact)], 1),
        torch.cat([past.tokens, input_ids], 1)[..., None].to(exact),
        torch.cat([past.attention_mask, there], 1)[..., None].to(exact),
    ]
    rows = torch.cat(joined, -1)
    return rows[:, max(0, rows.size(1) - window + 1) :]


def recalled(cache: PointerCache, state: State, window: int) -> PointerMemory:
    start, end = max(0, cache.length - window + 1), cache.length
    ids = cache.values[:, 0, start:end, 0].long()
    marks = state.attention_mask
    attention_mask = (
        torch.ones_like(ids, dtype=torch.bool) if marks is None else marks[:, start:end]
    )
    return PointerMemory(cache.keys[:, 0, start:end], ids, attention_mask)


def remember(cache: PointerCache, hidden: Tensor, input_ids: Tensor) -> None:
    start, end = cache.length, cache.length + input_ids.size(1)
    cache.keys[:, 0, start:end] = hidden.detach()
    cache.values[:, 0, start:end, 0] = input_ids.to(cache.values.dtype)
    cache.length = end


class Pointer(Extension):
    Options: ClassVar[type] = PointerOptions
    name = "pointer"
    least: ClassVar = {"window": 1}

    def check(self, model: Any) -> None:
        o, kind = self.options, type(model).__name__
        if not 0.0 < o.open < 1.0:
            raise ConfigError(f"extensions.pointer.open is {o.open}; it must lie between 0 and 1")
        goes_on = model.causal and "state" in model.accepts
        if not goes_on and model.kind != "encoder-decoder":
            raise ConfigError(
                f"{kind} cannot have a pointer, because it does not generate text; choose gpt, "
                "llama, transformer-xl, lstm, t5 or transformer"
            )
        if heads := list(getattr(model, "heads", ())):
            raise ConfigError(
                f"this {kind} has heads ({', '.join(heads)}), and a pointer is for language "
                "models; build it without them"
            )
        if not hasattr(model, "output"):
            raise ConfigError(f"this {kind} has no output layer, so it cannot have a pointer")
        if model.config.vocab_size > LARGEST:
            raise ConfigError(
                f"vocab_size is {model.config.vocab_size:,}; with a pointer it must be at most "
                f"{LARGEST:,}"
            )

    def apply(self, model: Any) -> None:
        c, output = model.config, model.output
        pointer = PointerScores(c.width, c.vocab_size, self.options.window)
        layers = c.layers if model.remembers else 0  # other models have a cache for each layer
        model.output = OUTPUTS[type(output)](output, pointer, layers)

    def initialize(self, model: Any, tokenizer: Tokenizer | None) -> None:
        with torch.no_grad():
            model.output.pointer.initialize(self.options.open)
