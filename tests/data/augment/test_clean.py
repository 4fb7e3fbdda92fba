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
from tests.refusals import refuses


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


YEARS = ("In 1990", "In 1991")  # they would become the same


@pytest.mark.parametrize(
    ("example", "cleaned"),
    [
        (LabeledExample("A FILM!", label="X"), LabeledExample("a film", label="X")),
        (LabeledExample("A!", "B?", 2.5, id="Q1"), LabeledExample("a", "b", 2.5, id="Q1")),
        (MultipleChoice("WET.", ("A!", "B!"), "Do", 1), MultipleChoice("wet", ("a", "b"), "Do", 1)),
        (MultipleChoice("When?", YEARS, None, 1), MultipleChoice("when", YEARS, None, 1)),
        (Question("Who?", "Nobody!", (), True), Question("who", "nobody", (), True)),
    ],
)
def test_all_texts_of_an_example(example: Example, cleaned: Example) -> None:
    assert clean_example(example) == cleaned


@pytest.mark.parametrize(
    "example",
    [
        TaggedExample(("A", "film"), ("O", "O")),
        TextPair("A film", "Ein Film"),
        Question("Who?", "It was Anna.", (AnswerSpan("Anna", 7),)),
    ],
)
def test_what_would_no_longer_fit(example: Example) -> None:
    with refuses(ConfigError, "--clean"):
        clean_example(example)
