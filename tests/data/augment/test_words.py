"""Words and what stands between them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import ConfigError, UnknownName
from regard.data.augment.words import WordUnit, closed, in_case, is_one_word, split, whole
from regard.data.words import chinese_cutter
from tests.laws.zoo import few
from tests.refusals import refuses

CHINESE = "我喜欢自然语言处理，很有趣。"


@few(60)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Lo"]), max_size=60))
def test_nothing_is_lost(text: str) -> None:
    sentence = split(text)
    assert str(sentence) == text
    assert [text[start:end] for start, end in sentence.places()] == sentence.words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world!", ["Hello", "world"]),
        ("Don't say 3.5, or 1,000: it’s O'Hara's.", "Don't say 3.5 or 1,000 it’s O'Hara's".split()),
        ("a well-known film_maker", ["a", "well", "known", "film", "maker"]),
        ("हिंदी भाषा", ["हिंदी", "भाषा"]),  # marks upon letters belong to them
        ("cafe\u0301 noir", ["cafe\u0301", "noir"]),
        (" … ", []),
        ("", []),
    ],
)
def test_what_a_word_is(text: str, words: list[str]) -> None:
    sentence = split(text)
    assert sentence.words == words and str(sentence) == text
    assert [unit.origin for unit in sentence.units] == list(range(len(words)))


def test_chinese_words_are_not_characters() -> None:
    sentence = split(CHINESE + "NLP 课程 2.0")
    assert str(sentence) == CHINESE + "NLP 课程 2.0"
    assert {"喜欢", "有趣"} <= set(sentence.words)
    assert sentence.words[-3:] == ["NLP", "课程", "2.0"]
    assert not {"，", "。", ""} & set(sentence.words)
    assert split(CHINESE, "en").words == ["我喜欢自然语言处理", "很有趣"]


def test_other_scripts_without_spaces_are_not_cut() -> None:
    assert split("私は猫が好きです。本").words == ["私は猫が好きです", "本"]
    assert split("ผมชอบแมว").words == ["ผมชอบแมว"]


def test_without_jieba_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    chinese_cutter.cache_clear()
    monkeypatch.setitem(sys.modules, "jieba", None)
    try:
        assert split("only English").words == ["only", "English"]
        with refuses(ConfigError, "jieba", "pip install", "--language"):
            split(CHINESE)
    finally:
        chinese_cutter.cache_clear()


def test_an_unknown_language() -> None:
    with refuses(UnknownName, "language 'zho'", "'zh'"):
        split("a", "zho")


def test_what_is_fixed_stays_one_with_the_words_it_touches() -> None:
    text = "made in the 1990s, in New York."
    sentence = split(text, fixed=[(12, 15), (22, 30)])
    assert sentence.words == ["made", "in", "the", "1990s", "in", "New York"]
    assert [unit.loose for unit in sentence.units] == [True, True, True, False, True, False]
    assert [unit.free for unit in sentence.units] == [unit.loose for unit in sentence.units]
    assert str(sentence) == text
    assert split("New York", fixed=[(0, 3), (2, 8)]).words == ["New York"]


def test_swap_leaves_punctuation_where_it_is() -> None:
    sentence = split("One, two; three!").swapped(0, 2)
    assert str(sentence) == "three, two; One!"
    assert [unit.origin for unit in sentence.units] == [2, 1, 0]


def test_words_do_not_grow_together() -> None:
    sentence = split("我喜欢 NLP")
    assert sentence.words == ["我", "喜欢", "NLP"]
    assert str(sentence.swapped(0, 2)) == "NLP 喜欢 我"
    assert str(sentence.inserted(1, WordUnit("非常", 1))) == "我非常喜欢 NLP"
    assert str(sentence.inserted(0, WordUnit("so", 1))) == "so 我喜欢 NLP"


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ({0}, "very, very good (a well-known one) was dull."),
        ({1}, "The, very good (a well-known one) was dull."),
        ({2}, "The very, good (a well-known one) was dull."),
        ({3}, "The very, very (a well-known one) was dull."),
        ({4}, "The very, very good (well-known one) was dull."),
        ({5}, "The very, very good (a known one) was dull."),
        ({6}, "The very, very good (a well one) was dull."),
        ({7}, "The very, very good (a well-known) was dull."),
        ({9}, "The very, very good (a well-known one) was."),
        ({0, 1, 2, 3}, "(a well-known one) was dull."),
    ],
)
def test_what_a_word_leaves_behind(gone: set[int], left: str) -> None:
    sentence = split("The very, very good (a well-known one) was dull.").without(gone)
    assert str(sentence).lstrip(", ") == left
    assert len(sentence.gaps) == len(sentence.units) + 1


def test_a_word_at_the_end_takes_its_space_along() -> None:
    assert str(split("one two").without({1})) == "one"
    assert str(split("one two").without({0})) == "two"
    assert str(split('he said "well done"').without({2})) == 'he said "done"'
    assert closed("", "") == "" and closed("-", "-") == "-"


@pytest.mark.parametrize(
    ("word", "like", "sentence"),
    [
        ("movie", "film", "movie"),
        ("movie", "Film", "Movie"),
        ("movie", "FILM", "MOVIE"),
        ("angstrom", "A", "Angstrom"),
        ("Paris", "city", "Paris"),
        ("", "Film", ""),
    ],
)
def test_case_is_that_of_the_word_before(word: str, like: str, sentence: str) -> None:
    assert in_case(word, like) == sentence


def test_a_text_that_is_not_cut() -> None:
    sentence: Any = whole("two words")
    (unit,) = sentence.units
    assert str(sentence) == "two words" and not unit.loose and not unit.free


def test_what_is_one_word_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("film", "don't", "3.5", "电影"):
        assert is_one_word(word) and split(f"a {word} b", "en").words[1] == word
    for word in ("hot dog", "well-known", "c++", "", "自然语言处理技术很有趣"):
        assert not is_one_word(word)
    assert is_one_word("自然语言处理技术很有趣", "en")  # a run of it is not cut
    chinese_cutter.cache_clear()
    monkeypatch.setitem(sys.modules, "jieba", None)
    try:
        assert is_one_word("电影") and not is_one_word("hot dog")
    finally:
        chinese_cutter.cache_clear()
