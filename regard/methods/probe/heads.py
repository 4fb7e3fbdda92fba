"""Statistics of attention heads: how far they look, how sharply, at which tokens, and along which
syntactic relations.

For every query row, averaged over all rows: the mean distance, the entropy in nats, and the share
of attention on the first token, on the previous token (of rows that have one), on the next token,
on the row itself, and on the special tokens around a text. With trees, a head predicts the
syntactic head of each word (Clark et al. 2019): attention to the pieces of a word is summed,
attention from them is averaged, and the prediction is the word with the most attention (except the
word itself and special tokens); or, in the other direction, the word that attends most to it. A
word that attends to no other word, such as the first in a causal model, has no prediction. The
baseline is the best prediction by a fixed distance.

Only the attention weights of one layer for one small batch are in memory at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.recorder import AttentionCall, record
from regard.data.batching import by_tokens
from regard.methods.probe.reader import StateReader, TokenRow
from regard.methods.probe.states import Tell, silent
from regard.methods.probe.trees import DependencyTree
from regard.training.train_module import evaluating

STATISTICS = ("distance", "entropy", "first", "previous", "next", "self", "separator")
DIRECTIONS = ("dependent to head", "head to dependent")
ROOM = 2**22  # attention weights of a layer in memory at once
LEAST = 10  # a relation is reported if it occurs at least this often
NOBODY = -1  # no prediction, which is never correct
LAYER = re.compile(r"blocks\.(\d+)\.")


def statistics(
    weights: Tensor, attention_mask: Tensor, marks: Tensor
) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns, for attention weights [B, H, Q, K], the sums [H] over the query rows and the number
    of rows. `attention_mask` [B, Q] marks the rows that are not padding, and `marks` [B, Q] the
    special tokens."""
    weights = weights.masked_fill(~attention_mask[:, None, :, None], 0.0)  # padding may see nothing
    rows = weights.size(2)
    place = torch.arange(rows, device=weights.device)
    away = (place[:, None] - place[None]).abs().to(weights.dtype)
    everyone = attention_mask.to(weights.dtype)
    beginning = attention_mask.long().argmax(1)
    first = weights.gather(3, beginning[:, None, None, None].expand(-1, weights.size(1), rows, 1))[
        ..., 0
    ]
    lower = torch.nn.functional.pad(weights.diagonal(-1, 2, 3), (1, 0))
    upper = torch.nn.functional.pad(weights.diagonal(1, 2, 3), (0, 1))
    none = torch.zeros_like(everyone[:, :1])
    after_one = torch.cat([none, everyone[:, 1:] * everyone[:, :-1]], 1)
    before_one = torch.cat([everyone[:, 1:] * everyone[:, :-1], none], 1)
    rows_and_askers = {
        "distance": ((weights * away).sum(-1), everyone),
        "entropy": (torch.special.entr(weights).sum(-1), everyone),
        "first": (first, everyone),
        "previous": (lower, after_one),
        "next": (upper, before_one),
        "self": (weights.diagonal(0, 2, 3), everyone),
        "separator": (torch.einsum("bhqk,bk->bhq", weights, marks.to(weights.dtype)), everyone),
    }
    return {
        name: (torch.einsum("bhq,bq->h", values, asks).double(), asks.sum().double())
        for name, (values, asks) in rows_and_askers.items()
    }


def of_words(weights: Tensor, spans: Sequence[tuple[int, int]]) -> Tensor:
    """Turns attention [H, T, T] between tokens into [H, n, n] between words. `spans` holds the
    tokens (begin, end) of each word."""
    member = weights.new_zeros(len(spans), weights.size(1))
    for word, (begin, end) in enumerate(spans):
        member[word, begin:end] = 1.0
    shares = member / member.sum(1, keepdim=True)
    return shares @ weights @ member.T


def guesses(attention: Tensor) -> Tensor:
    """Returns the predicted head of each word [direction, H, n] from attention [H, n, n] between
    words. It is NOBODY if a word attends to no other word, or no other word attends to it."""
    count = attention.size(1)
    own = torch.eye(count, dtype=torch.bool, device=attention.device)
    free = attention.masked_fill(own, -1.0)
    both = [free.max(2), free.max(1)]
    return torch.stack([place.masked_fill(most <= 0, NOBODY) for most, place in both])


def frequent(offsets: Counter[int]) -> tuple[int, int]:
    """Returns the most frequent offset (of several, the nearest) and how often it occurs."""
    return max(offsets.items(), key=lambda each: (each[1], -abs(each[0])))


@dataclass
class Heads:
    """The totals of all heads. A head is named (layer, head), both counted from 1."""

    names: list[tuple[int, int]] = field(default_factory=list)
    places: dict[str, slice] = field(default_factory=dict)  # the heads of each attention
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    hits: dict[str, np.ndarray] = field(default_factory=dict)  # relation -> [direction, heads]
    offsets: dict[str, Counter[int]] = field(default_factory=dict)

    def place(self, seen: AttentionCall) -> slice:
        """Returns where the heads of an attention stand among all heads; a new attention is
        added."""
        if seen.name not in self.places:
            match = LAYER.search(seen.name)
            layer = int(match[1]) + 1 if match else len(self.places) + 1
            before = sum(own == layer for own, _ in self.names)
            begin, count = len(self.names), seen.queries.size(1)
            self.names += [(layer, before + head + 1) for head in range(count)]
            self.places[seen.name] = slice(begin, begin + count)
            for table in (self.sums, self.counts):
                for name in STATISTICS:
                    old = table.get(name, np.zeros(0))
                    table[name] = np.concatenate([old, np.zeros(count)])
            for relation, old in self.hits.items():
                self.hits[relation] = np.concatenate([old, np.zeros((2, count), np.int64)], 1)
        return self.places[seen.name]

    def add(
        self, seen: AttentionCall, weights: Tensor, attention_mask: Tensor, marks: Tensor
    ) -> None:
        own = self.place(seen)
        for name, (total, count) in statistics(weights, attention_mask, marks).items():
            self.sums[name][own] += total.cpu().numpy()
            self.counts[name][own] += float(count)

    def compare(self, seen: AttentionCall, attention: Tensor, tree: DependencyTree) -> None:
        """Counts the correct predictions for words that depend on another word."""
        own = self.place(seen)
        guessed = guesses(attention).cpu().numpy()
        for word, head in enumerate(tree.heads):
            if head < 0 or not tree.counted[word]:
                continue
            for relation in (tree.relations[word].partition(":")[0], "all"):
                if relation not in self.hits:
                    self.hits[relation] = np.zeros((2, len(self.names)), np.int64)
                self.hits[relation][:, own] += guessed[:, :, word] == head

    def count(self, tree: DependencyTree) -> None:
        """Counts how far the words of a tree are from their heads."""
        for word, head in enumerate(tree.heads):
            if head >= 0 and tree.counted[word]:
                for relation in (tree.relations[word].partition(":")[0], "all"):
                    self.offsets.setdefault(relation, Counter())[head - word] += 1

    # -- results

    def rows(self) -> list[dict[str, Any]]:
        """Returns one record for each head."""
        records = []
        for number, (layer, head) in sorted(enumerate(self.names), key=lambda each: each[1]):
            means = {
                name: float(self.sums[name][number] / max(self.counts[name][number], 1.0))
                for name in STATISTICS
            }
            records.append({"layer": layer, "head": head, **means})
        return records

    def relations(self, layers: Collection[int]) -> list[dict[str, Any]]:
        """Returns, for each relation, the best head of these layers and the best fixed distance,
        the most frequent relations first."""
        heads = [number for number, (layer, _) in enumerate(self.names) if layer in layers]
        best = []
        for relation, offsets in self.offsets.items():
            total = offsets.total()
            if total < LEAST or relation not in self.hits or not heads:
                continue
            hits = self.hits[relation][:, heads]
            way, place = map(int, np.unravel_index(int(hits.argmax()), hits.shape))
            layer, head = self.names[heads[place]]
            offset, times = frequent(offsets)
            best.append(
                {
                    "relation": relation,
                    "words": total,
                    "layer": layer,
                    "head": head,
                    "direction": DIRECTIONS[way],
                    "accuracy": float(hits[way, place] / total),
                    "offset": offset,
                    "baseline": times / total,
                }
            )
        return sorted(best, key=lambda row: -row["words"])


def look_at_heads(
    reader: StateReader,
    rows: Sequence[TokenRow],
    trees: Sequence[DependencyTree] = (),
    tell: Tell = silent,
) -> Heads:
    """Reads all rows and collects the statistics. Rows that hold a whole sentence of a tree are
    also compared with that tree."""
    heads = Heads()
    most = getattr(reader.model.config, "heads", 1)
    costs = np.array([most * len(row.ids) ** 2 for row in rows], np.float64)
    for tree in (trees[row.item] for row in rows if trees and row.whole):
        heads.count(tree)
    done = 0
    with evaluating(reader.model):
        for places in by_tokens(costs, ROOM):
            batch = [rows[place] for place in places]
            with record(reader.model) as recording:
                tokens, attention_mask, more = reader.inputs(batch)
                reader.read(tokens, None if bool(attention_mask.all()) else attention_mask, more)
            placed = list(zip(batch, reader.shifts(batch), strict=True))
            marks = attention_mask.clone()  # [B, T]: the special tokens around a text
            for number, (row, shift) in enumerate(placed):
                marks[number, shift + row.inner[0] : shift + row.inner[1]] = False
            while recording.layers:
                seen = recording.layers.pop(0)
                weights = seen.weights.float()
                heads.add(seen, weights, attention_mask, marks)
                for number, (row, shift) in enumerate(placed if trees else ()):
                    if row.whole:
                        spans = [(begin + shift, end + shift) for _, begin, end in row.spans]
                        words = of_words(weights[number], spans)
                        heads.compare(seen, words, trees[row.item])
            done += len(places)
            tell("looking", done, len(rows))
    return heads
