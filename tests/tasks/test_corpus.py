"""Labeled examples in the place of a corpus: how they are divided, and what is settled."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.errors import ConfigError, FormatError, InputError, UnknownName
from regard.data.examples import LabeledExample, MultipleChoice, Question, TaggedExample
from regard.data.problems import FileLine, Problems
from regard.methods.finetune.run import finetune
from regard.tasks import task
from regard.tasks.corpus import (
    digest_of,
    divide,
    files_of,
    labeled_data,
    read_all,
    tokenizer_of,
)
from regard.training.recipe import Recipe, replaced
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.tuning import stop as stop

CLASSES = {"common": 70, "rarer": 20, "rare": 10}


def labeled() -> list[LabeledExample]:
    return [LabeledExample(f"{name} {i}", None, name) for name, count in CLASSES.items()
            for i in range(count)]  # fmt: skip


def validation_part(
    examples: list[Any], share: float = 0.1, folds: int = 0, fold: int = 0
) -> list[Any]:
    inside = divide(examples, share, folds, fold)
    return [example for example, valid in zip(examples, inside, strict=True) if valid]


# -- dividing


@pytest.mark.parametrize("share", [0.1, 0.2, 0.35])
def test_classes_keep_their_shares(share: float) -> None:
    counts = Counter(example.label for example in validation_part(labeled(), share))
    for name, count in CLASSES.items():
        assert abs(counts[name] - share * count) <= 1, (name, counts)
    assert sum(counts.values()) == pytest.approx(share * 100, abs=1)


def test_the_order_of_the_file_decides_nothing() -> None:
    examples = [
        *labeled(),
        LabeledExample("common 3", None, "rare"),
        LabeledExample("rare 3", None, "rare"),
    ]
    expected = {(e.text, e.label) for e in validation_part(examples)}
    for seed in range(5):
        random.Random(seed).shuffle(examples)
        assert {(e.text, e.label) for e in validation_part(examples)} == expected


def test_equal_texts_stay_together() -> None:
    """What is learned must not be asked, whatever its label and how often it occurs."""
    examples = [*labeled(), *labeled(), *(LabeledExample(e.text, None, "rare") for e in labeled())]
    for folds in (0, 4):
        texts = Counter(example.text for example in validation_part(examples, 0.1, folds))
        assert texts and set(texts.values()) == {3}


@given(st.integers(2, 9), st.integers(9, 60), st.integers(1, 4))
def test_folds_are_a_partition(folds: int, count: int, classes: int) -> None:
    examples = [LabeledExample(f"text {i}", None, str(i % classes)) for i in range(count)]
    parts = [validation_part(examples, 0.1, folds, fold) for fold in range(folds)]
    assert Counter(e for part in parts for e in part) == Counter(examples)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    for label in {e.label for e in examples}:
        counts = [sum(e.label == label for e in part) for part in parts]
        assert max(counts) - min(counts) <= 1


def test_a_share_of_nothing() -> None:
    assert validation_part(labeled(), 0.0) == []


def test_sentences_are_spread_by_what_they_hold() -> None:
    kinds = ["O", "B-person", "B-place"]
    examples = [TaggedExample((f"w{i}",), (kinds[i % 3],)) for i in range(90)]
    counts = Counter(example.tags for example in validation_part(examples))
    assert set(counts.values()) == {3}


@pytest.mark.parametrize(
    ("share", "folds", "fold", "expected"),
    [
        (1.0, 0, 0, "examples.valid_fraction is 1;"),
        (-0.1, 0, 0, "examples.valid_fraction is -0.1;"),
        (0.1, 1, 0, "part 0 of 1 "),
        (0.1, 101, 0, "part 0 of 101 "),
        (0.1, 5, 5, "part 5 of 5 "),
    ],
)
def test_what_cannot_be_divided(share: float, folds: int, fold: int, expected: str) -> None:
    with refuses(ConfigError, expected):
        divide(labeled(), share, folds, fold)


# -- labels


def test_labels_have_one_order() -> None:
    for names, ordered in (
        (["b", "a", "c", "a"], ["a", "b", "c"]),
        (["10", "9", "-1", "2"], ["-1", "2", "9", "10"]),
        (["10", "9", "x"], ["10", "9", "x"]),
    ):
        examples = [LabeledExample("x", None, name) for name in names]
        assert task("classify").labels_in(examples) == ordered


def test_labels_of_tags() -> None:
    rows = [("B-b", "I-b", "O"), ("B-a", "O", "O")]
    labels = task("tag").labels_in([TaggedExample(("x", "y", "z"), row) for row in rows])
    assert labels[0] == "O" and set(labels) == {"O", "B-a", "I-a", "B-b", "I-b"}
    older = [("I-b", "I-b", "O"), ("I-a", "B-a", "O")]  # iob1 is learned as bio
    assert task("tag").labels_in([TaggedExample(("x", "y", "z"), row) for row in older]) == labels


def test_tags_that_are_no_entities() -> None:
    """Parts of speech are learned as they are; among tags of entities they are refused."""
    rows = [("DT", "NN", "O"), ("VB", "I", "NN")]
    assert task("tag").labels_in([TaggedExample(("x", "y", "z"), row) for row in rows]) == [
        "DT", "I", "NN", "O", "VB",
    ]  # fmt: skip
    with refuses(InputError, "tag", "'NN'"):
        task("tag").labels_in([TaggedExample(("x",), ("NN",))])
    mixed = [
        TaggedExample(("x",), ("B-person",)),
        TaggedExample(("y", "z"), ("O", "NN"), FileLine("a.conll", 3)),
    ]
    with refuses(InputError, "a.conll:3", "word 2", "'z'", "'NN'"):
        task("tag").labels_in(mixed)
    with refuses(InputError, "a.conll:3", "word 2", "'z'"):
        task("tag").check_labels(mixed, ["O", "B-person", "I-person"], "a.conll")
    task("tag").check_labels(mixed, ["DT", "NN"], "a.conll")
    spread = [TaggedExample((f"w{i}",), (["DT", "NN"][i % 2],)) for i in range(40)]
    assert len(validation_part(spread)) == 4


def test_tasks_without_classes() -> None:
    assert task("choose").labels_in([MultipleChoice("p", ("a", "b"), None, 0)]) == []
    assert task("answer").labels_in([Question("q", "p", (), True)]) == []
    assert task("similar").labels_in([LabeledExample("a", "b", 2.5)]) == []


@pytest.mark.parametrize(
    ("labels", "named"),
    [(["a"], ["1 classes", "'a'"]), ([None], ["0 classes", "label"])],
)
def test_one_class_is_too_few(labels: list[str | None], named: list[str]) -> None:
    with refuses(InputError, *named):
        task("classify").labels_in([LabeledExample("x", None, label) for label in labels])


def test_a_label_that_training_never_saw(bert: Path, tmp_path: Path) -> None:
    valid = [*tuning.reviews(4), {"text": "a", "label": "third"}]
    files = [tuning.write(tmp_path / "data.jsonl", tuning.reviews(20)),
             tuning.write(tmp_path / "valid.jsonl", valid)]  # fmt: skip
    recipe = tuning.recipe(bert, files[0], examples={"valid": str(files[1])})
    recipe = replaced(recipe, examples={"labels": labeled_data(recipe, "train").labels})
    with refuses(InputError, "valid.jsonl:5", "'third'", "'bad', 'good'"):
        labeled_data(recipe, "valid")
    task("similar").check_labels([LabeledExample("x", "y", 3.0)], [], "valid.jsonl")


# -- a recipe's examples


def test_both_splits_of_one_file(bert: Path, tmp_path: Path) -> None:
    recipe = tuning.recipe(bert, tuning.write(tmp_path / "r.jsonl", tuning.reviews(50)))
    train = labeled_data(recipe, "train")
    valid = labeled_data(replaced(recipe, examples={"labels": train.labels}), "valid")
    assert len(train) == 45 and len(valid) == 5
    assert not {e.text for e in train.examples} & {e.text for e in valid.examples}  # type: ignore[union-attr]
    assert train.labels == valid.labels == ["bad", "good"]


def test_a_file_of_its_own_and_more_to_learn_from(bert: Path, tmp_path: Path) -> None:
    files = {
        name: str(tuning.write(tmp_path / f"{name}.jsonl", tuning.reviews(count, seed)))
        for name, count, seed in (("data", 30, 0), ("valid", 20, 1), ("extra_data", 10, 2))
    }
    table = {name: files[name] for name in ("valid", "extra_data")}
    recipe = tuning.recipe(bert, Path(files["data"]), examples=table)
    assert len(labeled_data(recipe, "train")) == 40 and len(labeled_data(recipe, "valid")) == 20


def test_records_that_are_left_out_are_told(bert: Path, tmp_path: Path) -> None:
    records = [*tuning.reviews(20), {"text": " ", "label": "good"}]
    file = tuning.write(tmp_path / "r.jsonl", records)
    with refuses(InputError, "empty-text 1", "r.jsonl:21"):
        labeled_data(tuning.recipe(bert, file), "train")
    corpus = labeled_data(tuning.recipe(bert, file, examples={"skip": ["empty-text"]}), "train")
    assert "1 records were left out of the train data: empty-text" in corpus.notes[0]


def test_what_the_reader_says_is_told(bert: Path, tmp_path: Path) -> None:
    """Once, though both splits come from one file."""
    records = [record | {"id": str(min(i, 18))} for i, record in enumerate(tuning.reviews(20))]
    recipe = tuning.recipe(bert, file := tuning.write(tmp_path / "r.jsonl", records))
    assert labeled_data(recipe, "train").notes == [
        f"ids that occur twice (duplicate-id): 1, the first is {file}:20: the id '18' was seen at "
        f"{file}:19"
    ]
    assert labeled_data(recipe, "valid").notes == []
    own = tuning.recipe(bert, file, examples={"valid": str(file), "labels": ["bad", "good"]})
    assert len(labeled_data(own, "valid").notes) == 1


def test_notes_come_with_errors_first() -> None:
    problems = Problems()
    problems.add(FileLine("a", 1), "blank-line", "the line is empty", "note")
    for line in (2, 3):
        problems.add(FileLine("a", line), "empty-text", "the text is empty")
    assert problems.notes() == [
        "2 records were left out: empty-text (as --skip empty-text asks)",
        "lines without content (blank-line): 1, the first is a:1: the line is empty",
    ]
    assert Problems().notes() == []


def test_columns_by_number_and_a_header(bert: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("".join(f"{i},a film,{'ab'[i % 2]}\n" for i in range(4)))
    recipe = tuning.recipe(bert, file, examples={"fields": {"text": 2, "label": 3}})
    examples: Any = read_all(str(file), recipe, Problems())
    assert [(e.text, e.label) for e in examples] == [("a film", "ab"[i % 2]) for i in range(4)]
    file.write_text("text,label\nthe plot,b\na film,a\n")
    for header, count in ((None, 2), ("yes", 2), ("no", 3)):
        recipe = tuning.recipe(bert, file, examples={"header": header})
        assert len(read_all(str(file), recipe, Problems())) == count
    with refuses(UnknownName, "examples.header", "'maybe'"):
        tuning.recipe(bert, file, examples={"header": "maybe"})


def test_two_files_whose_lines_belong_together(bert: Path, tmp_path: Path) -> None:
    for name in ("a.en", "a.zh"):
        (tmp_path / name).write_text(f"{name} 1\n{name} 2\n")
    both = f"{tmp_path}/a.en,{tmp_path}/a.zh"
    recipe = tuning.recipe(bert, Path(both), examples={"task": "translate"})
    examples: Any = read_all(both, recipe, Problems())
    assert [(e.source, e.target) for e in examples] == [("a.en 1", "a.zh 1"), ("a.en 2", "a.zh 2")]
    assert files_of("a,b", "classify") == ["a,b"]
    recipe = replaced(recipe, examples={"digest": digest_of(recipe)})
    (tmp_path / "a.zh").write_text("other\nlines\n")
    with refuses(InputError, "a.zh", "changed"):
        digest_of(recipe)


def test_a_score_needs_no_labels(bert: Path, tmp_path: Path) -> None:
    records = [{"sentence1": r["text"], "sentence2": "the film", "score": i / 10}
               for i, r in enumerate(tuning.reviews(20))]  # fmt: skip
    recipe = tuning.recipe(
        bert, tuning.write(tmp_path / "s.jsonl", records), examples={"task": "similar"}
    )
    assert labeled_data(recipe, "train").labels == labeled_data(recipe, "valid").labels == []


def test_no_model_and_no_tokenizer(bert: Path, tmp_path: Path) -> None:
    with refuses(ConfigError, tmp_path, "model directory"):
        tokenizer_of(str(tmp_path))
    (tmp_path / "config.json").write_text((bert / "config.json").read_text())
    with refuses(FormatError, tmp_path, "tokenizer"):
        tokenizer_of(str(tmp_path))


@pytest.mark.parametrize("changed", ["data", "valid"])
def test_a_run_goes_on_only_with_the_same_data(
    changed: str, bert: Path, tmp_path: Path, stop: list[int]
) -> None:
    files = {
        n: tuning.write(tmp_path / f"{n}.jsonl", tuning.reviews(20)) for n in ("data", "valid")
    }
    recipe = tuning.recipe(
        bert, files["data"], examples={"valid": str(files["valid"])}, budget={"steps": 4}
    )
    stop += [2]
    out = tmp_path / "run"
    assert finetune(recipe, out, display="silent")["outcome"] == "interrupted"
    before = files[changed].read_text()
    tuning.write(files[changed], tuning.reviews(20, seed=3))
    with refuses(InputError, files["data"], "changed"):
        finetune(Recipe(), out, resume=True, display="silent")
    files[changed].write_text(before)
    assert finetune(Recipe(), out, resume=True, display="silent")["outcome"] == "done"


def test_some_without_a_label_are_no_training_data(bert: Path, tmp_path: Path) -> None:
    records = tuning.reviews(20)
    bare = [{"text": record["text"]} for record in records[:3]]
    file = tuning.write(tmp_path / "some.jsonl", [*bare, *records[3:]])
    recipe = tuning.recipe(bert, file)
    with refuses(InputError, "some.jsonl:1", "no label", "--skip missing-label"):
        labeled_data(recipe, "train")
    recipe = replaced(recipe, examples={"skip": ["missing-label"]})
    splits = labeled_data(recipe, "train"), labeled_data(recipe, "valid")
    assert sum(map(len, splits)) == 17
    assert any("missing-label" in note for note in splits[0].notes)
