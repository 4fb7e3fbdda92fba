"""K-BERT's sentence tree (Liu et al. 2020, 3.2): branches of knowledge that grow from words.

A sentence is the trunk. The triples of a word hang on it as branches. Flattened, a branch follows
its word; its positions continue from that word, while the trunk counts as if there were no branch,
so several branches share positions ("soft" positions).

Example: [CLS] Tim Cook (CEO Apple) is visiting Beijing (capital China)(is_a City) now
soft:    0     1   2    (3   4)     3  4        5       (6       7)    (6    7)   6
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from regard.core.errors import InputError
from regard.data.knowledge.graph import Graph, Triple, split

DEEPEST = 4  # the most levels of branches; a cycle in the graph ends here
TRUNK = -1  # the owner of the trunk's own tokens


class FlatTree(NamedTuple):
    """A tree as one sequence; the lists of its tokens hold all that a visible matrix needs."""

    tokens: list[Any]
    soft: list[int]  # the soft positions
    line: list[int]  # 0 for the trunk, else the number of the branch
    word: list[int]  # the number of the token's word; all tokens of an entity are one word
    owner: list[int]  # the word from which the token's branch grows; TRUNK for the trunk
    left_out: int = 0  # the number of branches for which there was no room

    @property
    def tags(self) -> list[int]:
        """0 for tokens of the trunk and 1 for tokens of branches, which have no label."""
        return [int(line > 0) for line in self.line]

    def visible(self) -> np.ndarray:
        """Returns the symmetric visible matrix [T, T]: which token sees which."""
        line, word, owner = (np.array(x) for x in (self.line, self.word, self.owner))
        hangs = owner[:, None] == word[None, :]
        return np.asarray((line[:, None] == line[None, :]) | hangs | hangs.T)


@dataclass
class Node:
    """A word (or an entity of several tokens) with its branches."""

    tokens: Sequence[Any]
    branches: list[list[Node]] = field(default_factory=list)


Cut = Callable[[str], Sequence[Any]]


@dataclass
class KnowledgeTree:
    """Words in order, some of them with branches.

    >>> graph = Graph([("B", "x", "y")])
    >>> KnowledgeTree.of(["A", "B", "C"], graph).flatten().soft
    [0, 1, 2, 3, 2]
    """

    trunk: list[Node]

    @classmethod
    def of(cls, words: Sequence[str], graph: Graph, **options: Any) -> KnowledgeTree:
        """Builds the tree of a sentence; `options` are those of `TreeGrower`. With `cut`, a
        tokenizer can give the tokens of a text in place of its words."""
        grower = TreeGrower(graph, **options)
        nodes, place = [], 0
        for start, end, entity in [*graph.find(words), (len(words), len(words), "")]:
            nodes += [Node(grower.cut(word)) for word in words[place:start]]
            if entity:
                tokens = [token for word in words[start:end] for token in grower.cut(word)]
                nodes.append(grower.node(tokens, entity))
            place = end
        return cls(nodes)

    def flatten(self, room: int | None = None, *, whole: bool = True) -> FlatTree:
        """Flattens the tree to at most `room` tokens: first the trunk, then branches in the order
        of their words. A branch that does not fit is left out as a whole or, if not `whole`, cut.
        """
        trunk = sum(len(node.tokens) for node in self.trunk)
        writer = BranchWriter(whole, None if room is None else max(room - trunk, 0))
        writer.write(self.trunk, 0, TRUNK)
        fits = slice(len(writer.tokens) if room is None else room)  # a trunk may be too long
        soft, line, word, owner = (table[fits] for table in writer.tables)
        return FlatTree(writer.tokens[fits], soft, line, word, owner, writer.left_out)


class BranchWriter:
    """Writes lines one after the other, each branch behind the word it grows from."""

    def __init__(self, whole: bool, left: int | None) -> None:
        self.whole, self.left = whole, left
        self.tokens: list[Any] = []
        self.tables: tuple[list[int], ...] = ([], [], [], [])
        self.words = self.lines = self.left_out = 0

    def write(self, nodes: Sequence[Node], at: int, owner: int) -> None:
        """Writes one line: first the trunk, then, recursively, the branches of its words."""
        line, self.lines = self.lines, self.lines + 1
        for node in nodes:
            word, self.words = self.words, self.words + 1
            for token in node.tokens:
                self.tokens.append(token)
                for table, value in zip(self.tables, (at, line, word, owner), strict=True):
                    table.append(value)
                at += 1
            for branch in node.branches:
                part = self.fitting(branch)
                if part:
                    self.write(part, at, word)

    def fitting(self, branch: list[Node]) -> list[Node]:
        """Returns the part of a branch that fits; its own branches are checked on writing."""
        size = sum(len(node.tokens) for node in branch)
        if self.left is None or size <= self.left:
            self.left = None if self.left is None else self.left - size
            return branch
        self.left_out += 1
        part: list[Node] = []
        if self.whole or self.left is None:
            return part
        for node in branch:
            tokens = node.tokens[: self.left]
            self.left -= len(tokens)
            if len(tokens):
                part.append(Node(tokens, node.branches if len(tokens) == len(node.tokens) else []))
        return part


class TreeGrower:
    """Grows the branches of entities; every entity is looked up once for each depth."""

    def __init__(
        self,
        graph: Graph,
        *,
        branches: int = 2,  # the most branches of one entity; K-BERT's MAX_ENTITIES
        depth: int = 1,  # 2: the objects of branches have branches, too
        predicate: bool = True,  # False: the object alone, as K-BERT does for tagging
        cut: Cut = split,  # a function that splits a text into tokens
    ) -> None:
        if branches < 0 or not 1 <= depth <= DEEPEST:
            raise InputError(
                f"an entity has {branches} branches at a depth of {depth}; give 0 or more branches "
                f"at a depth from 1 to {DEEPEST}"
            )
        self.graph, self.count, self.depth = graph, branches, depth
        self.predicate, self.cut = predicate, cut
        self.held: dict[tuple[str, int], list[list[Node]]] = {}

    def node(self, tokens: Sequence[Any], entity: str) -> Node:
        return Node(tokens, self.branches(entity, self.depth))

    def branches(self, entity: str, depth: int) -> list[list[Node]]:
        if depth == 0:
            return []
        if (entity, depth) not in self.held:
            triples = self.graph.of_entity(entity)[: self.count]
            branches = (self.branch(triple, depth) for triple in triples)
            self.held[entity, depth] = [branch for branch in branches if branch]
        return self.held[entity, depth]

    def branch(self, triple: Triple, depth: int) -> list[Node]:
        """Returns predicate and object; only the object can have branches of its own."""
        first = [Node(self.cut(triple.predicate))] if self.predicate else []
        last = Node(self.cut(triple.object), self.branches(triple.object, depth - 1))
        return [node for node in [*first, last] if len(node.tokens)]
