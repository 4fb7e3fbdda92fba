"""Who learns, who validates, who tests; and long documents cut into short ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import InputError, UnknownName
from regard.data import sample
from regard.data.chunks import Chunker, Chunking
from regard.data.sample import Sample
from regard.data.splits import TEST, TRAIN, VALID, SplitBounds, SplitShares, key, stretched
from tests.refusals import Refusal, refuses

END = 0


def test_keys_depend_on_seed_and_text() -> None:
    assert key(1, "a") == key(1, "a")
    assert len({key(1, "a"), key(2, "a"), key(1, "b")}) == 3


@given(st.integers(10, 400), st.floats(0, 0.4), st.floats(0, 0.4))
def test_shares_by_rank_are_exact(many: int, valid: float, test: float) -> None:
    keys = [key(0, str(i)) for i in range(many)]
    division = SplitBounds.by_rank(SplitShares(valid, test), keys)
    result = [division.of(number) for number in keys]
    for split, share in ((VALID, valid), (TEST, test)):
        assert result.count(split) == (max(1, round(share * many)) if share else 0)


def test_shares_by_chance() -> None:
    division = SplitBounds.by_chance(SplitShares(0.1, 0.2))
    result = [division.of(key(3, str(i))) for i in range(20_000)]
    assert abs(result.count(VALID) / 20_000 - 0.1) < 0.01
    assert abs(result.count(TEST) / 20_000 - 0.2) < 0.01
    assert SplitBounds.by_chance(SplitShares(0, 0)).of(0) == TRAIN


def test_two_documents_are_not_shared_out() -> None:
    assert {SplitBounds.by_rank(SplitShares(), [1, 2]).of(i) for i in (1, 2)} == {TRAIN}


@pytest.mark.parametrize("shares", [(-0.1, 0), (0.5, 0.5), (0, 1)])
def test_bad_shares(shares: tuple[float, float]) -> None:
    valid, test = shares
    with refuses(InputError, f"--valid-fraction {valid} ", f"--test-fraction {test} "):
        SplitShares(*shares)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.booleans())
def test_stretches(sizes: list[int], tested: bool) -> None:
    shares = SplitShares(0.2, 0.2 if tested else 0)
    pieces = [(str(i), size) for i, size in enumerate(sizes)]
    result = list(stretched(pieces, shares, sum(sizes)))
    assert [text for text, *_ in result] == [text for text, _ in pieces]
    splits = [split for _, _, split, _ in result]
    assert splits == sorted(splits)
    assert splits[0] == TRAIN
    if len(sizes) > 1:
        assert splits[-1] == (TEST if tested else VALID)
    closes = [closes for *_, closes in result]
    assert closes == [a != b for a, b in zip(splits, [*splits[1:], None], strict=True)]


def cut(chunking: Chunking, document: list[list[int]]) -> tuple[list[tuple[list, int]], Chunker]:
    chunker = Chunker(chunking, END)
    result = []
    for i, ids in enumerate(document):
        closes = i == len(document) - 1
        size = 3 * len(ids) + 1
        for parts, bytes_ in chunker.add(np.array(ids, np.int64), size, closes=closes):
            result.append(([part.tolist() for part in parts], bytes_))
    return result, chunker


documents = st.lists(st.integers(0, 12), min_size=1, max_size=12)


@given(documents, st.integers(2, 9), st.sampled_from(["fixed", "overlapping", "sentences"]))
def test_chunks(lengths: list[int], length: int, kind: str) -> None:
    numbers = iter(range(1, 1000))
    document = [[next(numbers) for _ in range(many)] for many in lengths]
    overlap = 1 if kind != "overlapping" else max(1, (length - 1) // 2)
    if kind == "overlapping" and length < 4:
        return
    result, chunker = cut(Chunking(kind, length, overlap), document)
    bodies = [[i for part in parts for i in part] for parts, _ in result]
    assert all(body[-1] == END and len(body) <= length for body in bodies)
    assert all(all(parts) for parts, _ in result)  # no sentence is empty
    step = overlap if kind == "overlapping" else 0
    text = bodies[0][:-1] + [i for body in bodies[1:] for i in body[:-1][step:]]
    assert text == [i for sentence in document for i in sentence]
    assert chunker.repeated == step * (len(bodies) - 1)
    assert sum(size for _, size in result) == sum(3 * many + 1 for many in lengths)
    if kind == "fixed":
        assert all(len(body) == length for body in bodies[:-1])
    if kind == "sentences":
        starts = {sentence[0] for sentence in document if sentence}
        whole = all(many < length for many in lengths)
        assert not whole or all(body[0] in starts for body in bodies if len(body) > 1)


def test_chunks_at_sentences() -> None:
    result, _ = cut(Chunking("sentences", 6), [[1, 2], [3, 4], [5, 6], [7] * 8, [8]])
    expected = [[[1, 2], [3, 4, 0]], [[5, 6, 0]], [[7] * 5 + [0]], [[7] * 3, [8, 0]]]
    assert [parts for parts, _ in result] == expected


def test_overlapping_chunks() -> None:
    result, _ = cut(Chunking("overlapping", 5, 2), [[1, 2, 3], [4, 5, 6, 7]])
    flat = [[i for part in parts for i in part] for parts, _ in result]
    assert flat == [[1, 2, 3, 4, 0], [3, 4, 5, 6, 0], [5, 6, 7, 0]]


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"kind": "sentence"}, (UnknownName, "--chunk", "'sentence'", "'sentences'")),
        ({"kind": "fixed", "length": 1}, (InputError, "--chunk-length 1")),
        ({"kind": "overlapping", "length": 8, "overlap": 7}, (InputError, "--overlap 7", "8")),
        ({"kind": "overlapping", "overlap": 0}, (InputError, "--overlap 0")),
    ],
)
def test_bad_chunks(options: dict, refusal: Refusal) -> None:
    with refuses(*refusal):
        Chunking(**options)


def test_a_sample_is_bounded_even_and_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "BUDGET", 20_000)

    def drawn() -> Sample:
        result = Sample(5)
        for i in range(4000):
            result.add(i, i, 0, f"text number {i} ")
        return result

    first, second = drawn(), drawn()
    assert first.units == second.units
    assert 5_000 < sum(len(unit.text) for unit in first.units) <= 20_000
    assert not first.whole
    numbers = [unit.document for unit in first.units]
    assert abs(np.mean(numbers) - 2000) < 300


def test_text_without_spaces_costs_more() -> None:
    assert sample.cost("中文" * 500) > 7 * sample.cost("ab cd " * 500)
