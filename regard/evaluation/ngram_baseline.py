"""Measures an n-gram on prepared text: the figures that a neural model has to beat."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.data.corpus import Corpus
from regard.evaluation.ngram import Ngram, Report

CHUNK = 2**19  # the number of tokens scored at once


def count(
    data: str | os.PathLike[str],
    order: int = 5,
    tokens: int | None = None,
    report: Report | None = None,
) -> Ngram:
    """Trains an n-gram on the training text of a data directory, or on its first tokens."""
    corpus = Corpus.open(data, "train")
    if tokens is not None and not 0 < tokens <= len(corpus):
        raise InputError(
            f"{tokens:,} tokens cannot be counted; the training text of {data} has "
            f"{len(corpus):,}: choose 1 to {len(corpus):,}"
        )
    if len(corpus) == 0:
        raise InputError(f"the training text of {data} is empty; prepare a longer text")
    ids = corpus.read(0, len(corpus) if tokens is None else tokens)
    return Ngram.train(ids, order, corpus.vocab_size, corpus.special.end, report)


def score(model: Ngram, corpus: Corpus, report: Report | None = None) -> np.ndarray:
    """Returns the nats of a whole split, under each order from 1 on: [order].

    Every token is scored once, given all that precedes it in its document; the first token given
    the end token. Therefore bits per byte can be compared with those of a neural model that reads
    whole documents.
    """
    if (model.vocab_size, model.end) != (corpus.vocab_size, corpus.special.end):
        raise InputError(
            f"the n-gram has {model.vocab_size:,} tokens and the end token {model.end}; "
            f"{corpus.directory} has {corpus.vocab_size:,} and {corpus.special.end}: "
            "count the n-grams of this data"
        )
    if len(corpus) == 0 or corpus.bytes == 0:
        raise InputError(f"the split {corpus.split!r} of {corpus.directory} is empty")
    nats = np.zeros(model.order)
    for start in range(0, len(corpus), CHUNK):
        if report is not None:
            report(f"scoring token {start:,} of {len(corpus):,}")
        before = corpus.read(start - model.order + 1, start)
        nats += model.surprisals(corpus.read(start, start + CHUNK), before).sum(1)
    return nats


def document_nats(model: Ngram, corpus: Corpus) -> np.ndarray:
    """Returns the nats of every document of a split under the highest order: [documents]."""
    edges = np.asarray(corpus.documents)
    nats = np.zeros(len(edges) - 1)
    for start in range(0, len(corpus), CHUNK):
        before = corpus.read(start - model.order + 1, start)
        each = model.surprisals(corpus.read(start, start + CHUNK), before)[-1]
        documents = np.searchsorted(edges, np.arange(start, start + len(each)), "right") - 1
        nats += np.bincount(documents, each, len(nats))
    return nats


def figures(nats: float, tokens: int, size: int) -> dict[str, float]:
    """Returns the perplexity per token and the bits per byte of a text that costs `nats`."""
    return {
        "perplexity": math.exp(nats / tokens),
        "bits_per_byte": nats / math.log(2) / size,
    }


def measure(
    model: Ngram, data: str | os.PathLike[str], split: str = "valid", report: Report | None = None
) -> dict[str, Any]:
    """Returns all figures of an n-gram on one split. It writes no file."""
    corpus = Corpus.open(data, split)
    began = time.perf_counter()
    nats = score(model, corpus, report)
    seconds = time.perf_counter() - began
    orders = [
        {
            "order": n,
            **figures(float(nats[n - 1]), len(corpus), corpus.bytes),
            "ngrams": int(np.count_nonzero(level.top.counts)),
            "discounts": level.top.discounts[1:].tolist(),
            "fallback": level.top.fallback,
        }
        for n, level in enumerate(model.levels, 1)
    ]
    return {
        "smoothing": "modified Kneser-Ney",
        "order": model.order,
        "training_tokens": model.tokens,
        "vocab_size": model.vocab_size,
        "split": split,
        "tokens": len(corpus),
        "bytes": corpus.bytes,
        "nats": float(nats[-1]),
        **figures(float(nats[-1]), len(corpus), corpus.bytes),
        "size": model.nbytes,
        "seconds": {"counting": model.seconds, "scoring": seconds},
        "orders": orders,
    }
