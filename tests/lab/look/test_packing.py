"""Tokens that can be read, and weights in few bytes: what goes into a page."""

from __future__ import annotations

import numpy as np
import pytest

from regard.lab.look.packing import Precision, pack, quantise, thumbnail, unquantise
from regard.lab.look.tokens import tokens_of
from regard.lab.look.weights import HeadWeights
from tests.decoding.small import tokenizer


@pytest.mark.parametrize("kind", ["bytes-bpe", "bytes", "characters", "unigram", "wordpiece"])
def test_tokens_are_whole_characters(kind: str) -> None:
    words = tokenizer(kind)
    text = "naïve 猫坐在 👩‍👩‍👧 🤖 龘 x\ny"
    ids = words.encode(text, special=False)
    tokens = tokens_of(words, ids)
    assert len(tokens) == len(ids)
    shown = "".join(t.text for t in tokens)
    assert "\ufffd" not in shown and "猫" in shown
    assert all(any(c.isprintable() and not c.isspace() for c in t.text) for t in tokens)
    if kind == "bytes":
        cat = [t for t in tokens if t.text == "猫"]
        assert [(t.part, t.parts) for t in cat] == [(1, 3), (2, 3), (3, 3)]
        half = tokens_of(words, ids[: ids.index(0xE7) + 1] if 0xE7 in ids else ids[:8])
        assert "\ufffd" not in "".join(t.text for t in half)


def test_bytes_that_are_no_character_are_numbers() -> None:
    words = tokenizer("bytes")
    ids = words.encode("猫", special=False)[:2]
    assert [t.text for t in tokens_of(words, ids)] == ["E7", "8C"]
    assert [t.text for t in tokens_of(None, [5, 7])] == ["5", "7"]


@pytest.mark.parametrize("kind,limit", [("f4", 0.0), ("u2", 0.5 / 65535), ("u1", 0.5 / 255)])
def test_precision_is_what_the_page_says(kind: str, limit: float) -> None:
    dice = np.random.default_rng(1)
    values = dice.dirichlet(np.ones(50) * 0.2, 40).astype(np.float32)
    values[3] = 0.0  # a row that sees nothing
    again = unquantise(quantise(values, kind), kind, 40, 50)
    allowed = values.max(1, keepdims=True) * limit + 1e-7
    assert (np.abs(again - values) <= allowed * (limit > 0) + 1e-9 * (limit == 0) + 1e-7).all()
    assert not again[3].any()


def test_the_largest_of_a_row_and_the_rest() -> None:
    dice = np.random.default_rng(2)
    values = dice.dirichlet(np.ones(50), 30).astype(np.float32)
    packed = pack(HeadWeights(values, 50), Precision("top", 5))
    unpacked = packed.unpack()
    for row, read in zip(values, unpacked, strict=True):
        places = set(np.argsort(-row)[:5])
        assert set(np.flatnonzero(read)) == places
        assert np.abs(read - row)[list(places)].max() <= row.max() / 510 + 1e-7
    rest = np.frombuffer(packed.data, "<f4", 30, 4 * 30)
    expected = 1.0 - np.sort(values, 1)[:, -5:].sum(1)
    np.testing.assert_allclose(rest, expected, atol=1e-5)


def test_precision_follows_the_size() -> None:
    kinds = [Precision.of(cells, 10).kind for cells in (10, 3 * 2**20, 10 * 2**20, 2**30)]
    assert kinds == ["f4", "u2", "u1", "top"]
    rows = 144 * 4096
    chosen = Precision.of(rows * 513, rows)
    assert rows * (8 + 3 * chosen.count) <= 24 * 2**20 and chosen.count > 8


def test_thumbnails_show_the_strongest() -> None:
    values = np.full((100, 100), 1e-3, np.float32)
    values[:, 30] = 0.5
    small, size = thumbnail(HeadWeights(values, 100))
    assert size == (40, 40) and (small[:, 12] == 255).all() and np.delete(small, 12, 1).max() < 10
    causal = np.tril(np.ones((50, 50), np.float32)) / np.arange(1, 51, dtype=np.float32)[:, None]
    small, _ = thumbnail(HeadWeights(causal, 50))
    assert small[0, 0] == 255 and small[-1, 0] > 25  # the first row does not make the last pale
    even, _ = thumbnail(HeadWeights(np.full((50, 50), 0.02, np.float32), 50))
    assert even.max() == even.min() == 64  # a quarter: nothing is preferred
