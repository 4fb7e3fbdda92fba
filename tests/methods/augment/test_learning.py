"""Variants on the fly: encoded when they are read, by a key, and only to learn from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.cli.main import main
from regard.core.errors import ConfigError, InputError, UnknownName
from regard.data.augment.examples import AugmentSettings
from regard.data.examples import LabeledExample, MultipleChoice, TaggedExample
from regard.data.words import chinese_cutter
from regard.methods.augment.learning import ExampleVariants, check
from regard.methods.augment.processes import build
from regard.methods.finetune.run import finetune
from regard.methods.runs import data_for
from regard.tasks.choose import Choose
from regard.tasks.classify import Classify
from regard.training.build import resolved
from regard.training.data import BuiltData
from regard.training.recipe import Recipe, replaced
from regard.training.resolve import MachineFacts
from tests.methods.augment.small import listed
from tests.tasks import judging, tagging, tuning
from tests.tasks.tuning import stop as stop
from tests.training.test_never_lost import bits

TEXTS = ["a b c d e f g h", "c d e a f", "g h i j k l b a c"]


def varied(made: Any, *methods: str, chance: float = 1.0, seed: int = 1, scheme: str = "") -> Any:
    settings = AugmentSettings(methods or ("swap", "delete"), word_fraction=0.3, scheme=scheme)
    made.variants = ExampleVariants(build(settings), chance, seed)
    return made


def classify(family: str, *, pairs: bool = False, task: str = "classify") -> Any:
    given = [
        LabeledExample(text, "k l a" if pairs else None, "xy"[i % 2])
        for i, text in enumerate(TEXTS)
    ]
    return judging.build(Classify, family, judging.examples(task, given, ["x", "y"]))


def equal(a: Any, b: Any) -> bool:
    same = all(np.array_equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)
    return a.keys() == b.keys() and same


def content(sample: Any) -> list[str]:
    words = [judging.VOCABULARY[i] for i in sample["tokens"]]
    return [word for word in words if word not in judging.MARKS.values()]


@pytest.mark.parametrize("family", judging.FAMILIES)
def test_a_chance_of_nothing_changes_nothing(family: str) -> None:
    plain, made = classify(family), varied(classify(family), chance=0.0)
    for epoch in range(3):
        assert np.array_equal(plain.order(epoch), made.order(epoch))
        for index in range(3):
            assert equal(plain.sample(epoch, index), made.sample(epoch, index))


@pytest.mark.parametrize("family", judging.FAMILIES)
@pytest.mark.parametrize("pairs", [False, True])
def test_a_variant_is_framed_as_its_example(family: str, pairs: bool) -> None:
    plain, made = classify(family, pairs=pairs), varied(classify(family, pairs=pairs), "swap")
    assert (plain.longest, plain.max_len) == (made.longest, made.max_len)
    different = 0
    for index in range(3):
        a, b = plain.sample(0, index), made.sample(0, index)
        assert {name: v.dtype for name, v in a.items()} == {name: v.dtype for name, v in b.items()}
        assert a["gold"] == b["gold"] and a["share"] == b["share"]
        assert np.array_equal(a["segments"], b["segments"])
        assert sorted(content(a)) == sorted(content(b))  # a swap
        different += content(a) != content(b)
    assert different
    batch = made.collate([made.sample(0, index) for index in range(3)])
    assert set(batch) == set(plain.collate([plain.sample(0, index) for index in range(3)]))


def test_both_orders_of_similar_texts() -> None:
    given = [LabeledExample(text, "k l a b", "xy"[i % 2]) for i, text in enumerate(TEXTS)]
    held = judging.examples("similar", given, ["x", "y"])
    made = varied(judging.build(Classify, "gpt", held), "swap")
    sample = made.sample(0, 0)
    assert len(sample["lengths"]) == 2 and sample["lengths"].sum() == len(sample["tokens"])
    first, second = np.split(sample["tokens"], [sample["lengths"][0]])
    assert sorted(first) == sorted(second) and list(first) != list(second)


def test_a_sample_is_a_function_of_its_key() -> None:
    made, again = varied(classify("bert")), varied(classify("bert"))
    forwards = [made.sample(e, i) for e in range(4) for i in range(3)]
    backwards = [again.sample(e, i) for e in reversed(range(4)) for i in reversed(range(3))][::-1]
    assert all(equal(a, b) for a, b in zip(forwards, backwards, strict=True))
    assert len({tuple(made.sample(epoch, 0)["tokens"]) for epoch in range(12)}) > 4
    other = varied(classify("bert"), seed=2)
    assert not all(equal(made.sample(e, 0), other.sample(e, 0)) for e in range(6))


def test_half_of_the_examples() -> None:
    made, plain = varied(classify("bert"), "swap", chance=0.5), classify("bert")
    same = [equal(made.sample(e, i), plain.sample(e, i)) for e in range(100) for i in range(3)]
    assert 0.4 < sum(same) / 300 < 0.7  # a swap may find no second word


def test_what_is_longer_than_all_examples_is_not_read(tmp_path: Path) -> None:
    file = listed(tmp_path / "own.tsv", "a\tb b b b b b", "c\td")
    made = classify("bert")
    settings = AugmentSettings(("insert",), word_fraction=1.0, thesaurus=str(file))
    made.variants = ExampleVariants(build(settings), 1.0, 1)
    sizes = [len(made.sample(epoch, i)["tokens"]) for epoch in range(20) for i in range(3)]
    assert max(sizes) <= made.max_len and len(set(sizes)) > 3


def test_choices_on_the_fly() -> None:
    for family in judging.FAMILIES:
        given = [
            MultipleChoice("a b c d", ("e f g", "h i j k"), "cause", 1),
            MultipleChoice("c d e", ("f", "g"), None, 0),
        ]
        made = varied(judging.build(Choose, family, judging.examples("choose", given)), "swap")
        plain = judging.build(Choose, family, judging.examples("choose", given))
        for index in range(2):
            a, b = made.sample(1, index), plain.sample(1, index)
            assert a.keys() == b.keys() and np.array_equal(a["lengths"], b["lengths"])
            assert a["gold"] == b["gold"] and sorted(a["tokens"]) == sorted(b["tokens"])
        made.collate([made.sample(0, 0), made.sample(0, 1)])


@pytest.mark.parametrize("family", tagging.FAMILIES)
def test_tags_on_the_fly(family: str) -> None:
    words = tagging.pieces()
    examples = [*tagging.sentences(12), TaggedExample(("anna",) * 60, ("B-PER",) * 60)]
    plain = tagging.objective(examples, words, family)
    made = varied(tagging.objective(examples, words, family), scheme="bio")
    assert plain.long == made.long == 1
    different = 0
    for epoch in range(4):
        for index in range(len(plain)):
            a, b = made.sample(epoch, index), plain.sample(epoch, index)
            assert {n: v.dtype for n, v in a.items()} == {n: v.dtype for n, v in b.items()}
            assert len(a["tokens"]) == len(a["labels"]) == len(a["segments"]) <= made.max_len
            different += not equal(a, b)
            pairs = set(zip(b["tokens"].tolist(), b["labels"].tolist(), strict=True))
            assert set(zip(a["tokens"].tolist(), a["labels"].tolist(), strict=True)) <= pairs
            if index >= 12:
                assert equal(a, b)  # a sentence in several windows stays as it is
    assert different > 12
    made.collate([made.sample(0, index) for index in range(len(made))])


# -- from a recipe


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    tuning.bert(place / "bert")
    tuning.write(place / "reviews.jsonl", tuning.reviews(60))
    listed(place / "own.tsv", "film\tplot", "warm\tgreat", "dull\tpoor", "plot\tfilm")
    return place


def recipe(place: Path, **augment: Any) -> Recipe:
    given = {"methods": ["synonyms", "delete"], "thesaurus": str(place / "own.tsv")} | augment
    return tuning.recipe(place / "bert", place / "reviews.jsonl", augment=given)


def built(made: Recipe) -> BuiltData:
    data = data_for(made)
    return data.build(resolved(made, data, MachineFacts()))


def objective_of(made: Recipe) -> Any:
    return built(made).objective


def test_a_recipe_asks_for_variants_of_what_learns(place: Path) -> None:
    learns, validates, made = built(recipe(place, prob=1.0))
    assert learns.variants is not None and validates.variants is None  # type: ignore
    assert made.augment.word_fraction == 0.05 and made.augment.digest  # settled
    assert validates is not None
    rows = [validates.sample(e, 0)["tokens"].tolist() for e in range(5)]
    assert rows.count(rows[0]) == 5
    rows = [learns.sample(e, 0)["tokens"].tolist() for e in range(9)]
    assert rows.count(rows[0]) < 9


def test_without_methods_there_are_none(place: Path) -> None:
    made = tuning.recipe(place / "bert", place / "reviews.jsonl")
    assert objective_of(made).variants is None


def test_a_run_is_the_same_again_and_resumed(place: Path, tmp_path: Path, stop: list[int]) -> None:
    whole = finetune(recipe(place), tmp_path / "whole", display="silent")
    stop += [12 + 5]
    half = finetune(recipe(place), tmp_path / "half", display="silent")
    assert (whole["outcome"], half["outcome"]) == ("done", "interrupted")
    finetune(Recipe(), tmp_path / "half", resume=True, display="silent")
    assert bits(tmp_path / "half") == bits(tmp_path / "whole")
    plain = tuning.recipe(place / "bert", place / "reviews.jsonl")
    finetune(plain, tmp_path / "plain", display="silent")
    assert bits(tmp_path / "plain") != bits(tmp_path / "whole")


def test_a_student_reads_variants(place: Path, tmp_path: Path) -> None:
    teacher = tuning.recipe(place / "bert", place / "reviews.jsonl", budget={"steps": 1})
    finetune(teacher, tmp_path / "teacher", display="silent")
    distilled = {"name": "distill", "of": "classify", "teacher": str(tmp_path / "teacher")}
    made = recipe(place, methods=["swap"], thesaurus="", prob=1.0)
    found = objective_of(replaced(made, objective=distilled))
    assert len({tuple(found.sample(epoch, 0)["tokens"]) for epoch in range(9)}) > 1


def test_another_thesaurus_is_another_run(place: Path, tmp_path: Path) -> None:
    file = listed(tmp_path / "own.tsv", "film\tplot")
    made = built(recipe(place, thesaurus=str(file))).config
    listed(file, "film\tmusic")
    with pytest.raises(InputError, match="has changed since this run began"):
        objective_of(made)


def test_the_command(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["finetune", str(place / "bert"), "--task", "classify", "--quiet",
             "--data", str(place / "reviews.jsonl"), "batch.size=8", "budget.steps=2",
             "engine.compile=no"]  # fmt: skip
    asked = ["--augment", "synonyms, delete", "--thesaurus", str(place / "own.tsv")]
    assert main([*words, "--out", str(tmp_path / "run"), *asked]) == 0
    text = (tmp_path / "run" / "recipe.toml").read_text(encoding="utf-8")
    assert '"synonyms",' in text and "own.tsv" in text
    wrong = [*words, "--out", str(tmp_path / "wrong"), "--augment"]
    assert main([*wrong, "synonyms,back"]) == 2 and not (tmp_path / "wrong").exists()
    assert "write the variants once with 'regard augment'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [("prob", "1.0"), ("word_fraction", "0.2"), ("source", "code"), ("language", "en"),
     ("top_k", "9"), ("model", "nowhere"), ("thesaurus", "own.tsv")],
)  # fmt: skip
def test_numbers_without_methods_are_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    """Else it would learn plainly, and nobody would know."""
    words = ["finetune", str(place / "bert"), "--task", "classify", "--quiet", "budget.steps=1",
             "--data", str(place / "reviews.jsonl"), "--out", str(tmp_path / "run")]  # fmt: skip
    assert main([*words, f"augment.{name}={value}"]) == 2
    shown = value if name in ("prob", "word_fraction", "top_k") else repr(value)
    assert f"augment.{name} is {shown}, and there is no method" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"augment": {"methods": ["swaps"]}}, UnknownName, "did you mean 'swap'"),
        ({"augment": {"methods": ["back"]}}, ConfigError, "longer than learning"),
        ({"augment": {"methods": ["masked"]}}, ConfigError, "without a masked model"),
        ({"augment": {"methods": []}}, ConfigError, "no method"),
        ({"augment": {"methods": ["swap"], "top_k": 9}}, ConfigError, "top_k 9, and no method"),
        (
            {"augment": {"methods": ["swap"]}, "examples": {"task": "answer"}},
            ConfigError,
            "answer is",
        ),
        (
            {"augment": {"methods": ["swap"]}, "objective": {"name": "pairs"}},
            ConfigError,
            "on the fly",
        ),
    ],
)
def test_what_is_refused(place: Path, changes: Any, error: Any, told: str) -> None:
    made = tuning.recipe(place / "bert", place / "reviews.jsonl", **changes)
    with pytest.raises(error, match=told):
        check(made)


def test_a_chance_beyond_one(place: Path) -> None:
    made = recipe(place, prob=1.5)
    with pytest.raises(ConfigError, match=r"augment\.prob is 1\.5"):
        objective_of(made)


def test_models_that_write_are_refused_at_once(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["finetune", str(tuning.model(tmp_path / "t5", "t5")), "--task", "classify", "--data",
             str(place / "reviews.jsonl"), "--augment", "swap"]  # fmt: skip
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "classify by t5 is not varied on the fly" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_chinese_without_jieba_is_refused_at_once(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [*tuning.reviews(20), {"text": "很好的电影", "label": "good"}]
    mixed = tuning.write(tmp_path / "mixed.jsonl", rows)
    made = tuning.recipe(place / "bert", mixed, augment={"methods": ["swap"]})
    chinese_cutter.cache_clear()
    monkeypatch.setitem(sys.modules, "jieba", None)
    try:
        with pytest.raises(ConfigError, match="jieba, which is not installed"):
            objective_of(made)
        made = replaced(made, augment={"language": "en"})
        assert objective_of(made).variants is not None
    finally:
        chinese_cutter.cache_clear()
