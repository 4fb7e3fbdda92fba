"""A knowledge graph: triples (subject, predicate, object) from a file or from NetworkX.

The triples of an entity are sorted, so that the choice of branches depends neither on the order of
a file nor on Python's hashes (the published code of K-BERT takes them from a set).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from regard.core.errors import FormatError, InputError
from regard.core.files import write_text

MOST = 64  # the most triples of one entity; a hub with millions would not fit beside a text
SHOWN = 10  # malformed lines that an error names
Item = TypeVar("Item")
Value = TypeVar("Value")


class Triple(NamedTuple):
    subject: str
    predicate: str
    object: str


class Match(NamedTuple, Generic[Value]):
    """The value of a known sequence, and where the sequence stands."""

    start: int
    end: int
    value: Value


class LongestMatcher(Generic[Item, Value]):
    """Finds known sequences in other sequences, from left to right, the longest at each place."""

    def __init__(self, known: Mapping[tuple[Item, ...], Value]) -> None:
        self.known = dict(known)
        sizes: dict[Item, set[int]] = {}
        for sequence in self.known:
            if sequence:
                sizes.setdefault(sequence[0], set()).add(len(sequence))
        self.sizes = {first: sorted(own, reverse=True) for first, own in sizes.items()}

    def find(self, row: Sequence[Item], begins: Sequence[bool] | None = None) -> list[Match[Value]]:
        """Returns the matches. `begins` tells which items begin a word: then only whole words
        match."""
        matches: list[Match[Value]] = []
        place = 0
        while place < len(row):
            end = self.longest(row, place, begins)
            if end > place:
                matches.append(Match(place, end, self.known[tuple(row[place:end])]))
            place = max(end, place + 1)
        return matches

    def longest(self, row: Sequence[Item], start: int, begins: Sequence[bool] | None) -> int:
        """Returns the end of the longest match at a place, or the place if nothing matches."""
        if begins is not None and not begins[start]:
            return start
        for size in self.sizes.get(row[start], ()):
            end = start + size
            cut = end > len(row) or (begins is not None and end < len(row) and not begins[end])
            if not cut and tuple(row[start:end]) in self.known:
                return end
        return start


class Graph:
    """Triples by their subject, sorted, each once, at most `most` for one subject.

    >>> graph = Graph([("Beijing", "capital", "China"), ("Beijing", "is_a", "City")])
    >>> graph.of_entity("Beijing")
    (Triple('Beijing', 'capital', 'China'), Triple('Beijing', 'is_a', 'City'))
    >>> graph.find("he is visiting Beijing now".split())
    [Match(start=3, end=4, value='Beijing')]
    """

    def __init__(
        self, triples: Iterable[Sequence[Any]], *, most: int = MOST, notes: Iterable[str] = ()
    ) -> None:
        if most < 1:
            raise InputError(f"an entity has at most {most} triples; most must be at least 1")
        by_subject: dict[str, list[Triple]] = {}
        for triple in sorted({whole(triple) for triple in triples}):
            by_subject.setdefault(triple.subject, []).append(triple)
        self.entities = {name: tuple(own[:most]) for name, own in by_subject.items()}
        self.notes = list(notes)
        large = [name for name, own in by_subject.items() if len(own) > most]
        if large:
            first = max(large, key=lambda name: (len(by_subject[name]), name))
            self.notes.append(
                f"{len(large):,} entities have more than {most} triples, {first!r} has "
                f"{len(by_subject[first]):,}; only the first {most} of each, by name, are kept"
            )
        self.words: LongestMatcher[str, str] | None = None

    # -- where it comes from

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, skip: bool = False, most: int = MOST) -> Graph:
        """Reads a file with a line `subject TAB predicate TAB object` for each triple.

        Malformed lines are refused with their numbers or, with `skip`, left out and counted.
        """
        file = Path(path)
        try:
            raw = file.read_bytes()
        except OSError as error:
            raise FormatError(f"the graph {file} cannot be read: {error.strerror}") from None
        triples, wrong = [], []
        for number, line in enumerate(raw.split(b"\n"), 1):
            triple, why = parsed(line)
            if why:
                wrong.append(f"{file}:{number}: {why}")
            elif triple is not None:
                triples.append(triple)
        if wrong and not skip:
            lines = [
                f"the graph has {len(wrong):,} malformed lines; a line is 'subject TAB predicate "
                "TAB object'. Correct or remove them, or leave them out with skip=True (in a "
                "recipe objective.knowledge.skip=true):",
                *wrong[:SHOWN],
            ]
            lines += [f"and {len(wrong) - SHOWN:,} more"] if len(wrong) > SHOWN else []
            raise FormatError("\n  ".join(lines))
        left = [
            f"{len(wrong):,} malformed lines were left out, the first is {w}" for w in wrong[:1]
        ]
        return cls(triples, most=most, notes=left)

    @classmethod
    def of(cls, graph: Any, *, predicate: str = "predicate", most: int = MOST) -> Graph:
        """Builds a graph from a NetworkX DiGraph or MultiDiGraph whose edges name their predicate.

        If an edge of a MultiDiGraph has no such attribute and its key is a string, the key is the
        predicate. NetworkX itself is not needed for this.

        >>> one = networkx.DiGraph()
        >>> one.add_edge("Beijing", "China", predicate="capital")
        >>> Graph.of(one).of_entity("Beijing")
        (Triple('Beijing', 'capital', 'China'),)
        """
        if not callable(getattr(graph, "is_directed", None)) or not graph.is_directed():
            raise InputError(
                f"{type(graph).__name__} has no directed edges; give a DiGraph or MultiDiGraph of "
                "NetworkX, with edges from subject to object"
            )
        several = bool(graph.is_multigraph())
        edges = graph.edges(keys=True, data=True) if several else graph.edges(data=True)
        triples = []
        for subject, object_, *key, data in edges:
            named = data.get(predicate)
            if named is None and key and isinstance(key[0], str):
                named = key[0]
            if named is None:
                raise InputError(
                    f"the edge from {subject!r} to {object_!r} has no attribute {predicate!r}, "
                    "which must name its predicate"
                )
            triples.append((subject, named, object_))
        return cls(triples, most=most)

    # -- what it says

    def __len__(self) -> int:
        return sum(map(len, self.entities.values()))

    def __iter__(self) -> Iterator[Triple]:
        return (triple for name in sorted(self.entities) for triple in self.entities[name])

    def of_entity(self, name: str) -> tuple[Triple, ...]:
        return self.entities.get(name, ())

    @cached_property
    def names(self) -> list[str]:
        """The names of all subjects and objects."""
        return sorted(set(self.entities) | {triple.object for triple in self})

    @cached_property
    def predicates(self) -> list[str]:
        return sorted({triple.predicate for triple in self})

    def find(self, words: Sequence[str]) -> list[Match[str]]:
        """Returns the entities among words, the longest where they overlap: ("New", "York", "City")
        before ("New", "York"). Upper and lower case differ."""
        if self.words is None:
            self.words = LongestMatcher({tuple(split(name)): name for name in self.entities})
        return self.words.find(list(words))

    # -- what is kept of it

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes all triples, sorted, in the format that `read` reads."""
        write_text(Path(path), self.text())

    def text(self) -> str:
        return "".join("\t".join(triple) + "\n" for triple in self)

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.text().encode(), digest_size=16).hexdigest()


def whole(triple: Sequence[Any]) -> Triple:
    """Returns a triple whose names have single spaces inside and none around; tabs and line ends
    count as spaces."""
    names = [" ".join(str(part).split()) for part in triple]
    if len(names) != 3 or not all(names):
        raise InputError(f"{tuple(triple)!r} is no triple (subject, predicate, object)")
    return Triple(*names)


def parsed(line: bytes) -> tuple[Triple | None, str]:
    """Returns the triple of a line, or what is wrong with it; a blank line gives neither."""
    try:
        text = line.decode("utf-8").removeprefix("\ufeff").rstrip("\r")
    except UnicodeDecodeError:
        return None, "the bytes are not UTF-8"
    if not text.strip():
        return None, ""
    fields = text.split("\t")
    if len(fields) != 3:
        return None, f"{len(fields)} fields between tabs, not 3"
    if not all(field.strip() for field in fields):
        return None, "an empty field"
    return whole(fields), ""


def split(text: str) -> list[str]:
    """Splits a text at spaces; each character of a script without spaces is a word of its own."""
    from regard.data.words import without_spaces

    return [word for part in text.split() for word in without_spaces(part)]
