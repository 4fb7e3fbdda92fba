"""A model with fewer heads and narrower feed-forward networks: the result of pruning.

Heads keep their original numbers, so that parts that several layers share (T5's distance table, the
tied biases of a Transformer-XL) can still be selected by number. Of the units of a network the
first ones remain: code that prunes other units first moves the remaining ones to the front.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.attention.attention import Attention
from regard.attention.block import FeedForward, Gated
from regard.attention.position import Placed, Plain, Relative, Rotary, View
from regard.core.errors import ConfigError, UnknownName
from regard.models.extensions.base import Extension
from regard.models.recurrent import RelativeSegments

BY_HEAD = {"u": 0, "v": 0, "s": 0, "segment": 1}  # a score's parameter -> its dimension of heads
SCORES = (Plain, Relative, RelativeSegments, Rotary)


@dataclass(frozen=True)
class PrunedOptions:
    heads: dict[str, list[int]] = field(default_factory=dict)  # attention -> the remaining heads
    ffn_units: dict[str, int] = field(
        default_factory=dict
    )  # network -> the number of remaining units


class PrunedScore(nn.Module):
    """A score for the remaining heads, if its parameters or its bias are those of all heads."""

    def __init__(self, score: nn.Module, heads: Sequence[int], shared: Sequence[str]) -> None:
        super().__init__()
        self.score, self.kept, self.shared = score, list(heads), list(shared)

    def forward(self, q: Tensor, k: Tensor, view: View, scale: float) -> Placed:
        if view.bias is not None and view.bias.size(1) > 1:
            view = replace(view, bias=view.bias[:, self.kept])
        if not self.shared:
            query, key, bias = self.score(q, k, view, scale)
            return query, key, bias
        index = torch.tensor(self.kept, device=q.device)
        chosen = {n: getattr(self.score, n).index_select(BY_HEAD[n], index) for n in self.shared}
        score = copy(self.score)  # for this call only: other threads may use the score meanwhile
        score._parameters = {**self.score._parameters, **chosen}
        query, key, bias = score(q, k, view, scale)
        return query, key, bias


class Pruned(Extension):
    Options: ClassVar[type] = PrunedOptions
    name = "pruned"

    def check(self, model: Any) -> None:
        attentions, networks = sites(model), networks_of(model)
        for kind, table in (("heads", self.options.heads), ("ffn_units", self.options.ffn_units)):
            if not isinstance(table, Mapping):
                raise ConfigError(f"extensions.pruned.{kind} is {table!r}; it must be a table")
        for name, heads in self.options.heads.items():
            if name not in attentions:
                raise UnknownName("attention", name, attentions, f"(of {type(model).__name__})")
            for part in attentions[name]:
                check_heads(name, heads, part)
        for name, count in self.options.ffn_units.items():
            if name not in networks:
                raise UnknownName("network", name, networks, f"(of {type(model).__name__})")
            size = networks[name].wide.out_features
            if not isinstance(count, int) or not 0 < count <= size:
                raise ConfigError(f"{name} has {size} units, and {count!r} cannot remain of them")

    def apply(self, model: Any) -> None:
        """Cuts the weights; in a model with weights, the remaining ones keep their values."""
        attentions, networks = sites(model), networks_of(model)
        every = [part.score for parts in attentions.values() for part in parts]
        owners = Counter(id(p) for score in every for p in own_parameters(score).values())
        shared = {place for place, count in owners.items() if count > 1}
        biased = model.kind != "decoder"  # decoders get no bias per head
        for name, heads in self.options.heads.items():
            cut_heads(attentions[name], heads, shared, biased)
        for name, count in self.options.ffn_units.items():
            cut_units(networks[name], count)


# -- what can be pruned


def sites(model: nn.Module) -> dict[str, list[Attention]]:
    """Returns attentions by name. Attentions that share an output matrix (the two of a Longformer)
    are pruned together, under the name of the module that holds them."""
    by_output: dict[int, list[tuple[str, Attention]]] = {}
    for name, part in model.named_modules():
        if isinstance(part, Attention):
            by_output.setdefault(id(part.out), []).append((name, part))
    named = {}
    for pairs in by_output.values():
        first = pairs[0][0]
        named[first if len(pairs) == 1 else first.rpartition(".")[0]] = [part for _, part in pairs]
    return named


def networks_of(model: nn.Module) -> dict[str, FeedForward]:
    return {name: part for name, part in model.named_modules() if isinstance(part, FeedForward)}


def remaining(attention: Attention) -> list[int]:
    """Returns the original numbers of the attention's heads."""
    return list(getattr(attention, "remaining", range(attention.project.heads)))


def own_parameters(score: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the parameters of a score that have one entry per head."""
    inner: Any = score.score if isinstance(score, PrunedScore) else score
    return {n: p for n, p in inner.named_parameters(recurse=False) if n in BY_HEAD}


def check_heads(name: str, heads: Any, attention: Attention) -> None:
    present = remaining(attention)
    if not isinstance(heads, Sequence) or not all(isinstance(head, int) for head in heads):
        raise ConfigError(
            f"extensions.pruned.heads: {name} is {heads!r}; it must be a list of heads"
        )
    if not heads:
        raise ConfigError(f"every head of {name} would be removed; leave at least one of {present}")
    if list(heads) != sorted(set(heads)) or not set(heads) <= set(present):
        raise ConfigError(f"{name} has the heads {present}; {list(heads)} cannot remain of them")
    each = attention.project.heads // attention.project.kv_heads
    for group in (present[i : i + each] for i in range(0, len(present), each)):
        if set(group) & set(heads) and not set(group) <= set(heads):
            raise ConfigError(
                f"the heads {group} of {name} share their keys and values, so they can only remain "
                f"or be removed together; {list(heads)} cannot remain"
            )
    score: Any = attention.score
    if type(score.score if isinstance(score, PrunedScore) else score) not in SCORES:
        raise ConfigError(
            f"{name} has a {type(score).__name__}, which needs all of its heads; prune a model "
            "without that extension"
        )


# -- cutting


def cut_heads(
    parts: Sequence[Attention], numbers: Sequence[int], shared: set[int], biased: bool
) -> None:
    """Cuts heads from attentions that share one output matrix, whose columns are cut, too."""
    present, size = remaining(parts[0]), parts[0].project.size
    heads = torch.tensor([present.index(head) for head in numbers])
    rows = (heads[:, None] * size + torch.arange(size)).flatten()
    for part in parts:
        project = part.project
        each = project.heads // project.kv_heads  # the heads that share keys and values
        shared_heads = heads[::each] // each
        first, second = project.heads, project.heads + project.kv_heads  # of keys, of values
        every = torch.cat([heads, first + shared_heads, second + shared_heads])
        narrow(project, 0, (every[:, None] * size + torch.arange(size)).flatten())
        project.heads, project.kv_heads = len(heads), len(shared_heads)
        inner, picked = cut_score(part.score, heads, rows, shared)
        wanted = bool(picked) or (biased and isinstance(inner, Plain))
        part.score = PrunedScore(inner, numbers, picked) if wanted else inner
        part.remaining = list(numbers)  # type: ignore[assignment]
    narrow(parts[0].out, 1, rows)


def cut_score(
    score: nn.Module, heads: Tensor, rows: Tensor, shared: set[int]
) -> tuple[nn.Module, list[str]]:
    """Cuts the score's own parameters, and returns the names of parameters that it shares with
    other layers: entries of those are selected in each call."""
    inner: Any = score.score if isinstance(score, PrunedScore) else score
    picked = []
    for name, value in own_parameters(score).items():
        if id(value) in shared:
            picked.append(name)
        else:
            left = value.detach().index_select(BY_HEAD[name], heads)
            setattr(inner, name, nn.Parameter(left, value.requires_grad))
    if isinstance(inner, Relative):
        narrow(inner.distance, 0, rows)
    return inner, picked


def cut_units(network: FeedForward, count: int) -> None:
    first = torch.arange(count)
    narrow(network.wide, 0, first)
    if isinstance(network, Gated):
        narrow(network.gate, 0, first)
    narrow(network.narrow, 1, first)


def narrow(linear: nn.Linear, dim: int, index: Tensor) -> None:
    """Keeps only these rows (dim 0) or columns (dim 1) of a layer."""
    weight, bias = linear.weight, linear.bias
    linear.weight = nn.Parameter(weight.detach().index_select(dim, index), weight.requires_grad)
    if dim == 1:
        linear.in_features = index.numel()
        return
    linear.out_features = index.numel()
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().index_select(0, index), bias.requires_grad)
