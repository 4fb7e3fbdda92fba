"""A graph in the tokens of a model: finds its entities in a row of ids, and their branches as ids.

Entities are matched by ids, not by letters: what the tokenizer treats as equal (capitals, accents,
spaces) is equal, and only whole words match. In a script without spaces every character may begin a
word, and the longest entity matches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import FormatError
from regard.data.knowledge.graph import Graph, LongestMatcher, Match
from regard.data.knowledge.options import KINDS
from regard.data.knowledge.tree import KnowledgeTree, Node, TreeGrower
from regard.data.tags import spaced
from regard.data.tokenizer import Tokenizer
from regard.data.words import WordStarts, kind

ANY = "*"  # the first relation of a table of edges; it stands for all relations


class KnowledgeSource:
    """Finds the entities and branches of a graph for rows of ids."""

    def __init__(
        self,
        graph: Graph,
        tokenizer: Tokenizer,
        unknown: int | None = None,  # the id of words that the tokenizer does not know
        *,
        everything: bool = False,  # whether objects are found as well as subjects
        **grow: Any,  # options of TreeGrower
    ) -> None:
        self.graph, self.tokenizer = graph, tokenizer
        fast = tokenizer.ready
        self.space = " " if spaced(fast) else ""
        names = graph.names if everything else sorted(graph.entities)
        self.listed = ["", *graph.names]
        self.numbers = {name: i for i, name in enumerate(self.listed)}
        known: dict[tuple[int, ...], str] = {}
        self.strange: set[str] = set()  # names with words that the tokenizer does not know
        self.same: set[str] = set()  # names with the same ids as another name
        for before in dict.fromkeys(("", self.space)):  # at the beginning of a text, and inside
            texts = [before + name for name in names]
            encodings = fast.encode_batch_fast(texts, add_special_tokens=False)
            for name, encoding in zip(names, encodings, strict=True):
                if not encoding.ids or unknown in encoding.ids:  # it would match any unknown word
                    self.strange.add(name)
                elif known.setdefault(tuple(encoding.ids), name) != name:
                    self.same.add(name)
        self.longest: LongestMatcher[int, str] = LongestMatcher(known)
        self.words = WordStarts(tokenizer, 1 + max(fast.get_vocab().values()))
        self.cuts: dict[str, list[int]] = {}
        self.grower = TreeGrower(graph, cut=self.cut, **grow)
        self.edges: dict[tuple[str, str], set[str]] = {}
        for subject, predicate, object_ in graph:
            self.edges.setdefault((subject, object_), set()).add(predicate)

    def notes(self) -> Iterator[str]:
        """Yields what a user should know about the graph."""
        yield from self.graph.notes
        for names, why in (
            (self.strange, "have words that the tokenizer does not know, and are never found"),
            (self.same, "are the same as others to the tokenizer; the first by name counts"),
        ):
            if names:
                yield f"{len(names):,} entities of the graph {why} (such as {min(names)!r})"

    def cut(self, text: str) -> list[int]:
        if text not in self.cuts:
            self.cuts[text] = self.tokenizer.encode(self.space + text, special=False)
        return self.cuts[text]

    def find(self, ids: Sequence[int]) -> list[Match[str]]:
        """Returns the entities of a row."""
        row = np.asarray(ids)
        return self.longest.find(row.tolist(), self.words.begins(row).tolist())

    def tree(self, ids: Sequence[int]) -> KnowledgeTree:
        """Returns the row with its branches; a token outside of entities is a word of its own."""
        nodes, place, row = [], 0, np.asarray(ids).tolist()
        for start, end, entity in [*self.find(row), Match(len(row), len(row), "")]:
            nodes += [Node([token]) for token in row[place:start]]
            if entity:
                nodes.append(self.grower.node(row[start:end], entity))
            place = end
        return KnowledgeTree(nodes)

    def related(self, names: Sequence[str], predicates: Sequence[str]) -> np.ndarray:
        """Returns [R, M, M] for entities counted from 1: whether a relation leads from one to
        another. The first relation stands for all of them; the others are `predicates`."""
        table = np.zeros((1 + len(predicates), len(names) + 1, len(names) + 1), np.uint8)
        for i, one in enumerate(names, 1):
            for j, other in enumerate(names, 1):
                edges = self.edges.get((one, other), ())
                table[0, i, j] = bool(edges)
                for r, predicate in enumerate(predicates, 1):
                    table[r, i, j] = predicate in edges
        return table

    def kinds(self) -> np.ndarray:
        """Returns the class of every token: a word, a number, punctuation, or a special token."""
        fast = self.tokenizer.ready
        facts = json.loads(fast.to_str())
        special = {token["id"] for token in facts["added_tokens"]}
        pieces = fast.get_vocab(with_added_tokens=False)
        surface = kind(facts, list(pieces))[1]
        classes = np.full(len(self.words.opens), KINDS.index("mark"), np.int64)
        for piece, i in pieces.items():
            text = surface(piece).strip()
            marked = len(text) > 2 and (text[0], text[-1]) in (("[", "]"), ("<", ">"))
            if i not in special and not marked:
                named = "number" if text.isdecimal() else "word"
                classes[i] = KINDS.index(named if any(map(str.isalnum, text)) else "punctuation")
        return classes


# -- a source is opened once, though rows are made in many portions


def open_source(
    file: Path | None, tokenizer: Tokenizer, unknown: int | None, skip: bool, most: int, **grow: Any
) -> KnowledgeSource:
    """Returns the source of a file (None: an empty graph); a changed file is read again."""
    stamp: tuple[str, int, int] | None = None
    if file is not None:
        try:
            state = file.stat()
        except OSError as error:
            raise FormatError(f"the graph {file} cannot be read: {error.strerror}") from None
        stamp = str(file.resolve()), state.st_mtime_ns, state.st_size
    return opened(file, stamp, tokenizer, unknown, skip, most, tuple(sorted(grow.items())))


@lru_cache(maxsize=4)
def opened(
    file: Path | None,
    stamp: tuple[str, int, int] | None,
    tokenizer: Tokenizer,
    unknown: int | None,
    skip: bool,
    most: int,
    grow: tuple[tuple[str, Any], ...],
) -> KnowledgeSource:
    graph = Graph(()) if file is None else Graph.read(file, skip=skip, most=most)
    return KnowledgeSource(graph, tokenizer, unknown, **dict(grow))
