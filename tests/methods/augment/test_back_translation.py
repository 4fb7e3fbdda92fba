"""There and back again, with two models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.api import load
from regard.core.errors import ConfigError
from regard.data.augment.examples import AugmentSettings
from regard.data.examples import LabeledExample, MultipleChoice, Question, TaggedExample, TextPair
from regard.evaluation.text_predictor import TextPredictor
from regard.methods.augment.back_translation import BackTranslator, respaced
from regard.methods.augment.processes import build
from tests.methods.augment.small import fates, translator

TEXT = " the film was dull.  A plot was warm!\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A T5 of ours, and a directory as Marian has it."""
    place = tmp_path_factory.mktemp("models")
    return str(translator(place / "t5", "t5", 3)), str(translator(place / "marian", "marian", 5))


def settings(models: tuple[str, str], **changes: Any) -> AugmentSettings:
    given: dict[str, Any] = {
        "away": models[0], "home": models[1], "prefixes": ("", None), "copies": 2, "num_beams": 2,
    }  # fmt: skip
    return AugmentSettings(("back",), **(given | changes))


def test_it_is_one_translation_after_the_other(models: tuple[str, str]) -> None:
    away, home = load(models[0]), load(models[1])
    made = BackTranslator(away, home, beams=2, prefixes=("", None))(["the film was dull", TEXT])
    first = TextPredictor(away, task="translate", prefix="", num_beams=2)
    second = TextPredictor(home, task="translate", num_beams=2)

    def through(text: str) -> str:
        there = str(first([TextPair(text)])[0].value).strip()
        return (str(second([TextPair(there)])[0].value).strip() if there else "") or text

    assert made[0] == through("the film was dull") != "the film was dull"
    one, two = through("the film was dull."), through("A plot was warm!")
    assert made[1] == f" {one}  {two}\n"


def test_draws_differ_and_come_again(models: tuple[str, str]) -> None:
    away, home = load(models[0]), load(models[1])
    drawn = BackTranslator(away, home, seed=1, temperature=0.9, prefixes=("", None))
    first = drawn(["the film was dull"] * 3)
    assert len(set(first)) > 1 and first == drawn(["the film was dull"] * 3)
    assert first != drawn(["the film was dull"] * 3, first=100)
    other = BackTranslator(away, home, seed=2, temperature=0.9, prefixes=("", None))
    assert first != other(["the film was dull"] * 3)


def test_labels_stay(models: tuple[str, str]) -> None:
    examples = [
        LabeledExample("the film was dull", label="bad"),
        LabeledExample("the film was dull", "a plot was warm", "neutral"),
        MultipleChoice("the film was dull", ("a plot", "the actor was poor"), None, 1),
        Question("the film", "the plot was warm", (), True),
    ]
    made = build(settings(models, num_beams=0)).variants(examples)
    assert [len(each) for each in made] == [2, 2, 2, 2]
    one, two, three, four = ([v.example for v in each] for each in made)
    assert all(e.label == "bad" and e.text != "the film was dull" for e in one)  # type: ignore[union-attr]
    assert all(e.label == "neutral" for e in two)  # type: ignore[union-attr]
    assert all(e.label == 1 and len(e.choices) == 2 for e in three)  # type: ignore[union-attr]
    assert all(e.passage == "the plot was warm" and e.impossible for e in four)  # type: ignore[union-attr]
    assert made == build(settings(models, num_beams=0)).variants(examples)


def test_a_source_for_a_target(models: tuple[str, str], tmp_path: Path) -> None:
    """Sennrich et al. 2016: what is learned is what people wrote."""
    model = str(translator(tmp_path / "t5", "t5", 5))
    kept, lost = fates(model)
    (one, new), (two, other) = list(kept.items())[:2]
    given = [TextPair("x", one), TextPair("y", lost[0]), TextPair("z", f"{one}\n\n{two}"),
             TextPair("w", f"{one}\n\n{lost[0]}")]  # fmt: skip
    made: Any = build(settings((model, ""), copies=1)).variants(given)
    assert [v.example.target for (v,) in made] == [pair.target for pair in given]
    # a target of which a sentence is lost is no source: that would teach to copy it
    assert [v.example.source for (v,) in made] == [new, "y", f"{new}\n\n{other}", "w"]
    with pytest.raises(ConfigError, match=r"by one model \(--back\)"):
        build(settings(models)).variants(given)
    with pytest.raises(ConfigError, match="no target"):
        build(settings(models, home="")).variants([TextPair("x")])


def test_what_is_refused(models: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="a translation has other words"):
        build(settings(models)).variants([TaggedExample(("a",), ("O",))])
    with pytest.raises(ConfigError, match="is in another language; give the model for the way"):
        build(settings(models, home="")).variants([LabeledExample("a", label="x")])
    with pytest.raises(ConfigError, match="temperature 0"):
        BackTranslator(load(models[1]), temperature=0)
    with pytest.raises(ConfigError, match="has to be told the languages"):
        build(settings(models, prefixes=(None, None)))


@pytest.mark.parametrize(
    ("old", "new", "made"),
    [(" a b\n", "c", " c\n"), ("a", "c d", "c d"), ("  \n", "", "  \n"), ("", "", "")],
)
def test_white_space_is_kept(old: str, new: str, made: str) -> None:
    assert respaced(old, new) == made


@pytest.mark.parametrize(
    ("old", "new", "made"),
    [
        (["他来了。", "她走了。"], ["He came.", "She left."], "He came. She left."),
        (["“走！”", "她走了。"], ["“Go!”", "She left."], "“Go!” She left."),
        (["He came.", " She left."], ["He was here.", "She went."], "He was here. She went."),
        (["他来了。", "她走了。"], ["他到了。", "她离开了。"], "他到了。她离开了。"),
        (["“走！”", "OK。"], ["“去！”", "OK。"], "“去！”OK。"),
        (["他来了。", "她走了。"], ["He came.", ""], "He came.她走了。"),  # lost: it stays
    ],
)
def test_sentences_do_not_grow_together(
    models: tuple[str, str], old: list[str], new: list[str], made: str
) -> None:
    back = BackTranslator(load(models[0]), load(models[1]), prefixes=("", None))
    assert back.put_together(old, new) == made


def test_beams_are_asked_once_for_each_text(
    models: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = list[int](), TextPredictor.answers

    def answers(self: TextPredictor, examples: Any, number: int) -> Any:
        asked.append(len(examples))
        return plain(self, examples, number)

    monkeypatch.setattr(TextPredictor, "answers", answers)
    examples = [
        LabeledExample("the film was dull", label="bad"),
        LabeledExample("the plot", label="good"),
    ]
    searches = build(settings(models, copies=5))
    made: Any = searches.variants(examples)
    assert asked == [2, 2] and [len({v.example.text for v in each}) for each in made] == [1, 1]
    assert any("its variants by 'back' repeat it" in note for note in searches.notes)
    draws = build(settings(models, copies=5, num_beams=0))
    made = draws.variants(examples)
    assert asked[2:] == [10, 10] and any(len({v.example.text for v in e}) > 1 for e in made)
    assert draws.notes == build(settings(models, copies=1)).notes == []
