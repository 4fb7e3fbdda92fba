"""Corpora for objectives that look at words and sentences: with a tokenizer, or with ids that say
where in the text they stand.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Fast
from tokenizers import models, pre_tokenizers

from regard.data.corpus import Corpus, Special
from regard.objectives.base import Batch, Objective
from tests.objectives.small import FIRST, VOCABULARY, open_corpus, write_corpus

NUMBERED = Special(end=1, pad=0, unknown=2, start=3, cls=4, sep=5, mask=6)


def pieces(vocab_size: int = VOCABULARY) -> list[str]:
    """Every third ordinary id goes on with the word before it."""
    return [f"▁w{i}" if i < FIRST or i % 3 else f"w{i}" for i in range(vocab_size)]


def with_tokenizer(directory: Path, entries: list[str]) -> Path:
    fast = Fast(models.Unigram([(piece, -1.0) for piece in entries], unk_id=2))
    fast.pre_tokenizer = pre_tokenizers.Metaspace()
    fast.save(str(directory / "tokenizer.json"))
    return directory


def spoken_corpus(
    directory: Path, documents: list[list[list[int]]], split: str = "train"
) -> Corpus:
    """The ids of `small`, and pieces for them."""
    return open_corpus(with_tokenizer(write_corpus(directory, documents), pieces()), split)


def numbered_corpus(directory: Path, sizes: list[list[int]]) -> Corpus:
    """Documents of sentences of these sizes; token number n of the split is FIRST + n, but for the
    end tokens.
    """
    at, documents = FIRST, []
    for document in sizes:
        ids = []
        for size in document:
            ids.append(list(range(at, at + size)))
            at += size
        ids[-1][-1] = NUMBERED.end
        documents.append(ids)
    write_corpus(directory, documents, vocab_size=at, special=NUMBERED, splits=["train"])
    return open_corpus(with_tokenizer(directory, pieces(at)))


def random_sizes(
    documents: int, sentences: tuple[int, int], words: tuple[int, int], seed: int = 0
) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [
        draw.integers(words[0], words[1] + 1, size=draw.integers(sentences[0], sentences[1] + 1))
        .clip(2)
        .tolist()
        for _ in range(documents)
    ]


def numbers(tokens: np.ndarray) -> list[int]:
    """Of a numbered corpus: where in the split the tokens stand."""
    return [int(token) - FIRST for token in tokens]


def batch_of(objective: Objective, indices: list[int], epoch: int = 0) -> Batch:
    return objective.collate([objective.sample(epoch, i) for i in indices])
