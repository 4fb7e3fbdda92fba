"""What attention heads do: how far they look, how sharply, at whom, and along which relations.

Of every row that asks, and averaged over all of them: the mean distance, the entropy in nats, and
the share of attention on the first token, the one before (of rows that have one), the one behind,
itself, and the marks around a text. With trees, a head is read as a guess of each word's head
(Clark et al. 2019): attention to a word's pieces is summed, attention from them averaged, and the
word most attended to (itself and marks aside) is the guess; or, the other way round, the word that
attends most. Who attends to no other word, such as the first in a causal model, guesses nothing.
Beside it stands the best guess by a fixed distance.

One layer's weights of one small batch are all that is ever held.
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
from regard.methods.probe.reader import StateReader, TokenRow
from regard.methods.probe.states import Tell, silent
from regard.methods.probe.trees import DependencyTree
from regard.tasks.inference import by_tokens
from regard.training.train_module import evaluating

STATISTICS = ("distance", "entropy", "first", "previous", "next", "self", "separator")
DIRECTIONS = ("dependent to head", "head to dependent")
ROOM = 2**22  # weights of a layer that are held at once
LEAST = 10  # times that a relation occurs before it is shown
NOBODY = -1  # no word: such a guess is never right
LAYER = re.compile(r"blocks\.(\d+)\.")


def statistics(
    weights: Tensor, attention_mask: Tensor, marks: Tensor
) -> dict[str, tuple[Tensor, Tensor]]:
    """Sums over asking rows [H] and how many there are, of weights [B, H, Q, K]; `attention_mask`
    [B, Q] says which rows are no padding, `marks` [B, Q] which of them are marks.
    """
    weights = weights.masked_fill(
        ~attention_mask[:, None, :, None], 0.0
    )  # such rows may see nobody
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
    """[H, T, T] between tokens -> [H, n, n] between words, the tokens of each from … to."""
    member = weights.new_zeros(len(spans), weights.size(1))
    for word, (begin, end) in enumerate(spans):
        member[word, begin:end] = 1.0
    shares = member / member.sum(1, keepdim=True)
    return shares @ weights @ member.T


def guesses(attention: Tensor) -> Tensor:
    """The guessed head of each word [direction, H, n], of attention [H, n, n] between words;
    NOBODY where a word attends to no other, or is attended to by none.
    """
    count = attention.size(1)
    own = torch.eye(count, dtype=torch.bool, device=attention.device)
    free = attention.masked_fill(own, -1.0)
    both = [free.max(2), free.max(1)]
    return torch.stack([place.masked_fill(most <= 0, NOBODY) for most, place in both])


def frequent(offsets: Counter[int]) -> tuple[int, int]:
    """The offset that occurs most often, of several the nearest; and how often."""
    return max(offsets.items(), key=lambda each: (each[1], -abs(each[0])))


@dataclass
class Heads:
    """Totals of the heads, each called (layer, head), both counted from 1."""

    names: list[tuple[int, int]] = field(default_factory=list)
    places: dict[str, slice] = field(default_factory=dict)  # of each attention: its heads
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    hits: dict[str, np.ndarray] = field(default_factory=dict)  # relation -> [direction, heads]
    offsets: dict[str, Counter[int]] = field(default_factory=dict)

    def place(self, seen: AttentionCall) -> slice:
        """Where the heads of an attention stand among all; new ones are added."""
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
        """Counts the guesses that are right, of words that depend on another."""
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
        """How far the heads of a tree's words are away."""
        for word, head in enumerate(tree.heads):
            if head >= 0 and tree.counted[word]:
                for relation in (tree.relations[word].partition(":")[0], "all"):
                    self.offsets.setdefault(relation, Counter())[head - word] += 1

    # -- what was found

    def rows(self) -> list[dict[str, Any]]:
        """A record for each head."""
        records = []
        for number, (layer, head) in sorted(enumerate(self.names), key=lambda each: each[1]):
            means = {
                name: float(self.sums[name][number] / max(self.counts[name][number], 1.0))
                for name in STATISTICS
            }
            records.append({"layer": layer, "head": head, **means})
        return records

    def relations(self, layers: Collection[int]) -> list[dict[str, Any]]:
        """Of each relation the best head in these layers beside the best fixed distance, the
        frequent first.
        """
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
    """Reads all rows; those that are the whole of a tree's sentence are compared with it."""
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
            marks = attention_mask.clone()  # [B, T]: which tokens are marks around a text
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
