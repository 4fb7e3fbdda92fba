"""Span corruption: T5's counts, compositions and sentinels, to the letter."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import ConfigError, FormatError
from regard.core.seeding import keyed
from regard.data.corpus import Corpus
from regard.objectives.span import (
    SpanCorruption,
    composition,
    corrupt,
    counts_of,
    noise_mask,
    raw_length,
)
from tests.objectives.rules import (
    few,
    make,
    tiny,
    totals,
)
from tests.objectives.small import (
    SPECIAL,
    open_corpus,
    random_documents,
    text_corpus,
    write_corpus,
)
from tests.refusals import refuses


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return text_corpus(tmp_path_factory.mktemp("span"), random_documents(20, seed=5))


# -- counts


@pytest.mark.parametrize(
    ("seq_len", "raw", "target"), [(512, 568, 114), (128, 141, 29), (1024, 1137, 229)]
)
def test_published_lengths(seq_len: int, raw: int, target: int) -> None:
    assert raw_length(seq_len, 0.15, 3.0) == raw
    counts = counts_of(raw, 0.15, 3.0)
    assert (counts.source, counts.target) == (seq_len, target)


@few(200)
@given(st.integers(3, 3000))
def test_sources_are_exactly_as_long_as_asked(seq_len: int) -> None:
    raw = raw_length(seq_len, 0.15, 3.0)
    assert counts_of(raw, 0.15, 3.0).source == seq_len
    assert counts_of(raw + 1, 0.15, 3.0).source > seq_len


DENSITIES = st.floats(0.01, 0.9)
MEANS = st.floats(1.0, 10.0)


@few(200)
@given(st.integers(2, 700), DENSITIES, MEANS, st.integers(0, 99))
def test_masks(seq_len: int, density: float, mean: float, seed: int) -> None:
    gone = noise_mask(seq_len, density, mean, keyed(seed))
    assert len(gone) == seq_len
    assert gone.sum() == min(max(round(seq_len * density), 1), seq_len - 1)
    assert not gone[0] and gone[-1], "begins with what is kept, ends with what goes"
    spans = int((np.diff(gone.astype(int)) == 1).sum())
    expected = max(1, round(int(gone.sum()) / mean))
    assert spans == min(expected, int(gone.sum()), seq_len - int(gone.sum()))


@few(100)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 99))
def test_compositions(total: int, parts: int, seed: int) -> None:
    parts = min(parts, total)
    sizes = composition(total, parts, keyed(seed))
    assert len(sizes) == parts and sizes.sum() == total and (sizes >= 1).all()


def test_all_compositions_are_equally_likely() -> None:
    """7 in 3 parts: 15 ways; χ² of 14 degrees passes 36.1 once in a thousand."""
    draw = keyed(1, "composition")
    counts = Counter(tuple(composition(7, 3, draw).tolist()) for _ in range(6000))
    assert len(counts) == math.comb(6, 2)
    assert sum((n - 400) ** 2 / 400 for n in counts.values()) < 36.1


# -- source and target


def test_the_paper_s_example() -> None:
    """Figure 2: "Thank you <X> me to your party <Y> week", though there a sentinel closes the
    target, and here a last span is added, for a text always ends with one.
    """
    tokens = np.arange(10, 22)
    gone = np.zeros(12, bool)
    gone[[2, 3, 8, 11]] = True
    source, target = corrupt(tokens, gone, np.array([99, 98, 97, 96]), end=1)
    assert source.tolist() == [10, 11, 99, 14, 15, 16, 17, 98, 19, 20, 97, 1]
    assert target.tolist() == [99, 12, 13, 98, 18, 97, 21, 1]


def restore(source: np.ndarray, target: np.ndarray, sentinels: list[int]) -> list[int]:
    """The text again: each sentinel of the source gives way to what the target names after it."""
    spans: dict[int, list[int]] = {}
    for token in target[:-1].tolist():
        if token in sentinels:
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    whole: list[int] = []
    for token in source[:-1].tolist():
        whole += spans[token] if token in sentinels else [token]
    assert list(spans) == sentinels[: len(spans)] and all(spans.values())
    return whole


@few(40)
@given(st.integers(3, 60), st.floats(0.05, 0.5), st.integers(0, 99), st.booleans())
def test_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory,
    seq_len: int,
    density: float,
    seed: int,
    learning: bool,
) -> None:
    special = replace(SPECIAL, sentinels=list(range(99, 39, -1)))
    directory = tmp_path_factory.mktemp("t")
    documents = random_documents(1 + seed % 6, seed=seed)
    corpus = open_corpus(write_corpus(directory, documents, vocab_size=100, special=special))
    options: dict[str, Any] = {"density": density, "seed": seed, "learning": learning}
    objective = make(SpanCorruption, corpus, seq_len=seq_len, **options)
    whole = corpus.read(0, len(corpus)).tolist()
    restored: list[int] = []
    for i in range(len(objective)):
        source, target = objective.pair(1, i)
        assert source[-1] == target[-1] == SPECIAL.end
        assert len(source) <= seq_len
        if objective.sources_full:
            assert len(source) == objective.room.source
        text = restore(source, target, special.sentinels)
        assert len(text) == objective.raw
        restored += text
    if learning:
        assert not Counter(whole) - Counter(restored), "the last begins anew"
    else:
        count = len(objective) * objective.raw - len(whole)
        last = len(restored) - objective.raw
        assert restored[:last] + restored[last + count :] == whole, "the last ends with the split"


def test_default_shapes(tmp_path: Path) -> None:
    special = replace(SPECIAL, sentinels=list(range(199, 99, -1)))
    documents = random_documents(60, words=(9, 20), seed=2)
    corpus = open_corpus(write_corpus(tmp_path, documents, vocab_size=200, special=special))
    objective = make(SpanCorruption, corpus, seq_len=128)
    batch = objective.collate([objective.get(n) for n in range(3)])
    assert batch["source"].shape == (3, 128) and batch["target"].shape == (3, 29)
    assert batch["source_attention_mask"].all() and batch["target_scored"].all()


# -- models


def test_the_start_is_the_model_s_own(corpus: Corpus) -> None:
    objective = make(SpanCorruption, corpus, seq_len=20, learning=False)
    batch = objective.collate([objective.get(0)])
    nats = {
        start: float(objective.loss(tiny("t5", start_id=start).eval(), batch).sums["span"].detach())
        for start in (0, 3)
    }
    assert nats[0] != nats[3]


def test_z_loss(corpus: Corpus) -> None:
    model = tiny("t5", dtype=torch.float64)
    plain, extra = (make(SpanCorruption, corpus, seq_len=20, z_loss=z) for z in (0.0, 1e-2))
    batch = plain.collate([plain.get(n) for n in range(3)])
    hidden, targets, scored = plain.hidden(model, batch)
    log_z = model.logits(hidden).logsumexp(-1)[scored]
    gap = extra.loss(model, batch).sums["span"] - plain.loss(model, batch).sums["span"]
    torch.testing.assert_close(gap, 1e-2 * (log_z**2).sum())
    assert targets.shape == scored.shape
    still = make(SpanCorruption, corpus, seq_len=20, learning=False, z_loss=1e-2)
    bare = make(SpanCorruption, corpus, seq_len=20, learning=False)
    assert float(totals(still, model).sums["span"]) == float(totals(bare, model).sums["span"])


def test_a_split_shorter_than_a_sample(tmp_path: Path) -> None:
    """Its one text is shorter, and what fills the source is hidden from the model."""
    corpus = text_corpus(tmp_path, [[[7, 8, 9, 10, 11, 12]]])
    objective = make(SpanCorruption, corpus, seq_len=20, learning=False)
    assert len(objective) == 1 and not objective.sources_full
    model = tiny("t5", dtype=torch.float64).eval()
    batch = objective.collate([objective.get(0)])
    assert batch["source"].shape == (1, 20)
    source, target = (torch.tensor(part)[None] for part in objective.pair(0, 0))
    begun = torch.cat([torch.tensor([[0]]), target[:, :-1]], 1)
    log_p = model.logits(model(source, begun)).log_softmax(-1)
    expected = -float(log_p.gather(2, target[..., None]).sum().detach())
    assert float(objective.loss(model, batch).sums["span"].detach()) == pytest.approx(expected)


def test_refusals(corpus: Corpus, tmp_path: Path) -> None:
    with refuses(ConfigError, "LSTM", "both sides"):
        make(SpanCorruption, corpus, seq_len=20, both_sides=True).check(tiny("lstm"))
    with refuses(ConfigError, "64 positions"):
        make(SpanCorruption, corpus, seq_len=60).check(tiny("gpt"))
    few_sentinels = replace(SPECIAL, sentinels=[39])
    scarce = open_corpus(write_corpus(tmp_path, random_documents(9), special=few_sentinels))
    with refuses(FormatError, "1 sentinels"):
        make(SpanCorruption, scarce, seq_len=60)
    xl = tiny("transformer-xl", cutoffs=(10, 20), ratio=2)
    with refuses(ConfigError, "z_loss", "adaptive"):
        make(SpanCorruption, corpus, seq_len=20, z_loss=1e-4).check(xl)
