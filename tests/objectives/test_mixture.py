"""Several objectives at once, in exact shares, each with its own epochs and figures."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import ConfigError, FormatError
from regard.data.corpus import Corpus
from regard.objectives.causal import CausalObjective
from regard.objectives.masked import Masked
from regard.objectives.mixture import Mixture
from regard.objectives.pairs import Pairs
from regard.objectives.span import SpanCorruption
from tests.objectives.rules import (
    check_learning,
    check_micro_batches,
    few,
    make,
    same,
    tiny,
    totals,
)
from tests.objectives.small import (
    counting_documents,
    open_corpus,
    random_documents,
    text_corpus,
    write_corpus,
)
from tests.refusals import refuses

CAUSAL_PREFIX = [
    {"objective": "causal", "share": 3},
    {"name": "whole", "objective": "prefix", "share": 1, "seq_len": 12},
]
CAUSAL_MASKED = [
    {"objective": "causal", "share": 0.5},
    {"objective": "masked", "share": 0.5},
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return text_corpus(tmp_path_factory.mktemp("text"), random_documents(20, seed=5))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    documents = random_documents(15, sentences=(2, 2), seed=6)
    return write_corpus(tmp_path_factory.mktemp("tasks"), documents, kind="pairs")


def span_pairs(tasks: Path, share: float = 0.25) -> list[dict[str, Any]]:
    """Raw text and labeled tasks as text: mixed pre-training."""
    return [
        {"name": "text", "objective": "span", "share": 1 - share, "seq_len": 16},
        {
            "name": "tasks",
            "objective": "pairs",
            "share": share,
            "data": str(tasks),
            "seq_len": 30,
            "options": {"smoothing": 0.0},
        },
    ]


# -- which part a sample comes from


def parts_of(shares: list[Fraction]) -> Mixture:
    """The rule alone."""
    mixture = Mixture.__new__(Mixture)
    mixture.shares = shares
    return mixture


@few(60)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 3000), st.integers(1, 200)
)
def test_any_run_of_samples_has_the_shares(weights: list[int], start: int, count: int) -> None:
    shares = [Fraction(w, sum(weights)) for w in weights]
    mixture = parts_of(shares)
    places = [mixture.place(n) for n in range(start, start + count)]
    own = Counter(part for part, _ in places)
    for i, share in enumerate(shares):
        assert abs(own[i] - count * share) < i + 1
        numbers = [number for part, number in places if part == i]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    assert mixture.place(0)[1] == 0


@few(40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 50))
def test_where_shares_are_whole_every_step_is_alike(quotas: list[int], step: int) -> None:
    batch = sum(quotas)
    mixture = parts_of([Fraction(q, batch) for q in quotas])
    own = Counter(mixture.place(n)[0] for n in range(step * batch, (step + 1) * batch))
    assert [own[i] for i in range(len(quotas))] == quotas


def test_each_part_runs_through_its_own_epochs(corpus: Corpus, tasks: Path) -> None:
    mixture = make(Mixture, corpus, parts=span_pairs(tasks))
    alone = mixture.parts["tasks"]
    numbers = [n for n in range(300) if mixture.place(n)[0] == 1]
    for k, n in enumerate(numbers[:40]):
        sample = mixture.get(n)
        assert int(sample.pop("part")) == 1
        assert same(sample, alone.get(k))
    assert len(mixture) == max(-(-len(mixture.parts["text"]) * 4 // 3), 15 * 4)


# -- losses


def test_losses_are_those_of_the_parts(corpus: Corpus, tasks: Path) -> None:
    model = tiny("t5", dtype=torch.float64)
    mixture = make(Mixture, corpus, parts=span_pairs(tasks), batch_size=8)
    batch = mixture.collate([mixture.get(n) for n in range(8)])
    assert list(batch) == ["text", "tasks"]
    assert len(batch["text"]["sizes"]) == 6 and len(batch["tasks"]["sizes"]) == 2
    loss = mixture.loss(model, batch)
    for name, part, kind in (("text", "span", SpanCorruption), ("tasks", "pairs", Pairs)):
        own = mixture.parts[name]
        assert isinstance(own, kind)
        expected = own.loss(model, batch[name])
        torch.testing.assert_close(loss.sums[f"{name}.{part}"], expected.sums[part])
        assert loss.counts[f"{name}.{part}"] == expected.counts[part]
    assert mixture.counts(batch) == loss.counts
    assert mixture.weights == {"text.span": 0.75, "tasks.pairs": 0.25}


def test_a_part_that_is_absent_has_its_names(corpus: Corpus, tasks: Path) -> None:
    """Processes add their sums up by name, so all must have all."""
    mixture = make(Mixture, corpus, parts=span_pairs(tasks, 0.01), batch_size=8)
    batch = mixture.collate([mixture.get(n) for n in range(8, 16)])
    assert list(batch) == ["text"]
    loss = mixture.loss(tiny("t5"), batch)
    assert loss.counts["tasks.pairs"] == 0 == float(loss.sums["tasks.pairs"])
    assert mixture.counts(batch) == loss.counts
    assert mixture.weights["tasks.pairs"] == 1 / 8, "one sample in eight, where there is one"


def test_weights_may_be_given(corpus: Corpus) -> None:
    parts = [{**CAUSAL_PREFIX[0], "weight": 1.0}, {**CAUSAL_PREFIX[1], "weight": 0.5}]
    mixture = make(Mixture, corpus, parts=parts)
    assert mixture.weights == {"causal.causal": 1.0, "whole.prefix": 0.5}


def test_validation_is_that_of_every_part(corpus: Corpus, tasks: Path) -> None:
    model = tiny("t5").eval()
    mixture = make(Mixture, corpus, parts=span_pairs(tasks), learning=False)
    text = make(SpanCorruption, corpus, seq_len=16, learning=False)
    pairs = make(Pairs, open_corpus(tasks), seq_len=30, learning=False, smoothing=0.0)
    assert len(mixture) == len(text) + len(pairs)
    early = Counter(mixture.place(n)[0] for n in range(len(mixture) // 2))
    assert abs(early[1] - len(pairs) / 2) <= 2, "a part of the validation has some of all"
    figures = mixture.measure(totals(mixture, model))
    expected = {
        f"{name}.{key}": value
        for name, part in (("text", text), ("tasks", pairs))
        for key, value in part.measure(totals(part, model)).items()
    }
    assert list(figures) == ["loss", *expected]
    for key, value in expected.items():
        assert figures[key] == pytest.approx(value, rel=1e-5)
    sums = totals(mixture, model)
    loss = sum(
        weight * float(sums.sums[key]) / sums.counts[key]
        for key, weight in (("text.span", 0.75), ("tasks.pairs", 0.25))
    )
    assert figures["loss"] == pytest.approx(loss)


def test_one_model_learns_two_ways(tmp_path: Path) -> None:
    easy = text_corpus(tmp_path, counting_documents(10, 20))
    mixture, model = (
        make(Mixture, easy, parts=CAUSAL_MASKED, seq_len=16, batch_size=8),
        tiny("bert"),
    )
    mixture.check(model)
    check_micro_batches(mixture, tiny("bert", dtype=torch.float64), range(8))
    check_learning(mixture, model)
    batch = mixture.collate([mixture.get(n) for n in range(8)])
    assert len(batch) == 2
    assert all(float(value.detach()) > 0 for value in mixture.loss(model, batch).sums.values())


def test_text_and_tasks_on_t5(tmp_path: Path) -> None:
    easy = text_corpus(tmp_path / "text", counting_documents(10, 20))
    echo = [[[7 + i % 20], [8 + i % 20, 9 + i % 20]] for i in range(40)]
    tasks = write_corpus(tmp_path / "tasks", echo, kind="pairs")
    parts = span_pairs(tasks, 0.5)
    check_learning(make(Mixture, easy, parts=parts, batch_size=8), tiny("t5"), fall=0.75)


def test_hybrid_masked_and_causal_are_what_they_are_alone(corpus: Corpus) -> None:
    model = tiny("bert", dtype=torch.float64).eval()
    mixture = make(Mixture, corpus, parts=CAUSAL_MASKED, seq_len=16)
    batch = mixture.collate([mixture.get(n) for n in range(4)])
    loss = mixture.loss(model, batch)
    for name, kind in (("causal", CausalObjective), ("masked", Masked)):
        part = make(kind, corpus, seq_len=16, batch_size=2)
        own = part.collate([part.get(n) for n in range(2)])
        for key, value in part.loss(model, own).sums.items():
            torch.testing.assert_close(loss.sums[f"{name}.{key}"], value)


# -- refusals


def test_refusals(corpus: Corpus, tmp_path: Path) -> None:
    with refuses(FormatError, corpus.directory, "--pairs"):
        make(Mixture, corpus, parts=[{"objective": "pairs", "share": 1}])
    write_corpus(tmp_path, random_documents(3), vocab_size=41)
    with refuses(ConfigError, "'causal'", tmp_path, "41 tokens", "40"):
        make(Mixture, corpus, parts=[{**CAUSAL_PREFIX[0], "data": str(tmp_path)}])
    with refuses(ConfigError, "CharacterLongformer", "t5"):
        make(Mixture, corpus, parts=CAUSAL_PREFIX).check(tiny("longformer-characters"))


def test_heads_are_those_of_all_parts(corpus: Corpus) -> None:
    assert make(Mixture, corpus, parts=CAUSAL_PREFIX).heads() is None
    alone = make(Masked, corpus, seq_len=16).heads()
    assert make(Mixture, corpus, parts=CAUSAL_MASKED, seq_len=16).heads() == alone
