"""The four operations, by hand and by what must hold for all of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import ConfigError
from regard.data.augment import eda
from regard.data.augment.words import split
from tests.laws.zoo import few
from tests.methods.augment.small import Dice
from tests.refusals import refuses

KNOWN = {
    "film": ("movie", "motion picture"),
    "good": ("fine",),
    "the": ("thee",),
    "very": ("super",),
}
WORDS = st.lists(st.sampled_from("The film was very good and Good not dull".split()), max_size=12)
SEEDS = st.integers(0, 2**20)
SHARES = st.floats(0.01, 1.0)


def synonyms(word: str) -> tuple[str, ...]:
    assert word == word.lower()
    return KNOWN.get(word, ())


def dice(*throws: float) -> Any:
    return Dice(*throws)


# -- by hand


def test_synonyms_replace_all_occurrences_of_up_to_n_words() -> None:
    text = split("The film, a good Film, is a very GOOD film!")
    once = eda.replace_words(text, 1, synonyms, dice(1))  # the first word that has some: film
    assert str(once) == "The motion picture, a good Motion picture, is a very GOOD motion picture!"
    twice = eda.replace_words(text, 2, synonyms, dice(0, 0))
    assert str(twice) == "The movie, a fine Movie, is a very FINE movie!"
    assert str(eda.replace_words(text, 9, synonyms, dice(0, 0))) == str(twice)


def test_insertion_by_the_paper_and_by_its_code() -> None:
    text = split("the very good film")
    # the stop words 0 and 1 are looked at in vain; then film, its second synonym, before word 2
    paper = eda.insert_words(text, 1, synonyms, dice(0, 1, 3, 1, 2))
    assert str(paper) == "the very motion picture good film"
    assert paper.units[2].origin == 3
    # any word, the first synonym, before word 0
    code = eda.insert_words(text, 1, synonyms, dice(1, 0), "code")
    assert str(code) == "super the very good film"


def test_insertion_gives_up() -> None:
    text = split("the dull plot")
    assert eda.insert_words(text, 1, synonyms, dice(*[1] * eda.LOOKS)) == text
    with pytest.raises(StopIteration):  # nine looks are taken, not fewer
        eda.insert_words(text, 1, synonyms, dice(*[1] * (eda.LOOKS - 1)))


def test_what_was_inserted_may_be_chosen_next() -> None:
    chain = {"good": ("film",), "film": ("movie",)}
    changed = eda.insert_words(split("good"), 2, lambda w: chain.get(w, ()), dice(0, 0, 0, 0, 0, 0))
    assert str(changed) == "movie film good"


def test_swap_by_hand() -> None:
    text = split("One two, three four.")
    assert str(eda.swap_words(text, 1, dice(0, 3))) == "four two, three One."
    assert str(eda.swap_words(text, 2, dice(0, 3, 1, 1, 1, 2))) == "four three, two One."
    assert eda.swap_words(text, 1, dice(2, 2, 2, 2)) == text  # three tries to differ
    assert eda.swap_words(split("one"), 1, dice(0, 0, 0, 0)) == split("one")


def test_deletion_by_hand() -> None:
    text = split("one two three")
    assert str(eda.delete_words(text, 0.1, dice(0.1, 0.11, 0.5))) == "two three"
    assert str(eda.delete_words(text, 0.9, dice(0.1, 0.2, 0.3, 1))) == "two"
    assert eda.delete_words(split("one"), 1.0, dice()) == split("one")


def test_the_numbers() -> None:
    long = split(" ".join(["word"] * 29))
    assert eda.changes(long, 0.1) == 2 and eda.changes(split("a b"), 0.1) == 1
    sizes = [1, 500, 501, 2000, 2001, 5000, 5001, 10**6]
    assert [eda.published(size) for size in sizes] == [
        (0.05, 16), (0.05, 16), (0.05, 8), (0.05, 8), (0.1, 4), (0.1, 4), (0.1, 4), (0.1, 4),
    ]  # fmt: skip


def test_each_technique_has_its_share() -> None:
    everything = eda.drawn(eda.METHODS, 9, dice())  # int(9 / 4) + 1 = 3 of each, then cut
    assert everything == ["synonyms"] * 3 + ["insert"] * 3 + ["swap"] * 3
    mixed = [eda.drawn(eda.METHODS, 9, np.random.default_rng(seed)) for seed in range(200)]
    assert all(len(each) == 9 and max(Counter(each).values()) <= 3 for each in mixed)
    assert {method for each in mixed for method in each} == set(eda.METHODS)


def test_less_than_one_variant_is_a_chance() -> None:
    # int(0.5 / 4) + 1 = 1 of each, and each is kept with probability 0.5 / 4
    assert eda.drawn(eda.METHODS, 0.5, dice(0.124, 0.125, 0.9, 0.0)) == ["synonyms", "delete"]
    counts = [len(eda.drawn(eda.METHODS, 0.5, np.random.default_rng(s))) for s in range(2000)]
    assert sum(counts) / 2000 == pytest.approx(0.5, abs=0.06)
    with refuses(ConfigError, "0 methods"):
        eda.drawn((), 1, dice())


# -- what always holds


@few(60)
@given(WORDS, SEEDS, st.integers(1, 5))
def test_swap_keeps_the_words(words: list[str], seed: int, count: int) -> None:
    changed = eda.swap_words(split(" ".join(words)), count, np.random.default_rng(seed))
    assert Counter(changed.words) == Counter(words)
    assert sum(a != b for a, b in zip(changed.words, words, strict=True)) <= 2 * count


@few(60)
@given(WORDS, SEEDS, SHARES)
def test_deletion_keeps_an_order_and_a_word(words: list[str], seed: int, share: float) -> None:
    changed = eda.delete_words(split(" ".join(words)), share, np.random.default_rng(seed))
    places = [unit.origin for unit in changed.units]
    assert places == sorted(set(places)) and changed.words == [words[place] for place in places]
    assert bool(places) == bool(words)
    assert str(changed) == " ".join(changed.words)


@few(60)
@given(WORDS, SEEDS, st.integers(1, 5))
def test_stop_words_are_never_replaced(words: list[str], seed: int, count: int) -> None:
    sentence = eda.replace_words(
        split(" ".join(words)), count, synonyms, np.random.default_rng(seed)
    )
    assert len(sentence.units) == len(words)
    changed = {w.lower() for w, unit in zip(words, sentence.units, strict=True) if w != unit.text}
    assert changed <= {"film", "good"} and len(changed) <= count
    known = {w.lower() for w in words} & {"film", "good"}
    assert len(changed) == min(count, len(known))


@few(60)
@given(WORDS, SEEDS, st.integers(1, 5))
def test_insertion_only_adds(words: list[str], seed: int, count: int) -> None:
    text = split(" ".join(words))
    if not words:
        return
    changed = eda.insert_words(text, count, synonyms, np.random.default_rng(seed))
    added = Counter(changed.words) - Counter(words)
    assert set(added) <= {"movie", "motion picture", "fine"} and added.total() <= count
    rest = iter(changed.words)
    assert all(word in rest for word in words)  # in their order
    assert changed.words[-1] == words[-1]  # never behind the last


def test_what_is_not_loose_or_free_stays() -> None:
    text = split("the good film was very good", fixed=[(4, 13)])
    for seed in range(30):
        rng = np.random.default_rng(seed)
        assert "good film" in str(eda.replace_words(text, 5, synonyms, rng))
        assert "good film" in str(eda.delete_words(text, 0.9, rng))
        assert eda.swap_words(text, 5, rng).words[1] == "good film"
        assert "good film" in str(eda.insert_words(text, 5, synonyms, rng))


@pytest.mark.parametrize(
    ("words", "stop"),
    [("the THE Not don't It's WOULDN’T 的 没有", True), ("film nothing O'Hara 电影", False)],
)
def test_stop_words(words: str, stop: bool) -> None:
    assert {eda.is_stop(word) for word in words.split()} == {stop}
    assert not eda.is_stop("")
