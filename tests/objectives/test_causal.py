"""Left to right: every token is guessed once, from what came before it and nothing else."""

from __future__ import annotations

import math
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import ConfigError
from regard.data.corpus import Corpus
from regard.models import FAMILIES
from regard.objectives.base import Loss
from regard.objectives.causal import CausalObjective, ChunkTiling, ring
from tests.objectives.rules import (
    few,
    make,
    tiny,
    totals,
)
from tests.objectives.small import (
    SPECIAL,
    random_documents,
    text_corpus,
)
from tests.refusals import refuses

READERS = ["gpt", "lstm", "longformer-characters", "transformer-xl", "xlnet", "bert"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return text_corpus(tmp_path_factory.mktemp("causal"), random_documents(12, seed=5))


def scored(objective: Any, epoch: int = 0) -> list[tuple[list[int], int]]:
    """(what a guess is made from, what is guessed), of all samples."""
    guesses = []
    for i in range(len(objective)):
        s = objective.sample(epoch, i)
        assert s["tokens"].shape == s["targets"].shape == s["scored"].shape == (objective.seq_len,)
        guesses += [
            (s["tokens"][: t + 1].tolist(), int(s["targets"][t]))
            for t in np.flatnonzero(s["scored"])
        ]
    return guesses


@few(25)
@given(st.integers(1, 30), st.integers(0, 29), st.integers(0, 99))
def test_packed_chunks_tile_the_split(
    tmp_path_factory: pytest.TempPathFactory, seq_len: int, overlap: int, seed: int
) -> None:
    overlap = min(overlap, seq_len - 1)
    corpus = text_corpus(tmp_path_factory.mktemp("t"), random_documents(1 + seed % 5, seed=seed))
    whole = corpus.read(0, len(corpus)).tolist()
    guesses = scored(
        make(CausalObjective, corpus, seq_len=seq_len, learning=False, overlap=overlap)
    )
    assert [target for _, target in guesses] == whole
    for i, (context, _) in enumerate(guesses):
        assert context == [SPECIAL.end, *whole][: i + 1][-len(context) :]
        assert len(context) >= min(i, overlap) + 1


def test_every_position_guesses_the_token_after_it(corpus: Corpus) -> None:
    objective = make(CausalObjective, corpus, seq_len=16)
    model = tiny("gpt").eval()
    batch = objective.collate([objective.sample(0, i) for i in range(3)])
    assert torch.equal(batch["targets"][:, :-1], batch["tokens"][:, 1:])
    assert batch["scored"].all()
    loss = objective.loss(model, batch)
    logprobs = model.logits(model(batch["tokens"])).log_softmax(-1)  # one forward pass
    nats = -logprobs.gather(2, batch["targets"][:, :, None]).sum()
    torch.testing.assert_close(next(iter(loss.sums.values())), nats)
    assert set(loss.counts.values()) == {3.0 * 16}


@few(15)
@given(st.integers(1, 12), st.integers(0, 11), st.integers(0, 99))
def test_separate_chunks_never_cross_a_document(
    tmp_path_factory: pytest.TempPathFactory, seq_len: int, overlap: int, seed: int
) -> None:
    overlap = min(overlap, seq_len - 1)
    corpus = text_corpus(tmp_path_factory.mktemp("t"), random_documents(1 + seed % 5, seed=seed))
    options = {"documents": "separate", "overlap": overlap}
    guesses = scored(make(CausalObjective, corpus, seq_len=seq_len, learning=False, **options))
    assert [target for _, target in guesses] == corpus.read(0, len(corpus)).tolist()
    contexts = [
        [SPECIAL.end, *corpus.document(d).tolist()[:t]]
        for d in range(len(corpus.documents) - 1)
        for t in range(len(corpus.document(d)))
    ]
    for (context, _), before in zip(guesses, contexts, strict=True):
        assert context == before[-len(context) :]
        assert len(context) >= min(len(before) - 1, overlap) + 1


def test_every_epoch_is_cut_elsewhere_and_whole(corpus: Corpus) -> None:
    objective, whole = make(CausalObjective, corpus), corpus.read(0, len(corpus))
    starts = set()
    for epoch in range(6):
        guesses = scored(objective, epoch)
        assert sorted(t for _, t in guesses) == sorted(whole)
        starts.add(tuple(objective.sample(epoch, 0)["targets"]))
        for (before, target), (following, _) in pairwise(guesses):
            assert following[-1] == target, f"{before} is not followed by {following}"
    assert len(starts) > 2
    still = make(CausalObjective, corpus, shift=False)
    assert scored(still, 0) == scored(still, 1)


def test_a_split_is_a_ring(corpus: Corpus) -> None:
    whole = corpus.read(0, len(corpus)).tolist()
    assert ring(corpus, -1, 2).tolist() == [SPECIAL.end, *whole[:2]]
    assert ring(corpus, len(whole) - 2, len(whole) + 2).tolist() == whole[-2:] + whole[:2]
    assert ring(corpus, 3, 3 + 2 * len(whole)).tolist() == (whole[3:] + whole + whole[:3])


@pytest.mark.parametrize("family", READERS)
def test_no_target_reaches_its_own_guess(family: str, corpus: Corpus, tmp_path: Path) -> None:
    """The same text with one token changed: nothing that was guessed up to it has changed."""
    model, changed = tiny(family).eval(), 21
    tokens = corpus.read(0, len(corpus)).tolist()
    assert tokens[changed] != SPECIAL.end
    tokens[changed] = 7 if tokens[changed] != 7 else 8
    other = text_corpus(tmp_path / "other", [[tokens]])
    pair = [make(CausalObjective, c, seq_len=16, learning=False) for c in (corpus, other)]
    for objective in pair:
        objective.check(model)
    rows = [o.hidden(model, o.collate([o.sample(0, 1)])) for o in pair]
    at = changed - 16
    torch.testing.assert_close(rows[0][:, : at + 1], rows[1][:, : at + 1], rtol=0, atol=0)
    assert (rows[0][:, at + 1] != rows[1][:, at + 1]).any(), "and it is seen afterwards"


@pytest.mark.parametrize("documents", ["packed", "separate"])
def test_figures(documents: str, corpus: Corpus) -> None:
    """Checked against every token guessed alone, from all the context its chunk has."""
    model = tiny("gpt").eval()
    objective = make(CausalObjective, corpus, learning=False, documents=documents, overlap=3)
    nats = 0.0
    for context, target in scored(objective):
        logits = model.logits(model(torch.tensor([context])))[0, -1].detach()
        nats -= float(logits.log_softmax(-1)[target])
    figures = objective.measure(totals(objective, model))
    assert list(figures) == ["bits_per_byte", "perplexity"]
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / corpus.bytes, rel=1e-4)
    assert figures["perplexity"] == pytest.approx(math.exp(nats / len(corpus)), rel=1e-4)
    half = objective.measure(Loss({"causal": torch.tensor(nats / 2)}, {"causal": len(corpus) / 2}))
    assert half["bits_per_byte"] == pytest.approx(figures["bits_per_byte"], rel=1e-4)
    assert objective.better(1.0, 2.0)


def test_context_helps_in_validation(tmp_path: Path) -> None:
    """What a longer context is worth shows only with an overlap."""
    easy = text_corpus(tmp_path, random_documents(4, words=(30, 40), seed=1))
    model = tiny("gpt").eval()
    figures = [
        make(CausalObjective, easy, seq_len=16, learning=False, overlap=o).measure(
            totals(make(CausalObjective, easy, seq_len=16, learning=False, overlap=o), model)
        )
        for o in (0, 15)
    ]
    assert figures[0] != figures[1]


def test_who_takes_what() -> None:
    for family in FAMILIES.values():
        always = {"self", "input_ids", "attention_mask"}
        pair = {"decoder_input_ids", "decoder_attention_mask"}
        inputs = {*signature(family.model.forward).parameters} - always - pair
        assert family.model.accepts == inputs, family.name


def test_models_that_do_not_fit_are_refused(corpus: Corpus) -> None:
    with refuses(ConfigError, "65 rows", "64 positions"):
        make(CausalObjective, corpus, seq_len=65).check(tiny("gpt"))
    with refuses(ConfigError, "two_directions"):
        make(CausalObjective, corpus).check(tiny("xlnet", two_directions=True))


def test_one_token_is_enough(tmp_path: Path) -> None:
    corpus = text_corpus(tmp_path, [[[SPECIAL.end]]])
    assert scored(make(CausalObjective, corpus, seq_len=4)) == [([SPECIAL.end], SPECIAL.end)]
    assert len(ChunkTiling(corpus, 4, 0, packed=False)) == 1
