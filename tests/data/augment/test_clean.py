"""Texts as the code of Wei & Zou prepares them."""

from __future__ import annotations

import pytest

from regard.core.errors import ConfigError
from regard.data.augment.clean import clean_example, clean_text
from regard.data.examples import (
    AnswerSpan,
    Example,
    LabeledExample,
    MultipleChoice,
    Question,
    TaggedExample,
    TextPair,
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  It's a Well-known FILM,\tin 1990!", "its a well known film in"),
        ("A café…", "a caf"),  # as the code has it
        ("1990!", "1990!"),  # nothing would be left
        ("我喜欢这部 Netflix 电影", "我喜欢这部 Netflix 电影"),
        ("Я люблю Netflix!", "Я люблю Netflix!"),
        ("ネットフリックス and more", "ネットフリックス and more"),
    ],
)
def test_texts(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


def test_all_texts_of_an_example() -> None:
    assert clean_example(LabeledExample("A FILM!", label="X")) == LabeledExample(
        "a film", label="X"
    )
    assert clean_example(LabeledExample("A!", "B?", 2.5, id="Q1")) == LabeledExample(
        "a", "b", 2.5, id="Q1"
    )
    example = MultipleChoice("It RAINED.", ("Wet!", "Dry!"), "Effect", 1)
    assert clean_example(example) == MultipleChoice("it rained", ("wet", "dry"), "Effect", 1)
    years = MultipleChoice("When?", ("In 1990", "In 1991"), None, 1)  # they would become the same
    assert clean_example(years) == MultipleChoice("when", years.choices, None, 1)
    example = Question("Who?", "Nobody!", (), True)
    assert clean_example(example) == Question("who", "nobody", (), True)


@pytest.mark.parametrize(
    "example",
    [
        TaggedExample(("A", "film"), ("O", "O")),
        TextPair("A film", "Ein Film"),
        Question("Who?", "It was Anna.", (AnswerSpan("Anna", 7),)),
    ],
)
def test_what_would_no_longer_fit(example: Example) -> None:
    with pytest.raises(ConfigError, match="about the words as they are written: leave it out"):
        clean_example(example)
