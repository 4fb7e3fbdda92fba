"""Sentences put together are the text; the usual traps are no ends."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.sentences import AHEAD, LONGEST, SentenceSplitter, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", " Two!", " Three?", " Four"]),
        ("Dr. No met J. Smith, i.e. the U.S. Army.", ["Dr. No met J. Smith, i.e. the U.S. Army."]),
        ('He said "Stop." Then (he left.) Yes', ['He said "Stop."', " Then (he left.)", " Yes"]),
        ("version 3.11 is ok... and so on", ["version 3.11 is ok... and so on"]),
        ("wrapped\nline. Next", ["wrapped\nline.", " Next"]),
        ("A title\n\nA text\n \n\nMore", ["A title", "\n\nA text", "\n \n\nMore"]),
        ("他来了。“走！”他说。好", ["他来了。", "“走！”", "他说。", "好"]),
        ("これはペンです。はい。", ["これはペンです。", "はい。"]),
        ("", []),
    ],
)
def test_examples(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(
    st.lists(st.text(st.sampled_from("aB.!。”\n \tDr中"), max_size=600), max_size=5),
    st.booleans(),
)
def test_nothing_is_lost(parts: list[str], long: bool) -> None:
    text = "".join(parts) * (40 if long else 1)
    cut = sentences(text)
    assert "".join(cut) == text
    assert all(0 < len(sentence) <= LONGEST for sentence in cut)


@given(st.text(st.sampled_from("aB. 。\n中"), max_size=2000), st.integers(1, 700))
def test_pieces_do_not_matter(text: str, step: int) -> None:
    """White space runs are shorter here than what the cutter looks ahead."""
    cutter, parts = SentenceSplitter(), []
    for start in range(0, len(text), step):
        parts += cutter.feed(text[start : start + step], ends=False)
    parts += cutter.feed("", ends=True)
    assert "".join(parts) == text
    if " " * AHEAD not in text.replace("\n", " "):
        assert parts == sentences(text)


def test_no_text_is_slow() -> None:
    began = time.perf_counter()
    for unit in (".", "!)", "\n", " ", ". ", "。", "a", "\n ", '."'):
        text = unit * (10**6 // len(unit))
        assert "".join(sentences(text)) == text
    assert time.perf_counter() - began < 20
