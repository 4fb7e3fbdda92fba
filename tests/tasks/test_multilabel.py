"""Multi-label classification, from a file to a page."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.api import load
from regard.core.errors import ConfigError, InputError
from regard.data.problems import Problems
from regard.evaluation.test import Plan, examine
from regard.methods.distill.run import distill
from regard.methods.finetune.run import finetune
from regard.methods.options import DistillOptions
from regard.tasks import read, task
from regard.tasks.corpus import TaskCorpus
from regard.tasks.multilabel import LabelSets, Multilabel, MultiLabelExample, MultilabelOptions
from tests.methods.distill import distilling
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.tuning import stop as stop

CLASSES = {"fine": ["joy"], "dull": ["gloom"], "music": ["joy", "sound"], "cold": []}


def rows(count: int, seed: int = 1) -> list[dict[str, Any]]:
    dice, records = random.Random(seed), []
    for _ in range(count):
        word = dice.choice([*CLASSES])
        text = [word, word, word, *dice.sample(["the", "film", "was", "very"], 2)]
        records.append({"text": " ".join(text), "labels": CLASSES[word]})
    return records


def data(place: Path, count: int = 160, seed: int = 1) -> Path:
    place.write_text("\n".join(map(json.dumps, rows(count, seed))) + "\n", encoding="utf-8")
    return place


def test_labels_come_as_a_list_or_as_a_text(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [{"text": "x", "labels": ["b", "a"]}, {"text": "y", "labels": "a; c|d"},
             {"text": "z", "labels": ""}, {"text": "w", "labels": ["a", "a"]}]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    problems = Problems()
    examples: list[Any] = read(str(file), "multilabel", problems=problems)
    assert [e.label for e in examples] == [("b", "a"), ("a", "c", "d"), (), ("a",)]
    assert examples[2].labeled and problems.count("warning") == 1
    file.write_text(json.dumps({"text": "x", "labels": {"a": 1}}), encoding="utf-8")
    with refuses(InputError, "wrong-type", f"{file}:1", "dict"):
        read(str(file), "multilabel")


def objective_of(examples: list[Any], **options: Any) -> Multilabel:
    corpus = TaskCorpus("multilabel", examples, tuning.tokenizer(), ["gloom", "joy"], "train")
    settings = MultilabelOptions(family="bert", **options)
    return Multilabel(corpus, settings, seq_len=16, batch_size=2, seed=1)  # type: ignore[arg-type]


def test_the_loss_is_binary_cross_entropy(tmp_path: Path) -> None:
    examples = [
        MultiLabelExample("fine film", None, ("joy",)),
        MultiLabelExample("the plot", None, ()),
        MultiLabelExample("dull"),
    ]
    objective = objective_of(examples)
    model = load(tuning.bert(tmp_path / "bert"), heads=objective.heads()).model.eval()
    batch = objective.collate([objective.sample(0, i) for i in range(3)])
    scores = model.read("classify", objective.hidden(model, batch), batch["attention_mask"])
    wanted = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    cross = torch.nn.functional.binary_cross_entropy_with_logits
    expected = cross(scores[:2], wanted, reduction="none").mean(1).sum()
    loss = objective.loss(model, batch)
    assert loss.sums["multilabel"].item() == pytest.approx(expected.item(), rel=1e-6)
    assert loss.counts["multilabel"] == 2  # the last one has no known labels
    outputs = objective.predict(model, batch)
    shares, prediction = outputs[0], objective.merge(outputs)[0]
    assert prediction.scores == dict(zip(["gloom", "joy"], shares, strict=True))
    assert prediction.value == [name for name, share in prediction.scores.items() if share >= 0.5]
    assert prediction.score == pytest.approx(math.prod(max(x, 1 - x) for x in shares))


def test_a_threshold_must_be_a_probability() -> None:
    with refuses(ConfigError, "objective.threshold is 1.5"):
        objective_of([MultiLabelExample("fine", None, ("joy",))], threshold=1.5)


def test_figures_are_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    gold, predicted = [["a"], ["a", "b"], [], ["c"]], [["a"], ["b"], ["c"], ["c", "a"]]
    metric = LabelSets(gold, predicted)
    true, claimed = metric.table(gold), metric.table(predicted)
    assert metric.figures["micro_f1"] == metrics.f1_score(true, claimed, average="micro")
    assert metric.figures["subset_accuracy"] == 0.25
    assert metric.each == pytest.approx([1.0, 2 / 3, 0.0, 2 / 3])
    import numpy as np

    once = np.ones((1, 4))
    for name, value in metric.figures.items():
        assert metric.weighted[name](once)[0] == pytest.approx(value), name


def test_from_a_file_to_a_page(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    model, file = tuning.bert(tmp_path / "bert"), data(tmp_path / "train.jsonl")
    recipe = tuning.recipe(model, file, examples={"task": "multilabel"}, budget={"steps": 150})
    facts = finetune(recipe, tmp_path / "run", display="silent")
    assert facts["valid"]["micro_f1"] > 0.8
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert list(config["label2id"]) == ["gloom", "joy", "sound"]
    test = data(tmp_path / "test.jsonl", 24, seed=2)
    report = examine(str(tmp_path / "run"), [str(test)], Plan(resamples=40))
    assert report["main"] == "micro_f1" and report["figures"]["micro_f1"] > 0.8
    assert {row["label"] for row in report["classes"]} == {"gloom", "joy", "sound"}
    assert "all labels right" in Path(report["out"], "report.html").read_text()
    loaded = load(tmp_path / "run")
    predictions: Any = loaded.predict(["music music music the film", "cold cold cold was very"])
    assert predictions[0].value == ["joy", "sound"]
    assert set(predictions[0].scores) == {"gloom", "joy", "sound"}
    assert predictions[1].value == []
    assert loaded.classify("music music music the film").value == ["joy", "sound"]
    line = task("multilabel").line(
        MultiLabelExample("music music music the film"), predictions[0], []
    )
    assert line.startswith("joy 0.") and "\tsound 0." in line
    again = distilling.task(file, examples={"task": "multilabel"}, budget={"steps": 60})
    taught = distill(again, tmp_path / "student", DistillOptions(str(tmp_path / "run"), "layers=1"),
                     display="silent")  # fmt: skip
    assert taught["objective"] == "distill" and taught["valid"]["micro_f1"] > 0.8
    (tmp_path / "run" / "task.json").unlink()  # as others publish it
    assert load(tmp_path / "run").predict("music music music the film").value == ["joy", "sound"]


def test_labels_that_cannot_be_written_in_a_list_are_refused() -> None:
    with refuses(InputError, "label 'a, b'"):
        task("multilabel").closed([], ["a, b"])
