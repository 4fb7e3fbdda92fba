"""Variants of examples of every task: labels stay right, and the seed decides all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import ConfigError, UnknownName
from regard.data.augment.eda import METHODS
from regard.data.augment.examples import CHUNK, Augmenter, AugmentSettings
from regard.data.examples import (
    AnswerSpan,
    DialogueExample,
    Example,
    LabeledExample,
    MultipleChoice,
    Question,
    TaggedExample,
    TextPair,
)
from regard.data.tags import entities, problems, repair, write
from regard.methods.augment.processes import augmented
from tests.laws.zoo import few
from tests.methods.augment.small import listed

FILM = LabeledExample("The good film was a very good one, said Anna.", label="praise", id="r1")
KINDS = st.sampled_from(["O", "O", "O", "PER", "PER PER", "LOC", "LOC LOC LOC"])
WORDS = ["good", "film", "Anna", "rome", "the", ",", "like"]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("words") / "own.tsv"
    lines = ["film\tmovie\tmotion picture", "good\tfine", "anna\tann", "rome\tcapital of Italy"]
    return str(listed(file, *lines, "like\tlove\tcherish", "喜欢\t热爱", "有趣\t好玩"))


def variants(example: Example, own: str, **changes: Any) -> list[tuple[str, Any]]:
    original: dict[str, Any] = {"copies": 12, "word_fraction": 0.2, "thesaurus": own, "seed": 3}
    results = Augmenter(AugmentSettings(METHODS, **(original | changes)))
    return [(v.method, v.example) for v in results.variants([example])[0]]


def test_a_text_keeps_its_label(own: str) -> None:
    results = variants(FILM, own)
    assert len(results) == 12 and {method for method, _ in results} == set(METHODS)
    assert all(new.label == "praise" and new.pair is None for _, new in results)
    assert [new.id for _, new in results] == [f"r1~{i}" for i in range(1, 13)]
    assert len({new.text for _, new in results}) > 6
    for method, new in results:
        if method == "synonyms":
            assert "movie" in new.text or "motion picture" in new.text or "fine" in new.text


def test_of_two_texts_one_changes(own: str) -> None:
    original = LabeledExample("a good film was seen", "the film is good", 4.5)
    results = [new for _, new in variants(original, own, copies=24)]
    sides = {(new.text == original.text, new.pair == original.pair) for new in results}
    assert (False, False) not in sides and {(True, False), (False, True)} <= sides
    assert {new.label for new in results} == {4.5}


def test_all_choices_change_or_none(own: str) -> None:
    original = MultipleChoice(
        "a good film was seen", ("good good film", "film film film was"), "effect", 1
    )
    results = [(method, new) for method, new in variants(original, own, copies=24)]
    assert {new.label for _, new in results} == {1} and {new.asks for _, new in results} == {
        "effect"
    }
    assert any(new.premise != original.premise for _, new in results)
    for method, new in results:
        assert (new.premise == original.premise) or (new.choices == original.choices)
        if method == "synonyms" and new.choices != original.choices:
            assert all(a != b for a, b in zip(new.choices, original.choices, strict=True))
    same = MultipleChoice("x", ("good", "fine"), None, 0)  # never the same choice twice
    assert all(len(set(new.choices)) == 2 for _, new in variants(same, own, copies=24))


# -- tags


@st.composite
def sentences(draw: Any) -> TaggedExample:
    words, spans = [], []
    for kind in draw(st.lists(KINDS, min_size=1, max_size=7)):
        new = [draw(st.sampled_from(WORDS)) for _ in kind.split()]
        if kind != "O":
            spans.append((kind.split()[0], len(words), len(words) + len(new)))
        words += new
    return TaggedExample(tuple(words), tuple(write(spans, len(words))))


@few(60)
@given(sentences(), st.integers(0, 1000), st.sampled_from(["bio", "iob1", "bioes", "bilou"]))
def test_tags_stay_valid_and_entities_whole(
    own: str, original: TaggedExample, seed: int, scheme: str
) -> None:
    original = replace(original, tags=tuple(repair(original.tags or (), scheme)))
    before = {(k, original.words[a:b]) for k, a, b in entities(original.tags or ())}
    count = len(entities(original.tags or ()))
    for method, new in variants(
        original, own, seed=seed, scheme=scheme, copies=4, word_fraction=0.4
    ):
        assert len(new.words) == len(new.tags) > 0
        assert not problems(new.tags, scheme)
        assert all(len(word.split()) == 1 for word in new.words)
        spans = entities(new.tags)
        assert {(k, new.words[a:b]) for k, a, b in spans} <= before
        assert len(spans) == count if method != "delete" else len(spans) <= count


def test_words_of_entities_are_never_replaced(own: str) -> None:
    original = TaggedExample(("Anna", "likes", "a", "good", "film", "in", "Rome", "."),
                   ("B-PER", "O", "O", "O", "O", "O", "B-LOC", "O"))  # fmt: skip
    for method, new in variants(original, own, copies=40, scheme="bio", word_fraction=0.4):
        words = dict(zip(new.words, new.tags, strict=True))
        assert "ann" not in words and "Ann" not in words and new.words[-1] == "."
        assert "motion picture" not in words
        if method in ("synonyms", "insert"):
            assert words["Anna"] == "B-PER" and words["Rome"] == "B-LOC"
            assert {words[w] for w in ("movie", "fine") if w in words} <= {"O"}


def test_parts_of_speech_go_with_their_words(own: str) -> None:
    kinds = {"the": "DET", "good": "ADJ", "film": "NOUN", "runs": "VERB", "fine": "ADJ",
             "movie": "NOUN", ".": "PUNCT"}  # fmt: skip
    words = ("the", "good", "film", "runs", ".")
    original = TaggedExample(words, tuple(kinds[word] for word in words))
    for _, new in variants(original, own, copies=40, word_fraction=0.5):
        assert new.tags == tuple(kinds[word] for word in new.words)


def test_words_without_tags_stay_without(own: str) -> None:
    assert all(new.tags is None for _, new in variants(TaggedExample(("a", "good", "film")), own))


# -- answers


@few(60)
@given(st.integers(0, 10_000))
def test_answers_are_where_they_say(own: str, seed: int) -> None:
    passage = "The good film was made in New York, a good city; New York is like Rome."
    answers = (AnswerSpan("New York", 26), AnswerSpan("York, a", 30), AnswerSpan("New York", 49))
    original = Question("Where was the good film made?", passage, answers, id="q")
    for _, new in variants(original, own, seed=seed, copies=6, word_fraction=0.4):
        assert [answer.text for answer in new.answers] == ["New York", "York, a", "New York"]
        for answer in new.answers:
            assert new.passage.startswith(answer.text, answer.start)
        assert new.question == original.question or new.passage == original.passage


def test_questions_without_answers(own: str) -> None:
    original = Question("Who likes the film?", "A good film was made in Rome.", (), True)
    results = [new for _, new in variants(original, own, copies=20)]
    assert all(new.impossible and not new.answers for new in results)
    assert any(new.passage != original.passage for new in results)


# -- words


def test_chinese_words_are_changed_whole(own: str) -> None:
    original = LabeledExample("我喜欢自然语言处理，它很有趣。", label="好")
    results = {method: new.text for method, new in variants(original, own)}
    assert "热爱" in results["synonyms"] or "好玩" in results["synonyms"]
    assert " " not in "".join(results.values())
    assert sorted(results["swap"]) == sorted(original.text)


def test_texts_without_words(own: str) -> None:
    assert {new.text for _, new in variants(LabeledExample("?!", label="x"), own)} == {"?!"}
    assert {new.text for _, new in variants(LabeledExample("good", label="x"), own)} == {
        "good",
        "fine",
    } | {"fine good"}


# -- the seed


def test_the_seed_decides(own: str) -> None:
    examples = [replace(FILM, text=f"{FILM.text} number {i}") for i in range(2 * CHUNK + 5)]
    settings = AugmentSettings(METHODS, copies=4, thesaurus=own, seed=5)
    first = list(augmented(examples, settings))
    assert first == list(augmented(examples, settings)) and len(first) == len(examples)
    assert first != list(augmented(examples, replace(settings, seed=6)))
    alone = Augmenter(settings).variants(examples[CHUNK : CHUNK + 3], CHUNK)
    assert alone == first[CHUNK : CHUNK + 3]  # whatever else is asked for


@pytest.mark.slow  # each process imports torch
def test_several_processes_make_the_same(tmp_path: Path) -> None:
    examples = [replace(FILM, text=f"{FILM.text} number {i}") for i in range(CHUNK + 5)]
    own = str(listed(tmp_path / "own.tsv", "film\tmovie", "old hat\tdated"))
    settings = AugmentSettings(METHODS, copies=2, thesaurus=own)
    notes, others = list[str](), list[str]()
    results = list(augmented(examples, settings, 2, notes))
    assert results == list(augmented(examples, settings, 1, others))
    assert notes == others and "such as 'old hat'" in notes[0]


# -- refusals


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"methods": ()}, "no method; give some of synonyms, insert, swap, delete, masked, back"),
        ({"methods": ("swap", "swap")}, "named twice"),
        ({"word_fraction": 0.0}, "word_fraction is 0; it must be above 0 and at most 1"),
        ({"copies": 0}, "copies is 0"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
        ({"copies": 1.5}, "copies is 1.5; it must be a whole number"),
        ({"copies": float("inf")}, "copies is inf"),
        ({"thesaurus": "own.tsv"}, "no method that looks words up; ask for synonyms or insert"),
        ({"source": "code"}, "source 'code', and no method that inserts words"),
        ({"top_k": 3}, "top_k 3, and no method that asks a masked model"),
        ({"methods": ("masked",)}, "'masked' is asked for without a masked model"),
        ({"away": "x"}, "'back' is not asked for, but there is a model that translates"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        AugmentSettings(**({"methods": ("swap",)} | changes))


def test_unknown_names() -> None:
    with pytest.raises(UnknownName, match="unknown method 'synonym'; did you mean 'synonyms'"):
        AugmentSettings(("synonym",))
    with pytest.raises(UnknownName, match="unknown source 'codes'; did you mean 'code'"):
        AugmentSettings(("swap",), source="codes")


@pytest.mark.parametrize(
    ("example", "named"),
    [
        (TextPair("a", "b"), "its target has to say the same"),
        (DialogueExample(("a", "b")), "a reply has to"),
    ],
)
def test_tasks_whose_answer_would_have_to_change(example: Example, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Augmenter(AugmentSettings(("swap",))).variants([example])


def test_models_take_one_process(tmp_path: Path) -> None:
    settings = AugmentSettings(("masked",), masked=str(tmp_path))
    with pytest.raises(ConfigError, match="all cores of one process"):
        list(augmented([FILM], settings, 2))
