"""The second part of a text from its first, which is seen from both sides."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.core.errors import ConfigError, InputError
from regard.data.corpus import Corpus
from regard.objectives.causal import CausalObjective, ChunkTiling
from regard.objectives.prefix import Prefix
from tests.objectives.rules import (
    few,
    make,
    tiny,
    totals,
)
from tests.objectives.small import random_documents, text_corpus
from tests.refusals import refuses


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return text_corpus(tmp_path_factory.mktemp("prefix"), random_documents(12, seed=5))


# -- GPT with a prefix


def dependencies(model: Any, tokens: Tensor, prefix: Tensor) -> Tensor:
    """Which tokens [T, T] each row depends on, found by changing them one by one."""
    with torch.no_grad():
        base = model(tokens, prefix=prefix)[0]
        columns = []
        for key in range(tokens.size(1)):
            other = tokens.clone()
            other[0, key] = (other[0, key] + 1) % 40
            columns.append((model(other, prefix=prefix)[0] != base).any(-1))
    return torch.stack(columns, 1)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("own", [0, 1, 2, 5, 7, 9])
def test_who_sees_whom(own: int, norm: str) -> None:
    model = tiny("gpt", dtype=torch.float64, norm=norm).eval()
    tokens, prefix = torch.arange(7)[None] * 5, torch.tensor([own])
    row, key = torch.arange(7)[:, None], torch.arange(7)
    expected = (key <= row) | ((row < own) & (key < own))
    assert torch.equal(dependencies(model, tokens, prefix), expected)
    if own <= 1:
        torch.testing.assert_close(model(tokens, prefix=prefix), model(tokens))


@few(15)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 10)), min_size=1, max_size=3),
    st.integers(0, 2),
    st.booleans(),
)
def test_padding_never_matters(texts: list[tuple[int, int]], extra: int, left: bool) -> None:
    """The prefix counts real tokens, on whichever side the padding stands."""
    model = tiny("gpt", dtype=torch.float64).eval()
    width = max(seq_len for seq_len, _ in texts) + extra
    tokens = torch.randint(40, (len(texts), width), generator=torch.Generator().manual_seed(width))
    attention_mask = torch.zeros(len(texts), width, dtype=torch.bool)
    for i, (seq_len, _) in enumerate(texts):
        attention_mask[i, slice(width - seq_len, None) if left else slice(seq_len)] = True
    prefix = torch.tensor([own for _, own in texts])
    hidden = model(tokens, attention_mask, prefix=prefix)
    for i in range(len(texts)):
        expected = model(tokens[i, attention_mask[i]][None], prefix=prefix[i : i + 1])
        torch.testing.assert_close(hidden[i, attention_mask[i]], expected[0])


def test_what_follows_a_prefix_can_be_cached() -> None:
    model = tiny("gpt", dtype=torch.float64).eval()
    tokens, prefix = torch.arange(9)[None].repeat(2, 1), torch.tensor([4, 2])
    state = model.start(2, 9)
    parts = [model(tokens[:, :4], state=state, prefix=prefix)]
    parts += [model(tokens[:, i : i + 1], state=state) for i in range(4, 9)]
    torch.testing.assert_close(torch.cat(parts, 1), model(tokens, prefix=prefix))


def test_a_band_has_no_prefix(corpus: Corpus) -> None:
    model = tiny("gpt", band=4)
    with refuses(InputError, "GPT", "band of 4"):
        model(torch.zeros(1, 3, dtype=torch.long), prefix=torch.tensor([2]))
    with refuses(ConfigError, "GPT", "band"):
        make(Prefix, corpus).check(model)


# -- the objective


@few(20)
@given(st.integers(1, 12), st.integers(0, 99), st.sampled_from(["packed", "separate"]))
def test_every_chunk_is_split_somewhere(
    tmp_path_factory: pytest.TempPathFactory, seq_len: int, seed: int, documents: str
) -> None:
    corpus = text_corpus(tmp_path_factory.mktemp("t"), random_documents(1 + seed % 4, seed=seed))
    options = {"documents": documents, "seed": seed, "seq_len": seq_len}
    objective = make(Prefix, corpus, learning=False, **options)
    tiles = ChunkTiling(corpus, seq_len, 0, packed=documents == "packed")
    assert len(objective) == len(tiles)
    for i in range(len(objective)):
        source, target = objective.pair(0, i)
        chunk = tiles.chunk(i)
        assert len(source) >= 1 and len(target) >= 1
        assert np.concatenate([source, target]).tolist() == chunk.tokens[: chunk.real].tolist()


def test_all_points_are_equally_likely(corpus: Corpus) -> None:
    """χ² over 6 points; 20.5 is passed once in a thousand."""
    objective = make(Prefix, corpus, seq_len=6)
    last = len(objective) - 1
    counts = Counter(len(objective.pair(e, i)[0]) for e in range(200) for i in range(last))
    assert sorted(counts) == [1, 2, 3, 4, 5, 6]
    mean = counts.total() / 6
    assert sum((n - mean) ** 2 / mean for n in counts.values()) < 20.5


def test_figures(corpus: Corpus) -> None:
    model, objective = tiny("gpt").eval(), make(Prefix, corpus, learning=False)
    summed = totals(objective, model)
    figures = objective.measure(summed)
    mean = float(summed.sums["prefix"]) / summed.counts["prefix"]
    assert figures["perplexity"] == pytest.approx(math.exp(mean))
    bits = mean * len(corpus) / corpus.bytes / math.log(2)
    assert figures["bits_per_byte"] == pytest.approx(bits)


def test_a_row_that_does_not_fit_is_refused(corpus: Corpus) -> None:
    with refuses(ConfigError, "65 rows", "64 positions"):
        make(Prefix, corpus, seq_len=65).check(tiny("gpt"))
    for kind in (CausalObjective, Prefix):
        make(kind, corpus, seq_len=64).check(tiny("gpt"))
