"""Prepared text: token ids in memory-mapped shards, and the ends of documents and sentences.

A data directory holds, for each split, `<split>-00000.tokens` and so on (ids of 16 or 32 bits,
little-endian, one document after the other, each closed by the end token), the boundaries of
documents and of sentences (64-bit token positions, beginning with 0), and the number of bytes of
text of each document. The tokenizer stands beside them, and `data.json`, which is written last and
holds the checksum (CRC-32) of each of these files.

Pairs (a source and its target) are documents of exactly two sentences.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.core.errors import FormatError, UnknownName
from regard.core.files import check_kinds, naming, open_new, read_json, recover, write_json
from regard.core.tables import brief, from_table
from regard.data.tokenizer import Tokenizer

FORMAT = 1
MARKER = "data.json"
SHARD = 2**27  # tokens in a shard
PIECE = 2**22  # bytes that are read at a time
SPLITS = ("train", "valid", "test")
MARKER_KINDS: dict[str, Any] = {
    "kind": Literal["text", "pairs"] | None,
    "vocab_size": int,
    "dtype": Literal["uint16", "uint32"],
    "special": dict[str, Any],
    "splits": dict[str, dict[str, Any]],
}
SPLIT_KINDS: dict[str, Any] = {
    "documents": int, "sentences": int, "tokens": int, "bytes": int, "shards": list[int],
    "checksums": dict[str, str] | None, "words": int | None,
}  # fmt: skip
ROLES = ("end", "pad", "unknown", "start", "cls", "sep", "mask")


@dataclass
class Special:
    """The ids of the special tokens; None if the tokenizer has no such token."""

    end: int  # closes every document
    pad: int | None = None
    unknown: int | None = None
    start: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    sentinels: list[int] = field(default_factory=list)  # T5's <extra_id_0>, <extra_id_1>, …

    def need(self, role: str) -> int:
        """Returns the id of a special token that the caller cannot do without."""
        token = getattr(self, role)
        if token is None:
            raise FormatError(
                f"the tokenizer of this data has no token for {role!r}; prepare the text with a "
                "tokenizer that has one (those that 'regard prepare' trains do)"
            )
        return int(token)

    def ids(self) -> list[int]:
        """Returns the ids of all special tokens in ascending order."""
        named = [getattr(self, role) for role in ROLES]
        return sorted({i for i in [*named, *self.sentinels] if i is not None})


class ShardFile:
    """A new file of a split. Its checksum is computed while it is written."""

    def __init__(self, path: Path) -> None:
        self.name, self.checksum = path.name, 0
        self.file = open_new(path)

    def write(self, content: bytes) -> None:
        self.file.write(content)
        self.checksum = zlib.crc32(content, self.checksum)

    def finish(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()


class CorpusWriter:
    """Appends documents to one split."""

    def __init__(self, directory: Path, split: str, dtype: str) -> None:
        self.directory, self.split = directory, split
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.shards: list[int] = []
        self.tokens = self.documents = self.sentences = self.bytes = 0
        self.words: int | None = None  # of the source text, between white space; None: not counted
        self.inside = False  # whether the document continues with the next `extend`
        self.out: ShardFile | None = None
        self.checksums: dict[str, str] = {}
        self.lists = {
            name: ShardFile(directory / f"{split}.{name}")
            for name in ("documents", "sentences", "bytes")
        }
        for name in ("documents", "sentences"):
            self.lists[name].write(bytes(8))

    def add(self, sentences: Iterable[Sequence[int] | np.ndarray], size: int) -> None:
        """Appends one document: the ids of its sentences (the last ends with the end token), its
        bytes."""
        rows = [np.asarray(sentence, self.dtype) for sentence in sentences]
        closing = np.zeros(len(rows), bool)
        closing[-1] = True
        self.extend(np.concatenate(rows), np.array(list(map(len, rows))), closing, [size])

    def extend(
        self, ids: np.ndarray, lengths: np.ndarray, closing: np.ndarray, sizes: Sequence[int]
    ) -> None:
        """Appends many sentences at once; `ids` holds the ids of all of them in a row.

        `closing` marks the sentences that end a document, whose bytes are in `sizes`; a document
        may continue with the next call.
        """
        if self.out is None or (self.shards[-1] >= SHARD and not self.inside):
            self.next_shard()
        assert self.out is not None
        self.out.write(np.asarray(ids, self.dtype).tobytes())
        ends = self.tokens + np.cumsum(lengths)
        self.tokens += len(ids)
        self.shards[-1] += len(ids)
        nonempty = ends[lengths > 0]
        self.lists["sentences"].write(nonempty.astype("<i8").tobytes())
        self.lists["documents"].write(ends[closing].astype("<i8").tobytes())
        self.lists["bytes"].write(np.asarray(sizes, "<i8").tobytes())
        self.documents += len(sizes)
        self.sentences += len(nonempty)
        self.bytes += sum(sizes)
        self.inside = bool(len(closing)) and not closing[-1]

    def next_shard(self) -> None:
        if self.out is not None:
            self.finish(self.out)
        name = f"{self.split}-{len(self.shards):05d}.tokens"
        self.out = ShardFile(self.directory / name)
        self.shards.append(0)

    def close(self) -> dict[str, Any]:
        """Flushes everything to disk and returns the facts of this split for data.json."""
        if self.out is None:
            self.next_shard()
        assert self.out is not None
        for file in (self.out, *self.lists.values()):
            self.finish(file)
        return {
            "documents": self.documents,
            "sentences": self.sentences,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "words": self.words,
            "shards": self.shards,
            "checksums": self.checksums,
        }

    def finish(self, file: ShardFile) -> None:
        file.finish()
        self.checksums[file.name] = f"{file.checksum:08x}"


def write_marker(directory: Path, facts: dict[str, Any]) -> None:
    """Writes data.json last and atomically: a directory without it is not finished."""
    write_json(directory / MARKER, {"format": FORMAT, **facts})


class Corpus:
    """One split of a data directory, memory-mapped.

    >>> corpus = Corpus.open("data", "train")
    >>> corpus.read(0, 512)  # int64 ids
    """

    def __init__(self, directory: Path, split: str, facts: dict[str, Any]) -> None:
        self.directory, self.split, self.facts = directory, split, facts
        about = facts["splits"][split]
        self.vocab_size: int = facts["vocab_size"]
        self.special = Special(**facts["special"])
        self.kind: str = facts.get("kind", "text")  # or "pairs"
        dtype = np.dtype(facts["dtype"]).newbyteorder("<")
        self.shards = [
            mapped(directory / f"{split}-{i:05d}.tokens", dtype, count)
            for i, count in enumerate(about["shards"])
        ]
        self.starts = [0, *accumulate(about["shards"])]
        self.documents = mapped(directory / f"{split}.documents", "<i8", about["documents"] + 1)
        self.sentences = mapped(directory / f"{split}.sentences", "<i8", about["sentences"] + 1)
        self.document_bytes = mapped(directory / f"{split}.bytes", "<i8", about["documents"])
        self.bytes: int = about["bytes"]

    @classmethod
    def open(cls, path: str | os.PathLike[str], split: str) -> Corpus:
        directory = Path(path)
        facts = read_marker(directory)
        if split not in facts["splits"]:
            raise UnknownName("split", split, facts["splits"], f"(of {directory})")
        return cls(directory, split, facts)

    @property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.open(self.directory)
        if tokenizer is None:
            raise FormatError(f"{self.directory} has no tokenizer; prepare the text again")
        return tokenizer

    def __len__(self) -> int:
        """Returns the number of tokens."""
        return self.starts[-1]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Returns the ids from start to stop as int64."""
        start, stop = max(0, start), min(stop, len(self))
        parts = []
        while start < stop:
            shard = bisect_right(self.starts, start) - 1
            end = min(stop, self.starts[shard + 1])
            parts.append(self.shards[shard][start - self.starts[shard] : end - self.starts[shard]])
            start = end
        return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

    def document(self, index: int) -> np.ndarray:
        """Returns the ids of one document, with its end token."""
        return self.read(int(self.documents[index]), int(self.documents[index + 1]))

    def sentences_of(self, index: int) -> np.ndarray:
        """Returns the boundaries of a document's sentences, from its first token to behind its
        last."""
        first, last = np.searchsorted(self.sentences, self.documents[index : index + 2])
        return np.asarray(self.sentences[first : last + 1])


def mapped(file: Path, dtype: Any, count: int) -> np.ndarray:
    """Returns a file as a memory-mapped array."""
    expected = count * np.dtype(dtype).itemsize
    size = file.stat().st_size if file.is_file() else -1
    if size != expected:
        state = "is missing" if size < 0 else f"has {size:,} bytes instead of {expected:,}"
        raise FormatError(f"{file} {state}; prepare the text again")
    if count == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(file, dtype, "r", shape=(count,))


def damaged_files(directory: Path) -> list[str] | None:
    """Returns the names of the files of a data directory whose content is not what was prepared, or
    None if the directory has no checksums: an older version made it."""
    splits = read_marker(directory)["splits"].values()
    listed = [split.get("checksums") for split in splits]
    if None in listed:
        return None
    return [
        name
        for checksums in listed
        for name, checksum in checksums.items()
        if checksum_of(directory / name) != checksum
    ]


def checksum_of(file: Path) -> str:
    """Returns the CRC-32 of a file, or "" if there is no such file."""
    if not file.is_file():
        return ""
    checksum = 0
    with file.open("rb") as handle:
        while piece := handle.read(PIECE):
            checksum = zlib.crc32(piece, checksum)
    return f"{checksum:08x}"


def advice_for(directory: Path) -> str:
    """Says how data are made: from a source that was given in their place, or anew."""
    if ":" in str(directory):
        return f"first run: regard prepare {directory} --out DATA, then give DATA"
    return f"make it with 'regard prepare SOURCE --out {directory}'"


def read_marker(directory: Path) -> dict[str, Any]:
    recover(directory)
    file = directory / MARKER
    if directory.is_file():
        raise FormatError(
            f"{directory} is a file, not a directory of prepared text; first run: regard prepare "
            f"{directory} --out DATA (with --pairs for sources and targets), then give DATA"
        )
    advice = "prepare the text again"
    facts = read_json(file, error=FormatError, advice=advice)
    if facts is None:
        raise FormatError(
            f"{directory} has no {MARKER}, so it is not prepared text (or it is not finished); "
            + advice_for(directory)
        )
    if facts.get("format") != FORMAT:
        raise FormatError(
            f"{file} has format {brief(facts.get('format'))}, but this version reads format "
            f"{FORMAT}; {advice}"
        )
    check_kinds(facts, MARKER_KINDS, str(file), error=FormatError, advice=advice)
    for name, split in facts["splits"].items():
        where = f"the split {name!r} in {file}"
        check_kinds(split, SPLIT_KINDS, where, error=FormatError, advice=advice)
    with naming(file):
        special = from_table(Special, facts["special"])
    if not all(0 <= i < facts["vocab_size"] for i in special.ids()):
        raise FormatError(f"a special token in {file} is outside the vocabulary; {advice}")
    return facts
