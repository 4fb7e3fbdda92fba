"""Dependency trees of CoNLL-U files: words, heads, relations, and distances along the edges.

Each line has ten columns separated by tabs, as in Universal Dependencies. Lines of word ranges
(1-2) and of empty nodes (1.1) are not words. A sentence with a wrong line is reported and left out;
the file is rejected unless --skip allows this kind of problem.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from regard.core.errors import InputError
from regard.data.files import TextFile
from regard.data.problems import NOWHERE, FileLine, Problems
from regard.data.readers import MOST

COLUMNS = 10
PUNCTUATION = ("PUNCT", "punct")  # the part of speech and the relation of punctuation
FIELDS = ("upos", "xpos", "relation")


@dataclass(frozen=True)
class DependencyTree:
    words: tuple[str, ...]
    heads: tuple[int, ...]  # positions in the sentence, from 0; -1 for the root
    relations: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    place: FileLine = NOWHERE

    @property
    def root(self) -> int:
        return self.heads.index(-1)

    @cached_property
    def counted(self) -> np.ndarray:
        """Returns which words are not punctuation."""
        pairs = zip(self.upos, self.relations, strict=True)
        return np.array(
            [upos != PUNCTUATION[0] and kind != PUNCTUATION[1] for upos, kind in pairs], np.bool_
        )

    @cached_property
    def depths(self) -> np.ndarray:
        """Returns the number of edges from each word to the root."""
        return self.distances[self.root]

    @cached_property
    def distances(self) -> np.ndarray:
        """Returns the number of edges between words, [n, n]."""
        count = len(self.words)
        table = np.zeros((count, count), np.int64)
        seen: list[int] = []
        for word in from_the_root(self.heads):
            if seen:
                table[word, seen] = table[seen, word] = table[self.heads[word], seen] + 1
            seen.append(word)
        return table

    def tags(self, field: str) -> tuple[str, ...]:
        tags: tuple[str, ...] = getattr(self, field)
        return tags


def from_the_root(heads: tuple[int, ...]) -> list[int]:
    """Returns all words, each after its head; fewer words if some heads form a cycle."""
    below: dict[int, list[int]] = {}
    for word, head in enumerate(heads):
        below.setdefault(head, []).append(word)
    order = list(below.get(-1, ()))
    for word in order:  # the list grows during the loop
        order += below.get(word, ())
    return order


def read_trees(
    file: str | Path,
    skip: Collection[str] = (),
    problems: Problems | None = None,
    max_bytes: int = MOST,
) -> list[DependencyTree]:
    """Reads all trees of a file. All wrong lines are reported in one error, or their sentences are
    left out."""
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{path} does not exist; give a CoNLL-U file")
    problems = problems if problems is not None else Problems()
    trees = [tree for tree in stream(path, problems, max_bytes) if tree is not None]
    problems.refuse(skip)
    if not trees:
        raise InputError(f"{path} holds no sentence with a tree")
    return trees


def stream(path: Path, problems: Problems, max_bytes: int) -> Iterator[DependencyTree | None]:
    lines: list[tuple[int, str]] = []
    for number, line in TextFile(path, str(path), problems, max_bytes=max_bytes).lines():
        if line.strip():
            if not line.startswith("#"):
                lines.append((number, line))
        elif lines:
            yield tree_of(lines, str(path), problems)
            lines = []
    if lines:
        yield tree_of(lines, str(path), problems)


def tree_of(lines: list[tuple[int, str]], name: str, problems: Problems) -> DependencyTree | None:
    """Parses one sentence. If a line is wrong, reports every wrong line and returns None."""
    rows: list[tuple[int, list[str]]] = []
    wrong: list[tuple[int, str, str]] = []
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) != COLUMNS:
            wrong.append((number, "ragged-line", f"{len(cells)} columns between tabs, not 10"))
        elif cells[0].replace("-", "").replace(".", "").isdecimal() and not cells[0].isdecimal():
            continue  # a word range, or an empty node
        else:
            rows.append((number, cells))
    count = len(rows)
    for place, (number, cells) in enumerate(rows, 1):
        if wrong:
            break  # after a wrong line the word numbers no longer fit
        if cells[0] != str(place):
            wrong.append((number, "malformed-record", f"the id is {cells[0]!r}, not {place}"))
        elif not cells[1]:
            wrong.append((number, "empty-text", "the word is empty"))
        elif not cells[6].isdecimal() or int(cells[6]) > count or cells[6] == cells[0]:
            trouble = (
                f"the head is {cells[6]!r}; it must be the number of another word, 0 to {count}"
            )
            wrong.append((number, "malformed-record", trouble))
    heads = () if wrong else tuple(int(cells[6]) - 1 for _, cells in rows)
    if not wrong and rows:
        roots = heads.count(-1)
        if roots != 1:
            wrong.append((rows[0][0], "contradiction", f"the sentence has {roots} roots, not 1"))
        elif len(from_the_root(heads)) != count:
            wrong.append((rows[0][0], "contradiction", "the heads of the sentence form a circle"))
    for number, kind, trouble in wrong:
        problems.add(FileLine(name, number), kind, f"{trouble}; the sentence is left out")
    if wrong or not rows:
        return None
    words, upos, xpos, relations = (
        tuple(cells[column] for _, cells in rows) for column in (1, 3, 4, 7)
    )
    return DependencyTree(words, heads, relations, upos, xpos, FileLine(name, rows[0][0]))
