"""Tiny corpora, written as the real ones are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from regard.data.corpus import Corpus, CorpusWriter, Special, write_marker

VOCABULARY = 40
SPECIAL = Special(
    end=1, pad=0, unknown=2, start=3, cls=4, sep=5, mask=6, sentinels=list(range(39, 29, -1))
)
FIRST, LAST = 7, 30  # ordinary ids: FIRST <= id < LAST

Documents = Sequence[Sequence[Sequence[int]]]  # of sentences of ids


def write_corpus(
    directory: Path,
    documents: Documents,
    *,
    vocab_size: int = VOCABULARY,
    special: Special = SPECIAL,
    kind: str = "text",
    splits: Sequence[str] = ("train", "valid", "test"),
    bytes_per_token: int = 3,
) -> Path:
    """The same documents in every split. An end token is put behind a document (pairs: behind both
    of its sentences) that has none.
    """
    directory.mkdir(parents=True, exist_ok=True)
    facts = {}
    for split in splits:
        writer = CorpusWriter(directory, split, "uint16")
        for document in documents:
            sentences = closed(document, special.end, kind)
            writer.add(sentences, bytes_per_token * sum(len(s) for s in sentences))
        facts[split] = writer.close()
    about = {"dtype": "uint16", "vocab_size": vocab_size, "special": asdict(special), "kind": kind}
    write_marker(directory, {**about, "splits": facts})
    return directory


def closed(document: Sequence[Sequence[int]], end: int, kind: str) -> list[list[int]]:
    sentences = [list(sentence) for sentence in document]
    for i in range(len(sentences)) if kind == "pairs" else [-1]:
        if not sentences[i] or sentences[i][-1] != end:
            sentences[i].append(end)
    return sentences


def open_corpus(directory: Path, split: str = "train") -> Corpus:
    return Corpus.open(directory, split)


def text_corpus(
    directory: Path, documents: Documents, split: str = "train", *, kind: str = "text"
) -> Corpus:
    """Written and opened, with the vocabulary and the special tokens of this file."""
    return open_corpus(write_corpus(directory, documents, kind=kind), split)


def random_documents(
    count: int,
    *,
    sentences: tuple[int, int] = (1, 4),  # from and including
    words: tuple[int, int] = (1, 9),
    seed: int = 0,
    alphabet: tuple[int, int] = (FIRST, LAST),  # without the second
) -> list[list[list[int]]]:
    draw = np.random.default_rng(seed)
    return [
        [
            draw.integers(*alphabet, size=draw.integers(words[0], words[1] + 1)).tolist()
            for _ in range(draw.integers(sentences[0], sentences[1] + 1))
        ]
        for _ in range(count)
    ]


def counting_documents(count: int, words: int, step: int = 1) -> list[list[list[int]]]:
    """Easy to learn: every id is the one before plus a step, round and round."""
    size = LAST - FIRST
    return [[[FIRST + (i + step * j) % size for j in range(words)]] for i in range(count)]
