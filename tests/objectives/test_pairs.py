"""Targets from their sources: only the target counts, batches are of similar length."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import ConfigError, FormatError
from regard.data.corpus import Corpus
from regard.objectives.pairs import Pairs, fit
from tests.objectives.rules import (
    few,
    make,
    tiny,
    totals,
)
from tests.objectives.small import (
    FIRST,
    SPECIAL,
    VOCABULARY,
    open_corpus,
    random_documents,
    text_corpus,
)
from tests.refusals import refuses


def pairs(count: int, words: tuple[int, int] = (0, 9), seed: int = 0) -> list[list[list[int]]]:
    return random_documents(count, sentences=(2, 2), words=words, seed=seed)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return text_corpus(tmp_path_factory.mktemp("pairs"), pairs(30, seed=5), kind="pairs")


def test_sources_and_targets(corpus: Corpus) -> None:
    objective = make(Pairs, corpus, seq_len=40)
    assert len(objective) == 30 and objective.cut == 0 and objective.note == ""
    for i, (source, target) in enumerate(pairs(30, seed=5)):
        parts = [part.tolist() for part in objective.pair(0, i)]
        assert parts == [[*source, SPECIAL.end], [*target, SPECIAL.end]]


@few(60)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=9),
    st.integers(4, 50),
)
def test_the_longer_side_is_cut(sizes: list[tuple[int, int]], most: int) -> None:
    for (source, target), (a, b) in zip(sizes, fit(np.array(sizes), most), strict=True):
        assert 1 <= a <= source and 1 <= b <= target and a + b <= most
        if source + target <= most:
            assert (a, b) == (source, target)
        else:
            assert a + b == most
            assert a == source or a >= most // 2
            assert b == target or b >= most // 2


def test_what_was_cut_is_counted(corpus: Corpus) -> None:
    objective = make(Pairs, corpus, seq_len=8)
    longer = sum(len(s) + len(t) + 2 > 8 for s, t in pairs(30, seed=5))
    assert 0 < longer < 30 and objective.cut == longer
    assert objective.note.startswith(f"{longer} of 30 pairs of the train split have more than 8")
    for i, (whole, _) in enumerate(pairs(30, seed=5)):
        source, target = objective.pair(0, i)
        assert len(source) + len(target) <= 8 and source[-1] == SPECIAL.end
        assert source[:-1].tolist() == whole[: len(source) - 1]


# -- batches


@pytest.mark.parametrize("multiple", [0, 1, 8])
def test_padding_is_as_little_as_asked(multiple: int, corpus: Corpus) -> None:
    objective = make(Pairs, corpus, seq_len=40, multiple=multiple)
    for numbers in pairwise(range(8)):
        samples = [objective.get(n) for n in numbers]
        batch = objective.collate(samples)
        sizes = np.stack([s["sizes"] for s in samples])
        for name, most, room in (
            ("source", sizes[:, 0].max(), objective.room.source),
            ("target", sizes[:, 1].max(), objective.room.target),
            ("tokens", sizes.sum(1).max(), objective.room.row),
        ):
            width = batch[name].size(1)
            assert width == (room if multiple == 0 else min(-(-most // multiple) * multiple, room))
        for i, s in enumerate(samples):
            first, second = s["sizes"]
            assert batch["tokens"][i, : first + second].tolist() == s["tokens"].tolist()
            assert (
                batch["source"][i][batch["source_attention_mask"][i]].tolist()
                == s["tokens"][:first].tolist()
            )
            assert (
                batch["target"][i][batch["target_scored"][i]].tolist()
                == batch["tokens"][i][batch["scored"][i]].tolist()
                == s["tokens"][first:].tolist()
            )
            assert (batch["tokens"][i, first + second :] == SPECIAL.pad).all()


def padding_share(objective: Any, steps: int) -> float:
    """Of source and target tokens of whole steps."""
    empty = total = 0
    for step in range(steps):
        numbers = range(step * objective.batch_size, (step + 1) * objective.batch_size)
        batch = objective.collate([objective.get(n) for n in numbers])
        for name, real in (("source", "source_attention_mask"), ("target", "target_scored")):
            empty += int((~batch[real]).sum())
            total += batch[name].numel()
    return empty / total


def test_sorting_saves_padding(tmp_path: Path) -> None:
    """Lengths as translations have them: the target about as long as its source."""
    draw = np.random.default_rng(0)
    documents = []
    for size in np.minimum(draw.lognormal(2.8, 0.6, 2000).astype(int) + 1, 90):
        other = max(1, int(size * draw.normal(1.0, 0.1)))
        documents.append([[FIRST] * int(size), [FIRST] * other])
    corpus = text_corpus(tmp_path, documents, kind="pairs")
    share = {
        (sort, multiple): padding_share(
            make(Pairs, corpus, seq_len=200, batch_size=32, sort=sort, multiple=multiple), 62
        )
        for sort in (False, True)
        for multiple in (0, 8)
    }
    assert share[True, 8] < 0.22 < 0.5 < share[False, 8] < share[False, 0]


@few(25)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 5), st.integers(0, 99))
def test_an_epoch_holds_every_pair_once_whatever_the_steps(
    tmp_path_factory: pytest.TempPathFactory, count: int, batch: int, epoch: int, seed: int
) -> None:
    corpus = text_corpus(tmp_path_factory.mktemp("t"), pairs(count, seed=seed), kind="pairs")
    objective = make(Pairs, corpus, seq_len=40, batch_size=batch, seed=seed)
    assert sorted(objective.order(epoch)) == list(range(count))


def test_steps_are_sorted_in_every_epoch(corpus: Corpus) -> None:
    """7 does not divide 30: later epochs begin in the middle of a step, whose rest is sorted."""
    objective = make(Pairs, corpus, seq_len=40, batch_size=7)
    sizes = objective.sizes.sum(1)
    for epoch in range(4):
        order = objective.order(epoch)
        begun = -epoch * 30 % 7
        steps = [order[i : i + 7] for i in range(begun, 30 - 6, 7)]
        ranges = sorted((sizes[s].min(), sizes[s].max()) for s in steps)
        assert all(low[1] <= high[0] for low, high in pairwise(ranges))
        assert (sizes[order] != np.sort(sizes)).any(), "the steps themselves are not"
    assert make(Pairs, corpus, seq_len=40, learning=False).order(0) is None


# -- loss


def test_a_model_may_know_more_words_than_its_data(corpus: Corpus) -> None:
    """T5's vocabulary is padded; smoothing runs over the model's words."""
    model = tiny("t5", vocab_size=VOCABULARY + 9, dtype=torch.float64)
    objective = make(Pairs, corpus, seq_len=40, smoothing_kind="all")
    batch = objective.collate([objective.get(n) for n in range(3)])
    hidden, targets, scored = objective.hidden(model, batch)
    expected = torch.nn.functional.cross_entropy(
        model.logits(hidden)[scored], targets[scored], reduction="sum", label_smoothing=0.1
    )
    torch.testing.assert_close(objective.loss(model, batch).sums["pairs"], expected)


def test_figures_are_not_smoothed(corpus: Corpus) -> None:
    model = tiny("t5").eval()
    objectives = [
        make(Pairs, corpus, seq_len=40, learning=False, smoothing=s, reported="kl")
        for s in (0.0, 0.3)
    ]
    sums = [totals(objective, model) for objective in objectives]
    assert sums[0].sums == sums[1].sums
    mean = float(sums[0].sums["pairs"]) / sums[0].counts["pairs"]
    assert objectives[0].measure(sums[0]) == {"perplexity": pytest.approx(math.exp(mean))}


def test_refusals(corpus: Corpus, tmp_path: Path) -> None:
    text_corpus(tmp_path / "text", random_documents(4))
    text_corpus(tmp_path / "three", [[[7], [8], [9]]], kind="pairs")
    for name in ("text", "three"):
        with refuses(FormatError, tmp_path / name, "--pairs"):
            make(Pairs, open_corpus(tmp_path / name))
    with refuses(ConfigError, "LSTM", "both sides"):
        make(Pairs, corpus, both_sides=True).check(tiny("lstm"))
    with refuses(ConfigError, "smoothing", "adaptive"):
        make(Pairs, corpus).check(tiny("transformer-xl"))
    make(Pairs, corpus, smoothing=0.0).check(tiny("transformer-xl"))
