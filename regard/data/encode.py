"""Encodes sentences to token ids in batches and hands them to the writers of the splits."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Fast

from regard.core.errors import InputError
from regard.data.batch_encode import Joiner
from regard.data.chunks import Chunker, Chunking
from regard.data.corpus import SPLITS, CorpusWriter, Special
from regard.data.sample import size

BATCH = 2**20  # bytes of text in a batch
UNITS = 2**14  # sentences in a batch; the library needs about a kilobyte for each


@dataclass
class Batch:
    """A batch of sentences that are encoded together."""

    texts: list[str] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    ended: list[bool] = field(default_factory=list)  # whether the sentence gets the end token
    closing: list[bool] = field(default_factory=list)  # whether it is the last of its document
    sizes: list[list[int]] = field(default_factory=lambda: [[] for _ in SPLITS])
    bytes: int = 0


class WordCounter:
    """Counts the words of a text, which white space separates. The text may arrive in pieces, and a
    word may begin in one piece and end in another."""

    def __init__(self) -> None:
        self.inside = False  # whether the last piece ended inside of a word

    def __call__(self, piece: str) -> int:
        if not piece:
            return 0
        continued = self.inside and not piece[0].isspace()
        self.inside = not piece[-1].isspace()
        return len(piece.split()) - continued

    def close(self) -> None:
        self.inside = False


class DocumentEncoder:
    """Encodes documents that arrive sentence by sentence; sentence ends are exact token boundaries.

    A special token that the text happens to spell is text: only the program adds special tokens.
    The library encodes one batch (on all cores) while the next one is read and the previous one is
    written.
    """

    def __init__(
        self, fast: Fast, special: Special, directory: Path, dtype: str, chunking: Chunking
    ) -> None:
        fast.encode_special_tokens = True
        self.fast, self.special, self.dtype = fast, special, np.dtype(dtype)
        self.writers = [CorpusWriter(directory, split, dtype) for split in SPLITS]
        self.chunkers = (
            [Chunker(chunking, special.end) for _ in SPLITS] if chunking.kind != "none" else []
        )
        self.joiner = Joiner.of(fast)
        self.unknown = np.zeros(len(SPLITS), np.int64)
        self.words = WordCounter()
        self.word_counts = [0] * len(SPLITS)
        self.length = 0  # bytes of the open document
        self.batch = Batch()
        self.pool = ThreadPoolExecutor(1)
        self.running: tuple[Batch, Future[list[Any]]] | None = None

    def __enter__(self) -> DocumentEncoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def add(
        self, sentences: list[str], split: int, length: int, *, closes: bool, pair: bool = False
    ) -> None:
        """Adds the next sentences of a document and their bytes. Both sentences of a pair get the
        end token; in a document only the last sentence does."""
        if closes and not sentences:
            sentences = [""]
        self.length += length
        self.batch.bytes += length
        for sentence in sentences:
            self.word_counts[split] += self.words(sentence)
            if pair:
                self.words.close()
        if closes:
            self.words.close()
        for start in range(0, len(sentences), UNITS):
            part = sentences[start : start + UNITS]
            batch, last = self.batch, [False] * len(part)
            if closes and start + UNITS >= len(sentences):
                last[-1] = True
                batch.sizes[split].append(self.length)
                self.length = 0
            batch.texts += part
            batch.splits += [split] * len(part)
            batch.ended += [True] * len(part) if pair else last
            batch.closing += last
            if batch.bytes >= BATCH or len(batch.texts) >= UNITS:
                self.flush()

    def flush(self) -> None:
        """Starts to encode the current batch, then writes the batch before it."""
        batch, self.batch = self.batch, Batch()
        before = self.running
        texts = batch.texts if self.joiner is None else self.joiner.join(batch.texts)
        self.running = batch, self.pool.submit(self.encode, texts)
        if before is not None:
            self.write(*before)

    def encode(self, texts: list[str]) -> list[Any]:
        try:
            encodings: list[Any] = self.fast.encode_batch_fast(texts, add_special_tokens=False)
            return encodings
        except Exception as error:
            raise InputError(f"the tokenizer cannot encode this text: {error}") from None

    def write(self, batch: Batch, future: Future[list[Any]]) -> None:
        ids, lengths = self.flat(future.result())
        if self.joiner is not None:
            joined = self.joiner.lengths(ids, batch.texts)
            if joined is None:
                ids, lengths = self.flat(self.encode(batch.texts))
            else:
                lengths = joined
        if self.special.unknown is not None:
            places = np.flatnonzero(ids == self.special.unknown)
            rows = np.searchsorted(np.cumsum(lengths), places, "right")
            self.unknown += np.bincount(np.array(batch.splits, int)[rows], minlength=len(SPLITS))
        if self.chunkers:
            self.write_chunks(batch, ids, lengths)
        else:
            self.write_documents(batch, ids, lengths)

    def flat(self, encodings: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Returns all ids in a row, and the number of ids of each text."""
        lists = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        return np.fromiter(chain.from_iterable(lists), self.dtype, int(lengths.sum())), lengths

    def write_documents(self, batch: Batch, ids: np.ndarray, lengths: np.ndarray) -> None:
        ended, closing = np.array(batch.ended), np.array(batch.closing)
        ids = np.insert(ids, np.cumsum(lengths)[ended], self.special.end)
        lengths = lengths + ended
        splits = np.array(batch.splits)
        for split, writer in enumerate(self.writers):
            mine = splits == split
            if mine.all():
                writer.extend(ids, lengths, closing, batch.sizes[split])
            elif mine.any():
                tokens = ids[np.repeat(mine, lengths)]
                writer.extend(tokens, lengths[mine], closing[mine], batch.sizes[split])

    def write_chunks(self, batch: Batch, ids: np.ndarray, lengths: np.ndarray) -> None:
        start = 0
        for text, split, closes, length in zip(
            batch.texts, batch.splits, batch.closing, lengths.tolist(), strict=True
        ):
            sentence = ids[start : start + length]
            start += length
            for sentences, bytes_ in self.chunkers[split].add(sentence, size(text), closes=closes):
                self.writers[split].add(sentences, bytes_)

    def close(self) -> dict[str, dict[str, Any]]:
        """Writes the remaining batches and returns the facts of each split for data.json."""
        if self.batch.texts:
            self.flush()
        if self.running is not None:
            self.write(*self.running)
        facts = {}
        for split, writer in enumerate(self.writers):
            writer.words = self.word_counts[split]
            facts[SPLITS[split]] = {**writer.close(), "unknown": int(self.unknown[split])}
            if self.chunkers:
                facts[SPLITS[split]]["repeated"] = self.chunkers[split].repeated
        return facts
