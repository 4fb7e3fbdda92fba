"""A linear-chain conditional random field (CRF) over the tags of a sentence (Lafferty et al. 2001).

    score(y) = start[y_1] + Σ_t emission[t, y_t] + Σ_t steps[y_{t-1}, y_t] + end[y_n]
    p(y)     = exp(score(y)) / Σ_y' exp(score(y'))

Shapes: B sentences, T positions, K tags. `attention_mask` [B, T] marks the real positions, which
the chain runs over in order: padding may stand on either side, and the later sub-tokens of a word
are skipped. A sentence without a real position counts 0. If a sentence was cut into windows,
`edges` [B, 2] says whether its chain begins and whether it ends in this window; if it does not,
`start` or `end` is not added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.attention.kernels import wide, wide_dtype
from regard.core.errors import FormatError, InputError
from regard.data.tags import legal
from regard.formats.weights import write_weights

# The score of forbidden transitions in sums of exponentials. It is finite, because -inf would give
# NaN gradients if all transitions are forbidden. exp(-1e6) is 0 in every precision.
FORBIDDEN = -1e6


@dataclass(frozen=True)
class AllowedTransitions:
    """Which tags may begin a sentence [K], end it [K], and follow each other [K, K] (from, to)."""

    start: Tensor
    end: Tensor
    steps: Tensor


def allowed(labels: Sequence[str], scheme: str) -> AllowedTransitions:
    """Returns the transitions that a tag scheme permits."""
    return AllowedTransitions(
        torch.tensor([legal(None, tag, scheme) for tag in labels]),
        torch.tensor([legal(tag, None, scheme) for tag in labels]),
        torch.tensor([[legal(tag, after, scheme) for after in labels] for tag in labels]),
    )


class CRF(nn.Module):
    """A CRF layer. Its transition scores start at 0, so it starts as independent softmaxes.

    A transition that `rules` forbid is never decoded; with `strict` it is also excluded in
    training, and then gold tags must be legal (a forbidden step costs 1e6 nats): repair them first.
    The weights in use are `gain` times the stored parameters, while gradients are those of a gain
    of 1, so that under Adam the weights learn `gain` times as fast: learning rates for fine-tuning
    a pretrained model are too small for weights that start at 0.
    """

    def __init__(
        self,
        tags: int,
        rules: AllowedTransitions | None = None,
        *,
        strict: bool = False,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.steps = nn.Parameter(torch.zeros(tags, tags))
        self.strict, self.gain = strict, gain
        full = torch.ones(tags, tags, dtype=torch.bool)
        rules = rules or AllowedTransitions(full[0], full[0], full)
        if rules.steps.shape != full.shape:
            raise InputError(f"rules of {len(rules.steps)} tags were given for {tags} tags")
        for name in ("start", "end", "steps"):
            self.register_buffer(f"may_{name}", getattr(rules, name), persistent=False)

    def surprisal(
        self, emissions: Tensor, tags: Tensor, attention_mask: Tensor, edges: Tensor | None = None
    ) -> Tensor:
        """Returns Σ -log p(tags) in nats over the batch. Tags [B, T] may be anything at positions
        that are not real."""
        weights = self.weights(emissions, FORBIDDEN if self.strict else None, edges)
        rows = PackedRows.of(self.checked(emissions, attention_mask), attention_mask)
        gold = tags.gather(1, rows.order)
        known = gold.clamp(0, len(self.start) - 1)
        if not torch.compiler.is_compiling() and bool(
            ((gold != known) & rows.attention_mask).any()
        ):
            raise InputError(
                f"a real position has a tag outside of 0 to {len(self.start) - 1}; mark only "
                "positions with a tag as real"
            )
        return (partition(rows, *weights) - score(rows, known, *weights)).sum()

    def partition(self, emissions: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns log Σ_y exp(score(y)) [B] as in training; 0 without a real position."""
        weights = self.weights(emissions, FORBIDDEN if self.strict else None)
        return partition(
            PackedRows.of(self.checked(emissions, attention_mask), attention_mask), *weights
        )

    @torch.no_grad()
    def best(
        self, emissions: Tensor, attention_mask: Tensor, edges: Tensor | None = None
    ) -> list[list[int]]:
        """Returns the likeliest legal tags of each sentence's real positions (Viterbi)."""
        weights = self.weights(emissions, -math.inf, edges)
        return viterbi(
            PackedRows.of(self.checked(emissions, attention_mask), attention_mask), *weights
        )

    def marginals(
        self, emissions: Tensor, attention_mask: Tensor, edges: Tensor | None = None
    ) -> Tensor:
        """Returns p(tag at t) among legal sequences, [B, T, K]; 0 where not real."""
        start, end, steps = self.weights(emissions, FORBIDDEN, edges)
        rows = PackedRows.of(self.checked(emissions, attention_mask), attention_mask)
        ahead = forward(rows, start, steps)
        behind = [end.expand_as(ahead[0])]
        for t in range(len(ahead) - 1, 0, -1):
            sums = (rows.emissions[:, t] + behind[-1])[:, None, :] + steps
            behind.append(torch.where(rows.attention_mask[:, t, None], sums.logsumexp(2), end))
        chances = (torch.stack(ahead, 1) + torch.stack(behind[::-1], 1)).softmax(2)
        chances = chances * rows.attention_mask[:, :, None]
        whole = chances.new_zeros(emissions.shape)
        return whole.scatter(1, rows.order[:, :, None].expand_as(chances), chances)

    def weights(
        self, emissions: Tensor, forbidden: float | None, edges: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns start, end (both [K], with edges [B, K]) and steps, in at least 32 bits. If
        `forbidden` is None, nothing is forbidden."""
        weights = {}
        for name in ("start", "end", "steps"):
            weight = getattr(self, name)
            weight = weight.to(wide_dtype(weight.dtype, emissions.dtype))
            if self.gain != 1.0:
                weight = weight + (self.gain - 1.0) * weight.detach()
            if forbidden is not None:
                weight = weight.masked_fill(~getattr(self, f"may_{name}"), forbidden)
            weights[name] = weight
        if edges is not None:
            for side, name in enumerate(("start", "end")):
                weights[name] = torch.where(edges[:, side, None], weights[name], 0.0)
        return weights["start"], weights["end"], weights["steps"]

    def checked(self, emissions: Tensor, attention_mask: Tensor) -> Tensor:
        """Checks the shapes and returns the emissions in at least 32 bits."""
        tags = len(self.start)
        shape = emissions.shape
        if len(shape) != 3 or not shape[1] or shape[2] != tags or attention_mask.shape != shape[:2]:
            raise InputError(
                f"emissions of shape {list(shape)} with a mask of {list(attention_mask.shape)}; "
                f"expected [sentences, positions, {tags}] and [sentences, positions]"
            )
        return wide(emissions)

    # -- what is kept

    def write(self, file: Path) -> None:
        """Saves the weights in use, which include the gain."""
        names = ("start", "end", "steps")
        weights = self.weights(self.start, None)
        tensors = {k: v.detach().cpu() for k, v in zip(names, weights, strict=True)}
        write_weights(tensors, file)

    def read(self, file: Path) -> None:
        """Loads the weights that `write` saved. This CRF must have a gain of 1."""
        try:
            self.load_state_dict(load_file(file))
        except (OSError, SafetensorError, RuntimeError) as error:
            raise FormatError(
                f"{file} should hold the CRF of {len(self.start)} tags that this model was "
                f"trained with: {str(error).splitlines()[0]}"
            ) from None


@dataclass(frozen=True)
class PackedRows:
    """A batch in which the real positions of each sentence are moved to the left."""

    emissions: Tensor  # [B, N, K]; 0 past a sentence's end
    attention_mask: Tensor  # [B, N]: true up to the sentence's length
    order: Tensor  # [B, N]: the original position of each row

    @classmethod
    def of(cls, emissions: Tensor, attention_mask: Tensor) -> PackedRows:
        """Packs a batch. It is cut to the longest sentence, except inside of a compiled graph,
        where shapes are fixed.

        At least one row is left, so that an empty batch is no special case.
        """
        attention_mask = attention_mask.bool()
        longest = attention_mask.shape[1]
        if not torch.compiler.is_compiling() and attention_mask.numel():
            longest = max(int(attention_mask.sum(1).max()), 1)
        order = (~attention_mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :longest]
        places = order[:, :, None].expand(-1, -1, emissions.shape[2])
        inside = attention_mask.gather(1, order)
        return cls(emissions.gather(1, places).masked_fill(~inside[:, :, None], 0.0), inside, order)


def forward(rows: PackedRows, start: Tensor, steps: Tensor) -> list[Tensor]:
    """Returns, for each position, log Σ exp over all tag sequences up to it that end in each tag.
    Past the end of a sentence the values do not change."""
    ahead = [start + rows.emissions[:, 0]]
    for t in range(1, rows.emissions.shape[1]):
        sums = (ahead[-1][:, :, None] + steps).logsumexp(1) + rows.emissions[:, t]
        ahead.append(torch.where(rows.attention_mask[:, t, None], sums, ahead[-1]))
    return ahead


def partition(rows: PackedRows, start: Tensor, end: Tensor, steps: Tensor) -> Tensor:
    total = (forward(rows, start, steps)[-1] + end).logsumexp(1)
    return torch.where(rows.attention_mask[:, 0], total, 0.0)


def score(rows: PackedRows, tags: Tensor, start: Tensor, end: Tensor, steps: Tensor) -> Tensor:
    """Returns the score [B] of the tags [B, N]."""
    seen = rows.emissions.gather(2, tags[:, :, None]).squeeze(2)
    total = torch.where(rows.attention_mask, seen, 0.0).sum(1)
    between = steps[tags[:, :-1], tags[:, 1:]]
    total = total + torch.where(rows.attention_mask[:, 1:], between, 0.0).sum(1)
    last = tags.gather(1, (rows.attention_mask.sum(1, keepdim=True) - 1).clamp(min=0))
    start, end = (side.expand(len(tags), -1) for side in (start, end))
    ends = start.gather(1, tags[:, :1]) + end.gather(1, last)
    return total + torch.where(rows.attention_mask[:, 0], ends.squeeze(1), 0.0)


def viterbi(rows: PackedRows, start: Tensor, end: Tensor, steps: Tensor) -> list[list[int]]:
    same = torch.arange(len(steps), device=steps.device).expand(len(rows.attention_mask), -1)
    best = start + rows.emissions[:, 0]
    origins: list[Tensor] = []  # the best previous tag, or past the end the tag itself
    for t in range(1, rows.emissions.shape[1]):
        best_step = (best[:, :, None] + steps).max(1)
        inside = rows.attention_mask[:, t, None]
        best = torch.where(inside, best_step.values + rows.emissions[:, t], best)
        origins.append(torch.where(inside, best_step.indices, same))
    path = [(best + end).argmax(1, keepdim=True)]
    for origin in reversed(origins):
        path.append(origin.gather(1, path[-1]))
    tags = torch.cat(path[::-1], 1).tolist()
    return [
        row[:length] for row, length in zip(tags, rows.attention_mask.sum(1).tolist(), strict=True)
    ]
