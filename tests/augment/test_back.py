"""There and back again, with two models."""

from __future__ import annotations

from typing import Any

import pytest

from regard.augment.back import Back, respaced
from regard.augment.examples import Settings
from regard.errors import ConfigError
from regard.exchange.directory import load
from regard.tasks.as_text import TextPredictor
from regard.tasks.examples import Choice, Labelled, Pair, Question, Tagged
from tests.augment.small import translator

TEXT = " the film was dull.  A plot was warm!\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A T5 of ours, and a directory as Marian has it."""
    place = tmp_path_factory.mktemp("models")
    return str(translator(place / "t5", "t5", 3)), str(translator(place / "marian", "marian", 5))


def settings(models: tuple[str, str], **changes: Any) -> Settings:
    given: dict[str, Any] = {
        "away": models[0], "home": models[1], "prefixes": ("", None), "copies": 2, "beams": 2,
    }  # fmt: skip
    return Settings(("back",), **(given | changes))


def test_it_is_one_translation_after_the_other(models: tuple[str, str]) -> None:
    away, home = load(models[0]), load(models[1])
    made = Back(away, home, beams=2, prefixes=("", None))(["the film was dull", TEXT])
    first = TextPredictor(away, task="translate", prefix="", beams=2)
    second = TextPredictor(home, task="translate", beams=2)

    def through(text: str) -> str:
        there = str(first([Pair(text)])[0].value).strip()
        return (str(second([Pair(there)])[0].value).strip() if there else "") or text

    assert made[0] == through("the film was dull") != "the film was dull"
    one, two = through("the film was dull."), through("A plot was warm!")
    assert made[1] == f" {one}  {two}\n"


def test_draws_differ_and_come_again(models: tuple[str, str]) -> None:
    away, home = load(models[0]), load(models[1])
    drawn = Back(away, home, seed=1, temperature=0.9, prefixes=("", None))
    first = drawn(["the film was dull"] * 3)
    assert len(set(first)) > 1 and first == drawn(["the film was dull"] * 3)
    assert first != drawn(["the film was dull"] * 3, first=100)
    other = Back(away, home, seed=2, temperature=0.9, prefixes=("", None))
    assert first != other(["the film was dull"] * 3)


def test_labels_stay(models: tuple[str, str]) -> None:
    examples = [
        Labelled("the film was dull", label="bad"),
        Labelled("the film was dull", "a plot was warm", "neutral"),
        Choice("the film was dull", ("a plot", "the actor was poor"), None, 1),
        Question("the film", "the plot was warm", (), True),
    ]
    made = settings(models, beams=0).build().variants(examples)
    assert [len(each) for each in made] == [2, 2, 2, 2]
    one, two, three, four = ([v.example for v in each] for each in made)
    assert all(e.label == "bad" and e.text != "the film was dull" for e in one)  # type: ignore[union-attr]
    assert all(e.label == "neutral" for e in two)  # type: ignore[union-attr]
    assert all(e.label == 1 and len(e.choices) == 2 for e in three)  # type: ignore[union-attr]
    assert all(e.passage == "the plot was warm" and e.impossible for e in four)  # type: ignore[union-attr]
    assert made == settings(models, beams=0).build().variants(examples)


def test_a_source_for_a_target(models: tuple[str, str]) -> None:
    """Sennrich et al. 2016: what is learned is what people wrote."""
    given = [Pair("x", "the film was dull"), Pair("y", "the plot")]
    made = settings(models, home="", copies=1).build().variants(given)
    ask = TextPredictor(load(models[0]), task="translate", prefix="", beams=2)
    for (variant,), pair in zip(made, given, strict=True):
        new: Any = variant.example
        assert new.target == pair.target
        assert new.source == (str(ask([Pair(pair.target or "")])[0].value).strip() or pair.target)
    with pytest.raises(ConfigError, match=r"by one model \(--back\)"):
        settings(models).build().variants(given)
    with pytest.raises(ConfigError, match="no target"):
        settings(models, home="").build().variants([Pair("x")])


def test_what_is_refused(models: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="a translation has other words"):
        settings(models).build().variants([Tagged(("a",), ("O",))])
    with pytest.raises(ConfigError, match="is in another language; give the model for the way"):
        settings(models, home="").build().variants([Labelled("a", label="x")])
    with pytest.raises(ConfigError, match="temperature 0"):
        Back(load(models[1]), temperature=0)
    with pytest.raises(ConfigError, match="has to be told the languages"):
        settings(models, prefixes=(None, None)).build()


@pytest.mark.parametrize(
    ("old", "new", "made"),
    [(" a b\n", "c", " c\n"), ("a", "c d", "c d"), ("  \n", "", "  \n"), ("", "", "")],
)
def test_white_space_is_kept(old: str, new: str, made: str) -> None:
    assert respaced(old, new) == made
