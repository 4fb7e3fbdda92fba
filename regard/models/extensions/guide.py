"""Rules that guide attention without forcing it: B in softmax(q kᵀ / √d + λ·B + mask).

A rule gives each pair of tokens a number that says how strongly the rule holds; a Guide is several
rules about one batch. Rules read tables of the tokens, as a Pattern's predicate does, so they work
in any layout: for all pairs, or for the pairs that a window compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.pattern import Pattern
from regard.attention.position import View
from regard.attention.tree_pattern import Places, places
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.knowledge.options import KINDS


@dataclass(frozen=True)
class GuideInputs:
    """The tables of a batch that rules may read; a table that is not known is None.

    `entity` numbers the entities of each text from 1, and 0 is no entity; `edges` [B, R, M, M]
    holds 1 where relation r leads from an entity (first) to another (second).
    """

    ids: Tensor  # [B, T]
    segments: Tensor | None = None  # [B, T]
    kinds: Tensor | None = None  # [B, T]: indices into KINDS
    entity: Tensor | None = None  # [B, T]
    edges: Tensor | None = None
    predicates: tuple[str, ...] = ()  # the names of the relations in `edges`

    def need(self, name: str, rule: str) -> Tensor:
        value = getattr(self, name)
        if value is None:
            raise InputError(f"the rule {rule!r} needs {name}, which this batch does not have")
        table: Tensor = value
        return table


Rule = Callable[
    [GuideInputs, Tensor, Tensor, Tensor], Tensor
]  # (tokens, batch, query, key) -> values


@dataclass(frozen=True)
class GuidedView(View):
    """A view with the values of the rules for its pairs."""

    features: Tensor | None = None  # [B, F, Q, K], in the layout of the pattern's bias


@dataclass(frozen=True)
class RuleGuide:
    """Rules about a batch, in the order in which the model has weights for them.

    >>> near = lambda tokens, batch, query, key: ((query - key).abs() <= 2).float()
    >>> RuleGuide(GuideInputs(ids), (near,))
    """

    tokens: GuideInputs
    rules: tuple[Rule, ...]
    asking: Tensor | None = None  # [B, Q]: the tokens of the query rows, if not all tokens

    def of(self, asking: Tensor | None) -> RuleGuide:
        return replace(self, asking=asking)

    def features(self, pattern: Pattern, dtype: torch.dtype) -> Tensor:
        """Returns each rule's value for each pair, [B, F, Q, K], in the layout of the kernel."""
        ids = self.tokens.ids
        queries = ids.size(1) if self.asking is None else self.asking.size(1)
        where, leading = places(pattern, ids.size(0), queries, ids.size(1), ids.device)
        values = torch.stack([self.values(rule, where, dtype) for rule in self.rules], leading)
        return values.flatten(0, leading - 1)

    def values(self, rule: Rule, where: Places, dtype: torch.dtype) -> Tensor:
        batch, query, key = where
        shape = torch.broadcast_tensors(*where)[0].shape
        token = query if self.asking is None else self.asking[batch, query].clamp_min(0)
        return rule(self.tokens, batch, token, key).to(dtype).expand(shape)


# -- the built-in rules, by name


def same_entity(t: GuideInputs, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    entity = t.need("entity", "entity")
    one = entity[batch, query]
    return (one == entity[batch, key]) & (one > 0)


def connected(
    t: GuideInputs, batch: Tensor, query: Tensor, key: Tensor, relation: int | None
) -> Tensor:
    """Returns whether a relation (None: any) leads from one of the two entities to the other."""
    entity, edges = t.need("entity", "related"), t.need("edges", "related")
    table = edges.amax(1) if relation is None else edges[:, relation]
    one, other = entity[batch, query], entity[batch, key]
    return table[batch, one, other] + table[batch, other, one] > 0


def related(t: GuideInputs, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return connected(t, batch, query, key, None)


def relation(name: str) -> Rule:
    def rule(t: GuideInputs, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        if name not in t.predicates:
            raise UnknownName("relation", name, t.predicates, "(of this graph)")
        return connected(t, batch, query, key, t.predicates.index(name))

    return rule


def same_token(t: GuideInputs, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Returns whether both positions hold the same token and are different positions."""
    return (t.ids[batch, query] == t.ids[batch, key]) & (query != key)


def same_sentence(t: GuideInputs, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    segments = t.need("segments", "same-sentence")
    return segments[batch, query] == segments[batch, key]


def near(text: str) -> Rule:
    most = number("near", text)
    return lambda t, batch, query, key: (query - key).abs() <= most


def gaussian(text: str) -> Rule:
    """Returns the rule -(j - p)² / 2σ², a prior for near tokens. p is the row itself; with "2,-1"
    it is the position one before it (σ is 2)."""
    width_, comma, away_ = text.partition(",")
    width = number("gaussian", width_)
    away = int(away_) if away_.removeprefix("-").isdecimal() else 0
    if comma and str(away) != away_:
        raise ConfigError(f"the rule 'gaussian:{text}' must be a width, or 'gaussian:2,-1'")
    return lambda t, batch, query, key: -(key - query - away).square() / (2 * width * width)


def prior(table: Tensor) -> Rule:
    """Returns the rule log π for a table of probabilities [B, T, T] whose rows sum to 1. A
    probability of 0 counts as 1e-9: hiding keys is the task of a Pattern, and 0 · -∞ is NaN."""
    if not torch.allclose(table.sum(-1), table.new_ones(())) or bool((table < 0).any()):
        raise InputError("a prior needs probabilities: none is below 0, and each row's sum is 1")
    known = table.clamp_min(1e-9).log()
    return lambda t, batch, query, key: known[batch, query, key]


def kinds(text: str) -> Rule:
    """Returns the rule of two kinds of tokens: with "number,word", numbers look at words."""
    names = text.split(",")
    if len(names) != 2 or not set(names) <= set(KINDS):
        raise ConfigError(f"the rule 'kinds:{text}' must name two of {', '.join(KINDS)}")
    first, second = map(KINDS.index, names)

    def rule(t: GuideInputs, batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
        table = t.need("kinds", f"kinds:{text}")
        return (table[batch, query] == first) & (table[batch, key] == second)

    return rule


def number(rule: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"the rule '{rule}:{text}' needs a number above 0, as in '{rule}:2'")
    return value


PLAIN: dict[str, Rule] = {
    "entity": same_entity,
    "related": related,
    "same-token": same_token,
    "same-sentence": same_sentence,
}
MADE: dict[str, Callable[[str], Rule]] = {
    "relation": relation,
    "near": near,
    "gaussian": gaussian,
    "kinds": kinds,
}


def rule(name: str) -> Rule:
    """Returns a rule by its name: "entity", "related", "relation:capital", "same-token",
    "same-sentence", "near:2", "gaussian:3", "gaussian:3,-1", "kinds:number,word"."""
    kind, colon, text = name.partition(":")
    if colon and kind in MADE:
        return MADE[kind](text)
    if not colon and kind in PLAIN:
        return PLAIN[kind]
    raise UnknownName("rule", name, [*PLAIN, *(f"{kind}:…" for kind in MADE)])


def rules(names: Sequence[str]) -> tuple[Rule, ...]:
    return tuple(map(rule, names))
