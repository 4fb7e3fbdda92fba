"""What is refused before a model is asked, and what becomes of answers that mean nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import ConfigError, InputError, StorageError
from regard.evaluation.preflight import check_language, check_measures, check_place
from regard.evaluation.test import Plan, examine, place, stem, void_note
from regard.methods.finetune.run import finetune
from regard.metrics.labels import Classification
from regard.metrics.text import TranslationMetric
from regard.tasks import task as task_named
from regard.tasks.base import Prediction
from regard.tasks.classify import NONE
from tests.html import Page
from tests.metrics.kinds import KINDS
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.world import World, rows, texts

pytest.importorskip("sklearn")


class Asked:
    """What is measured of a model."""

    def __init__(self, task: str, labels: list[str]) -> None:
        self.task, self.labels = task, labels


def values(task: str, labels: list[str], predicted: list[Any], gold: list[Any]) -> Any:
    return task_named(task).values(labels, [Prediction(value) for value in predicted], gold)


# -- before anything is asked


def test_languages_are_known_by_their_codes() -> None:
    for code in ("", "en", "zh", "zh-CN", "zh_Hans", "pt-BR"):
        check_language(code)
    for name in ("cn", "chinese", "zho", "english"):
        for check in (check_language, lambda code: Plan(language=code)):
            with refuses(ConfigError, "language", f"'{name}'", "ISO 639-1"):
                check(name)


def test_a_place_that_cannot_be_written(tmp_path: Path, world: World) -> None:
    check_place(tmp_path)
    check_place(tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    (tmp_path / "loose").symlink_to(tmp_path / "nowhere")
    for bad in ("file", "file/deep", "loose"):
        with refuses(StorageError, tmp_path / bad.split("/")[0], "--out"):
            check_place(tmp_path / bad)
    with refuses(StorageError, tmp_path / "file"):  # before the model is looked for
        examine("nowhere", ["nothing.jsonl"], Plan(out=tmp_path / "file" / "deep"))


def test_a_place_without_access(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    if os.access(tmp_path / "closed", os.W_OK):
        pytest.skip("who runs this may write everywhere")
    with refuses(StorageError, tmp_path / "closed", "--out"):
        check_place(tmp_path / "closed" / "new")


@pytest.mark.parametrize("library", ["sklearn", "scipy", "seqeval", "sacrebleu", "rouge_score"])
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for metric in KINDS.values():
        if any(name.startswith(library) for name in metric.libraries):
            with refuses(InputError, f"'{library}'", "pip install 'regard[tasks]'"):
                check_measures(metric, "a task", "en")


def test_no_answers_are_lost_to_a_missing_library(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with refuses(InputError, "classify", "'sklearn'"):
        examine(world.run("reviewer"), [world.data("classify")], Plan(out=tmp_path / "t"))
    assert not (tmp_path / "t").exists()


def test_a_language_that_needs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sacrebleu")
    check_measures(TranslationMetric, "translate", "de")
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with refuses(InputError, "language 'ja'"):
        check_measures(TranslationMetric, "translate", "ja")


def test_every_library_that_measures_is_known() -> None:
    own: dict[str, list[Any]] = {
        "tag": [["B-x"], ["O"]], "words": [["x"], ["y"]], "similar": [1.0, 2.0], "choose": [0, 1],
    }  # fmt: skip
    for name, metric in KINDS.items():
        assert metric.libraries or name in ("answer", "model")
        for library in metric.libraries:
            pytest.importorskip(library.partition(".")[0])
        right = own.get(name, ["x", "y"])
        assert not metric.libraries or metric(right, right).figures


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("wnut17.dev.conll.gz", "wnut17-dev"), ("wnut17.test.conll.gz", "wnut17-test"),
        ("data/test.jsonl", "test"), ("test.en", "test-en"), ("book.txt.zst", "book"),
        ("prepared.v2/", "prepared-v2"), ("hub:glue/sst2", "sst2"), (".jsonl", "jsonl"),
    ],
)  # fmt: skip
def test_results_are_named_after_their_data(name: str, short: str, tmp_path: Path) -> None:
    assert stem(name) == short
    assert place(str(tmp_path), [name], Plan()) == tmp_path / f"test-{short}"


# -- answers that mean nothing


def test_a_text_that_is_no_label_is_wrong_whatever_it_says() -> None:
    predicted, gold = ["a", "b", "odd", "prose", "rhyme"], ["a", "a", "odd", "a", "b"]
    assert values("classify", ["a", "b"], predicted, gold) == (["a", "b", NONE, NONE, NONE], 3)
    assert values("entail", ["a", "b"], predicted, gold)[1] == 3
    assert values("similar", ["a", "b"], predicted, gold)[1] == 3
    assert values("classify", [], predicted, gold) == (["a", "b", "odd", NONE, NONE], 2)
    assert values("answer", [], predicted, gold) == (predicted, 0)


def test_what_is_no_number_counts_as_minus_one() -> None:
    assert values("similar", [], [3.0, float("nan")], [3.0, 1.0]) == ([3.0, -1.0], 1)
    assert values("choose", [], [1, "choice9", 0], [1, 0, 0]) == ([1, "choice9", 0], 1)


def test_notes_of_what_means_nothing() -> None:
    notes = {"classify": "none of the labels", "choose": "none of the choices", "similar": "-1"}
    for task, words in notes.items():
        predictor: Any = Asked(task, ["a"] if task == "classify" else [])
        assert words in void_note(predictor, 1200) and "1,200 answers" in void_note(predictor, 1200)


def test_what_a_model_writes_for_a_label(world: World, tmp_path: Path) -> None:
    records = tuning.reviews(40, seed=9)
    for record in records[:5]:
        record["label"] = "odd"
    data = tuning.write(tmp_path / "new.jsonl", records)
    report = examine(world.run("writer"), [str(data)], Plan(out=tmp_path / "t"))
    predictions = rows(tmp_path / "t")
    void = sum(row["predicted"] not in ("good", "bad") for row in predictions)
    assert void > 0 and all(row["predicted"] != NONE for row in predictions)
    assert report["confusion"]["labels"] == sorted([NONE, "bad", "good", "odd"])
    assert f"{void} answers were none of the labels and count as wrong" in report["notes"][1]
    right = sum(row["predicted"] == row["gold"] != "odd" for row in predictions)
    assert report["figures"]["accuracy"] == pytest.approx(right / 40)
    shown = [row["predicted"] for row in report["worst"] if row["predicted"].endswith(NONE)]
    assert shown and shown[0] in Page((tmp_path / "t/report.html").read_text("utf-8")).text


# -- two names of one task


def test_entailment_is_classification(world: World, tmp_path: Path) -> None:
    assert task_named("entail").metric(["a"]) is Classification
    data = [world.data("entail")]
    plan = Plan(out=tmp_path / "t", against=world.run("reviewer"), resamples=60)
    report = examine(world.run("entailer"), data, plan)
    assert report["task"] == "entail" and report["comparison"]["names"] == ["reviewer", "entailer"]
    assert report["comparison"]["resamples"] == report["resamples"] == 60
    back = Plan(out=tmp_path / "t", against=world.run("writing-entailer"), task="classify")
    report = examine(world.run("writing-entailer"), data, back)
    assert report["task"] == "entail" and report["comparison"]["differing"] == 0


def test_scores_are_not_compared_with_classes(world: World, tmp_path: Path) -> None:
    records = [
        {"a": text, "b": "the plot", "similarity": ("no", "yes")[i % 2]}
        for i, text in enumerate(texts(20, 3))
    ]
    data = tuning.write(tmp_path / "classes.jsonl", records)
    recipe = tuning.recipe(
        Path(world.model("bert")), data, budget={"steps": 1},
        examples={"task": "similar", "classes": True},
    )  # fmt: skip
    finetune(recipe, tmp_path / "classes", display="silent")
    with refuses(ConfigError, "similar", "scores", "classes"):
        plan = Plan(out=tmp_path / "t", against=str(tmp_path / "classes"))
        examine(world.run("judge"), [world.data("similar")], plan)


# -- a published T5


def test_a_published_t5_is_told_the_languages(world: World, tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    data = [world.data("translate", 4)]
    plan = Plan(out=tmp_path / "t", task="translate", decoding={"max_new_tokens": 3})
    with refuses(ConfigError, "prefix='translate English to German: '"):
        examine(world.model("t5"), data, plan)
    decoding = {"max_new_tokens": 3, "prefix": "translate English to German: "}
    plan = Plan(out=tmp_path / "t", task="translate", decoding=decoding,
                against=world.run("translator"))  # fmt: skip
    assert examine(world.model("t5"), data, plan)["comparison"]["names"] == ["translator", "t5"]
    with refuses(ConfigError, "task.json"):
        examine(world.run("translator"), data, Plan(out=tmp_path / "t", decoding=decoding))
