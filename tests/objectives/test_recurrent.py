"""Contiguous streams whose memory goes along, in learning and in validation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.core.errors import ConfigError
from regard.data.corpus import Corpus
from regard.objectives.causal import CausalObjective
from regard.objectives.recurrent import Recurrent
from tests.objectives.rules import (
    few,
    make,
    tiny,
    totals,
)
from tests.objectives.small import SPECIAL, random_documents, text_corpus
from tests.refusals import refuses

READERS = ["transformer-xl", "xlnet", "lstm"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return text_corpus(tmp_path_factory.mktemp("recurrent"), random_documents(8, seed=5))


@few(25)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99), st.booleans())
def test_streams_are_contiguous_and_whole(
    tmp_path_factory: pytest.TempPathFactory, seq_len: int, batch: int, seed: int, learning: bool
) -> None:
    corpus = text_corpus(tmp_path_factory.mktemp("t"), random_documents(1 + seed % 4, seed=seed))
    objective = make(
        Recurrent, corpus, seq_len=seq_len, batch_size=batch, learning=learning, seed=seed
    )
    assert len(objective) % batch == 0, "an epoch begins with a step"
    for epoch in range(2):
        streams: list[list[int]] = [[] for _ in range(batch)]
        inputs: list[list[int]] = [[] for _ in range(batch)]
        for n in range(len(objective)):
            s = objective.sample(epoch, n)
            assert s["tokens"].shape == s["targets"].shape == (seq_len,)
            count = int(s["scored"].sum())
            assert s["scored"][:count].all(), "padding comes last"
            streams[n % batch] += s["targets"][:count].tolist()
            inputs[n % batch] += s["tokens"][:count].tolist()
        joined = np.concatenate(streams)
        whole = corpus.read(0, len(corpus))
        start = next(i for i in range(len(whole)) if np.array_equal(np.roll(whole, -i), joined))
        assert learning or start == 0
        before = np.roll(np.roll(whole, -start), 1)
        assert np.array_equal(np.concatenate(inputs), before), "the token before is the input"
        assert max(map(len, streams)) == -(-len(whole) // batch)


def test_the_order_of_a_step_is_that_of_its_streams(corpus: Corpus) -> None:
    objective = make(Recurrent, corpus, batch_size=3, shift=False)
    for n in range(len(objective) - 3):
        now, after = objective.get(n), objective.get(n + 3)
        if after["scored"].any():
            assert after["tokens"][0] == now["targets"][-1]


def nats(objective: Any, model: Any) -> float:
    return float(totals(objective, model).sums["recurrent"])


@pytest.mark.parametrize("family", READERS)
@pytest.mark.parametrize("seq_len", [1, 3, 8])
def test_with_a_long_memory_segments_are_one_long_pass(
    family: str, seq_len: int, corpus: Corpus
) -> None:
    """One stream, everything remembered: the guesses are those of a single pass."""
    model = tiny(family, dtype=torch.float64).eval()
    memory = {} if family == "lstm" else {"evaluation_mem_len": 10_000}
    objective = make(Recurrent, corpus, seq_len=seq_len, batch_size=1, learning=False, **memory)
    whole = make(CausalObjective, corpus, seq_len=len(corpus), batch_size=1, learning=False)
    total, expected = nats(objective, model), float(totals(whole, model).sums["causal"])
    assert total == pytest.approx(expected, rel=1e-12)


def test_memory_matters_and_is_given_back(corpus: Corpus) -> None:
    model = tiny("transformer-xl").eval()
    own = model.config
    by_memory = {
        memory: nats(make(Recurrent, corpus, learning=False, evaluation_mem_len=memory), model)
        for memory in (None, 0, 8, 50)
    }
    assert model.config is own
    assert by_memory[None] == by_memory[8], "8 is its own"
    assert len({by_memory[0], by_memory[8], by_memory[50]}) == 3
    none = make(CausalObjective, corpus, learning=False, documents="packed")
    streams = make(Recurrent, corpus, batch_size=1, learning=False, evaluation_mem_len=0)
    assert nats(streams, model) == pytest.approx(float(totals(none, model).sums["causal"]))
    clamped = make(Recurrent, corpus, learning=False, evaluation_mem_len=50, evaluation_clamp_len=3)
    assert nats(clamped, model) != by_memory[50]
    learning = make(Recurrent, corpus, evaluation_mem_len=0)
    state = learning.begin(model, 4)
    learning.loss(model, learning.collate([learning.get(n) for n in range(4)]), state)
    assert state.hidden[0].size(1) == 8, "options of validation change nothing in learning"


def test_another_length_in_validation(corpus: Corpus) -> None:
    objective = make(Recurrent, corpus, learning=False, evaluation_length=5)
    assert objective.seq_len == 5 and objective.sample(0, 0)["tokens"].shape == (5,)
    assert make(Recurrent, corpus, evaluation_length=5).seq_len == 8
    model = tiny("lstm").eval()
    other = make(Recurrent, corpus, learning=False)
    assert nats(objective, model) == pytest.approx(nats(other, model), rel=1e-5)


def test_every_token_counts_in_the_figures(corpus: Corpus) -> None:
    model, objective = tiny("lstm").eval(), make(Recurrent, corpus, batch_size=3, learning=False)
    summed = totals(objective, model)
    assert summed.counts == {"recurrent": len(corpus)}
    figures = objective.measure(summed)
    assert list(figures) == ["bits_per_byte", "perplexity"]
    bits = float(summed.sums["recurrent"]) / math.log(2) / corpus.bytes
    assert figures["bits_per_byte"] == pytest.approx(bits)


@pytest.mark.parametrize("family", READERS)
def test_no_target_reaches_its_own_guess(family: str, corpus: Corpus, tmp_path: Path) -> None:
    model, changed = tiny(family).eval(), 12
    tokens = corpus.read(0, len(corpus)).tolist()
    assert tokens[changed] != SPECIAL.end
    tokens[changed] = 7 if tokens[changed] != 7 else 8
    other = text_corpus(tmp_path, [[tokens]])

    def rows(c: Corpus) -> Tensor:
        objective = make(Recurrent, c, batch_size=1, learning=False)
        state = objective.begin(model, 1)
        parts = [
            objective.hidden(model, objective.collate([objective.get(n)]), state) for n in range(3)
        ]
        return torch.cat(parts, 1)

    one, two = rows(corpus), rows(other)
    torch.testing.assert_close(one[:, : changed + 1], two[:, : changed + 1], rtol=0, atol=0)
    assert (one[:, changed + 1] != two[:, changed + 1]).any()
    assert (one[:, 16] != two[:, 16]).any(), "the next segment remembers"


def test_refusals(corpus: Corpus) -> None:
    objective = make(Recurrent, corpus)
    with refuses(ConfigError, "GPT", "transformer-xl, xlnet"):
        objective.check(tiny("gpt"))
    for options, part in (
        ({"mem_len": None}, "mem_len"),
        ({"reuse_len": 4}, "reuse_len"),
        ({"two_directions": True}, "two_directions"),
    ):
        with refuses(ConfigError, part):
            objective.check(tiny("xlnet", **options))
    with refuses(ConfigError, "LSTM", "mem_len"):
        make(Recurrent, corpus, evaluation_mem_len=3).check(tiny("lstm"))
