"""Cuts long documents into chunks, each closed by the end token.

`fixed` puts chunks one after the other. `overlapping` begins each chunk with the last tokens of the
chunk before. `sentences` cuts at the last sentence boundary that fits. A document's bytes are
distributed over its chunks by tokens; a repeated token brings none, so bytes are never counted
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from regard.core.errors import InputError, UnknownName
from regard.core.options import Option

KINDS = ("none", "fixed", "overlapping", "sentences")

Part = tuple[np.ndarray, int]  # the tokens of one sentence, and the bytes of its text
Chunk = tuple[list[np.ndarray], int]


@dataclass(frozen=True)
class Chunking:
    kind: Annotated[
        Literal["none", "fixed", "overlapping", "sentences"],
        Option("How long documents are cut into chunks.", "--chunk"),
    ] = "none"
    length: Annotated[
        int, Option("The tokens of a chunk, with its end token.", "--chunk-length", "N")
    ] = 512
    overlap: Annotated[int, Option("The tokens that two chunks share.", metavar="N")] = 64

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownName("choice for --chunk", self.kind, KINDS)
        if self.length < 2:
            raise InputError(f"--chunk-length {self.length} is too short; give 2 or more")
        if self.kind == "overlapping" and not 0 < self.overlap < self.length - 1:
            raise InputError(
                f"--overlap {self.overlap} must be at least 1 and leave room in chunks of "
                f"{self.length} tokens (at most {self.length - 2})"
            )


@dataclass
class Chunker:
    """Cuts the documents of one split, which arrive sentence by sentence."""

    chunking: Chunking
    end: int
    repeated: int = 0  # tokens that are in two chunks
    parts: list[Part] = field(default_factory=list)
    count: int = 0  # tokens in `parts`
    old: int = 0  # how many of these tokens are repeated ones

    @property
    def room(self) -> int:
        return self.chunking.length - 1

    def add(self, ids: np.ndarray, size: int, *, closes: bool) -> Iterator[Chunk]:
        if self.chunking.kind == "sentences" and self.count and self.count + len(ids) > self.room:
            yield self.closed()
        if len(ids) or size:
            self.parts.append((ids, size))
            self.count += len(ids)
        while self.count > self.room:
            yield self.first()
        if closes:
            if self.count > self.old or not self.count:
                yield self.closed()
            self.parts, self.count, self.old = [], 0, 0

    def first(self) -> Chunk:
        """Returns a chunk of as many tokens as fit; the tokens after them stay in `parts`."""
        rest, self.parts = self.parts, []
        self.count = 0
        while rest and self.count < self.room:
            (ids, size), room = rest.pop(0), self.room - self.count
            if len(ids) > room:
                left = round(size * room / len(ids))
                rest.insert(0, (ids[room:], size - left))
                ids, size = ids[:room], left
            self.parts.append((ids, size))
            self.count += len(ids)
        again: list[Part] = []
        if self.chunking.kind == "overlapping":
            tail = np.concatenate([ids for ids, _ in self.parts])[-self.chunking.overlap :]
            again = [(tail, 0)]
        chunk = self.closed()
        self.parts = again + rest
        self.count = sum(len(ids) for ids, _ in self.parts)
        self.old = sum(len(ids) for ids, _ in again)
        self.repeated += self.old
        return chunk

    def closed(self) -> Chunk:
        ids = [ids for ids, _ in self.parts if len(ids)]
        closing = np.array([self.end], ids[-1].dtype if ids else np.int64)
        ids = [*ids[:-1], np.concatenate([*ids[-1:], closing])]
        chunk = ids, sum(size for _, size in self.parts)
        self.parts, self.count, self.old = [], 0, 0
        return chunk
