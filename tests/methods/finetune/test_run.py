"""Fine-tuning from beginning to end: resumed, crossed, adapted, with labels of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard.api import load
from regard.cli.main import main
from regard.core.errors import ConfigError, InputError
from regard.data.corpus import read_marker
from regard.data.examples import LabeledExample
from regard.evaluation.predict import Predictor
from regard.methods.finetune import folds as crossing
from regard.methods.finetune.multi_stage import PLAN, FinetuneOptions, amount, data_digest
from regard.methods.finetune.run import finetune
from regard.methods.runs import data_for, write_plan
from regard.models import FAMILIES
from regard.tasks.corpus import labeled_data
from regard.training import run as runs
from regard.training.loop import Loop
from regard.training.recipe import Recipe, make
from regard.training.recipe_parts import ExamplesConfig
from tests.refusals import mentions, refuses
from tests.tasks import tuning
from tests.tasks.tuning import stop as stop
from tests.training.test_never_lost import bits, figures


@pytest.fixture(scope="module")
def unlabeled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty new texts, one of them twice, and ten that are labeled elsewhere."""
    texts = [record["text"] for record in tuning.reviews(60, seed=7)]
    known = [record["text"] for record in tuning.reviews(80)[:10]]
    texts = [text for text in texts if text not in known]
    records = [{"text": text} for text in [*texts, texts[0], *known]]
    return tuning.write(tmp_path_factory.mktemp("more") / "unlabeled.jsonl", records)


def tune(recipe: Recipe, out: Path, **stages: Any) -> dict[str, Any]:
    return finetune(recipe, out, stages=FinetuneOptions(**stages), display="silent")


def to_the_end(recipe: Recipe, out: Path, **stages: Any) -> dict[str, Any]:
    report = tune(recipe, out, **stages)
    while report["outcome"] == "interrupted":
        report = finetune(Recipe(), out, resume=True, display="silent")
    return report


# -- a plain run


def test_it_learns_and_answers(bert: Path, reviews: Path, tmp_path: Path) -> None:
    recipe = tuning.recipe(bert, reviews, budget={"steps": 60}, optimizer={"lr": 0.01})
    report = tune(recipe, tmp_path / "run")
    assert report["outcome"] == "done" and report["valid"]["accuracy"] == 1.0
    ask = Predictor(load(tmp_path / "run"))
    predictions = ask(
        [LabeledExample("the plot was dull"), LabeledExample("a warm film and great music")]
    )
    assert [one.value for one in predictions] == ["bad", "good"]


def test_resumed_equals_uninterrupted(
    bert: Path, reviews: Path, tmp_path: Path, stop: list[int]
) -> None:
    tune(tuning.recipe(bert, reviews), tmp_path / "whole")
    stop += [12 + 2, 12 + 7]
    to_the_end(tuning.recipe(bert, reviews), tmp_path / "parts")
    assert not stop
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")


def killed_at(recipe: Recipe, out: Path, step: int) -> None:
    """In a process of its own: trains, or goes on, and is killed in the middle of a step."""
    torch.set_num_threads(1)
    plain = Loop.step

    def fatal(self: Loop, *rest: Any) -> Any:
        if self.progress.step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, *rest)

    Loop.step = fatal  # type: ignore[method-assign,assignment]
    resume = (out / "recipe.toml").is_file()
    finetune(Recipe() if resume else recipe, out, resume=resume, display="silent")


@pytest.mark.parametrize(
    "changes", [{}, {"optimizer": {"unfreeze_every": 3}}], ids=["all", "thawing"]
)
def test_killed_equals_uninterrupted(
    changes: dict[str, Any], bert: Path, reviews: Path, tmp_path: Path
) -> None:
    """Without any warning; what was not saved is done again."""
    changes = changes | {"checkpoint": {"every": 3}}
    fork = multiprocessing.get_context("fork")
    for out, steps in ((tmp_path / "whole", [-1]), (tmp_path / "parts", [2, 5, 10, -1])):
        for step in steps:
            recipe = tuning.recipe(bert, reviews, **changes)
            process = fork.Process(target=killed_at, args=(recipe, out, step))
            process.start()
            process.join()
            assert process.exitcode == (0 if step < 0 else -signal.SIGKILL)
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")
    assert figures(tmp_path / "whole") == figures(tmp_path / "parts")


def test_patience_ends_a_run_early(bert: Path, reviews: Path, tmp_path: Path) -> None:
    """Nothing gets better at a rate of 0."""
    changes: dict[str, Any] = {"budget": {"steps": 60}, "optimizer": {"lr": 0.0}}
    recipe = tuning.recipe(bert, reviews, validation={"every": 2, "patience": 3}, **changes)
    report = tune(recipe, tmp_path / "run")
    assert report["outcome"] == "stopped early: no better validation in 3"
    assert report["progress"]["step"] == report["best"]["step"] == 8  # of equal ones the last
    before = bits(tmp_path / "run")
    report = finetune(Recipe(), tmp_path / "run", resume=True, display="silent")
    assert report["outcome"].startswith("stopped early") and report["progress"]["step"] == 8
    assert bits(tmp_path / "run") == before  # it stays ended, as if it had been killed before that
    patient = tuning.recipe(bert, reviews, validation={"every": 2}, **changes)
    assert tune(patient, tmp_path / "other")["progress"]["step"] == 60


def test_balanced_classes(bert: Path, tmp_path: Path) -> None:
    """Where one class is rare its examples count as much as all the others together."""
    file = tuning.write(tmp_path / "few.jsonl", tuning.reviews(60, share=0.1))
    words = ["finetune", str(bert), "objective.weights=balanced", "--task", "classify"]
    words += ["--data", str(file), "--epochs", "1", "batch.size=8", "engine.precision=fp32"]
    assert main([*words, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    task = json.loads((tmp_path / "run" / "task.json").read_text())
    assert task["objective"]["weights"] == "balanced"
    recipes = [tuning.recipe(bert, file, objective=o) for o in ({}, {"weights": "balanced"})]
    equal, fair = (
        runs.prepare(r, runs.ProcessGroup(), torch.device("cpu"), print, data=data_for(r)).objective
        for r in recipes
    )
    rows = [fair.sample(0, i) for i in range(len(fair))]
    shares = [sum(r["share"] for r in rows if r["gold"] == k) for k in range(2)]
    assert shares == pytest.approx([len(fair) / 2] * 2)
    assert {float(equal.sample(0, i)["share"]) for i in range(len(equal))} == {1.0}


# -- cross-validation


def test_folds(bert: Path, reviews: Path, tmp_path: Path) -> None:
    report = tune(tuning.recipe(bert, reviews), tmp_path / "run", folds=3)
    written = json.loads((tmp_path / "run" / "folds.json").read_text())
    assert written == report and report["folds"] == 3
    facts = [
        json.loads((tmp_path / "run" / f"fold-{i}" / "run.json").read_text()) for i in (1, 2, 3)
    ]
    values = [one["valid"]["accuracy"] for one in facts]
    figure = report["figures"]["accuracy"]
    assert figure["values"] == values
    assert figure["mean"] == pytest.approx(sum(values) / 3)
    expected = torch.tensor(values, dtype=torch.float64).std().item()
    assert figure["deviation"] == pytest.approx(expected)
    sizes = [one["data"]["splits"]["valid"]["examples"] for one in facts]
    assert sum(sizes) == 80 and max(sizes) - min(sizes) <= 1
    shown = crossing.table(report).splitlines()
    assert shown[0].split() == ["fold", "1", "fold", "2", "fold", "3", "mean", "deviation"]
    assert shown[1].startswith("accuracy") and len(shown) == 3


def test_folds_go_on_where_they_stopped(
    bert: Path, reviews: Path, tmp_path: Path, stop: list[int]
) -> None:
    """A fold that is over is not touched again, the one in the middle is resumed."""
    changes = {"budget": {"steps": 6}}
    whole = tune(tuning.recipe(bert, reviews, **changes), tmp_path / "whole", folds=3)
    stop += [18 + 6 + 3]
    report = tune(tuning.recipe(bert, reviews, **changes), tmp_path / "parts", folds=3)
    assert report["outcome"] == "interrupted" and not (tmp_path / "parts" / "folds.json").exists()
    first = tmp_path / "parts" / "fold-1" / "model.safetensors"
    written = first.stat().st_mtime_ns
    assert not (tmp_path / "parts" / "fold-3").exists()
    report = finetune(Recipe(), tmp_path / "parts", resume=True, display="silent")
    assert report["figures"] == whole["figures"] and first.stat().st_mtime_ns == written
    for i in (1, 2, 3):
        assert bits(tmp_path / "whole" / f"fold-{i}") == bits(tmp_path / "parts" / f"fold-{i}")


def test_a_class_too_rare_for_every_fold_is_known_to_all(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [*tuning.reviews(20), {"text": "the the the", "label": "strange"}]
    file = tuning.write(tmp_path / "reviews.jsonl", records)
    recipe = tuning.recipe(bert, file, budget={"steps": 1})
    finetune(recipe, tmp_path / "run", stages=FinetuneOptions(folds=2), display="plain")
    assert "too rare to be in each of 2 parts: 'strange' (1)" in capsys.readouterr().err
    for i in (1, 2):
        task = json.loads((tmp_path / "run" / f"fold-{i}" / "task.json").read_text())
        assert task["labels"] == ["bad", "good", "strange"]


# -- going on with pre-training


def test_adapting(bert: Path, reviews: Path, unlabeled: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    report = tune(tuning.recipe(bert, reviews), out, adapt="20 steps", unlabeled=str(unlabeled))
    assert report["outcome"] == "done" and report["adapted"]["steps"] == 20
    assert not (out / "first").exists()  # unlabeled examples are text here
    texts = [json.loads(line)["text"] for line in (out / "text.jsonl").read_text().splitlines()]
    assert len(texts) == len(set(texts)) > 100
    recipe: Any = runs.recipes.make(runs.recipes.read(out / "recipe.toml"))
    examples: Any = labeled_data(recipe, "valid").examples
    both = {example.text for example in examples} & set(texts)
    assert len(examples) == 8 and not both  # what validates is not read before, labeled or not
    assert read_marker(out / "text")["splits"]["train"]["documents"] == len(texts)
    assert runs.recipes.read(out / "recipe.toml")["model"] == str(out / "adapted")
    before, after = (load_file(p / "model.safetensors") for p in (bert, out / "adapted"))
    assert before.keys() == after.keys()  # with the heads that it came with
    assert torch.equal(before["bert.pooler.dense.weight"], after["bert.pooler.dense.weight"])
    name = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(before[name], after[name])


def test_adapting_goes_on_where_it_stopped(
    bert: Path, reviews: Path, tmp_path: Path, stop: list[int]
) -> None:
    recipe = tuning.recipe(bert, reviews, budget={"steps": 6})
    tune(recipe, tmp_path / "whole", adapt="6 steps")
    stop += [12 + 3, 12 + 6 + 3]
    recipe = tuning.recipe(bert, reviews, budget={"steps": 6})
    report = to_the_end(recipe, tmp_path / "parts", adapt="6 steps")
    assert not stop and report["outcome"] == "done"
    assert bits(tmp_path / "whole" / "adapted") == bits(tmp_path / "parts" / "adapted")
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")


def test_a_plan_that_nothing_was_made_of_yet(bert: Path, reviews: Path, tmp_path: Path) -> None:
    """Killed before the first run inside had begun."""
    stages, changes = FinetuneOptions(adapt="2 steps"), {"budget": {"steps": 2}}
    tune(tuning.recipe(bert, reviews, **changes), tmp_path / "whole", adapt="2 steps")
    begun = tuning.recipe(bert, reviews, **changes)
    file = tmp_path / "parts" / PLAN
    write_plan(file, stages, begun, digest=data_digest(begun, stages))
    (tmp_path / "parts" / "text.jsonl").write_text('{"text": "cut in the mid')
    with refuses(ConfigError, "--resume", "--out"):
        tune(tuning.recipe(bert, reviews, **changes), tmp_path / "parts", adapt="2 steps")
    finetune(Recipe(), tmp_path / "parts", resume=True, display="silent")
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")


def test_a_larger_budget_stays(bert: Path, reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    tune(tuning.recipe(bert, reviews, budget={"steps": 2}), out, adapt="2 steps")
    more = make({"budget": {"steps": 4}})
    for recipe in (more, Recipe()):
        report = finetune(recipe, out, resume=True, display="silent")
        assert report["progress"]["step"] == 4 and report["adapted"]["steps"] == 2
    tune(tuning.recipe(bert, reviews, budget={"steps": 2}), tmp_path / "crossed", folds=2)
    with refuses(ConfigError, "cross-validation", "budget"):
        finetune(more, tmp_path / "crossed", resume=True, display="silent")


# -- labels of its own


LEARNED: dict[str, Any] = {  # only the last validation counts: the longest learned is the surest
    "budget": {"steps": 60},
    "optimizer": {"lr": 0.01},
    "validation": {"every": 1000},
}


def test_pseudo_labels(bert: Path, reviews: Path, unlabeled: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    stages = {"unlabeled": str(unlabeled), "confidence": 0.9}
    report = tune(tuning.recipe(bert, reviews, **LEARNED), out, **stages)
    records = [json.loads(line) for line in (out / "pseudo.jsonl").read_text().splitlines()]
    pseudo = report["pseudo"]
    count = len(unlabeled.read_text().splitlines())
    assert pseudo["known"] == 11 and pseudo["asked"] == count - 11
    assert len(records) == sum(pseudo["kept"].values()) > 0
    assert all(record["confidence"] >= 0.9 for record in records)
    ask = Predictor(load(out / "first"))
    predictions = ask([LabeledExample(record["text"]) for record in records])
    assert [record["label"] for record in records] == [one.value for one in predictions]
    learned = json.loads((out / "run.json").read_text())["data"]["splits"]
    first = json.loads((out / "first" / "run.json").read_text())["data"]["splits"]
    assert learned["train"]["examples"] == first["train"]["examples"] + len(records)
    assert learned["valid"] == first["valid"]


def test_pseudo_labels_go_on_where_they_stopped(
    bert: Path, reviews: Path, unlabeled: Path, tmp_path: Path, stop: list[int]
) -> None:
    stages = {"unlabeled": str(unlabeled), "confidence": 0.6}
    changes = LEARNED | {"budget": {"steps": 20}}
    tune(tuning.recipe(bert, reviews, **changes), tmp_path / "whole", **stages)
    stop += [40 + 10, 60 + 10]
    to_the_end(tuning.recipe(bert, reviews, **changes), tmp_path / "parts", **stages)
    assert not stop
    pseudo = [(tmp_path / n / "pseudo.jsonl").read_bytes() for n in ("whole", "parts")]
    assert pseudo[0] == pseudo[1] != b""
    assert bits(tmp_path / "whole") == bits(tmp_path / "parts")


def test_nothing_to_be_sure_of(
    bert: Path,
    reviews: Path,
    unlabeled: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = tuning.recipe(bert, reviews, budget={"steps": 2}, optimizer={"lr": 1e-6})
    stages = FinetuneOptions(unlabeled=str(unlabeled), confidence=1.0)
    finetune(recipe, tmp_path / "run", stages=stages, display="plain")
    printed = capsys.readouterr().err
    assert "0 of" in printed and "so nothing is added: try a lower --confidence" in printed
    assert (tmp_path / "run" / "pseudo.jsonl").read_text() == ""
    assert bits(tmp_path / "run") == bits(tmp_path / "run" / "first")


def test_other_names_of_fields_and_another_form(
    bert: Path, unlabeled: Path, tmp_path: Path
) -> None:
    """What the model labels is read like the data, whose form another file need not have."""
    rows = [f"{r['label']}\t{r['text']}" for r in tuning.reviews(40)]
    file = tmp_path / "reviews.dat"
    file.write_text("\n".join(["verdict\twords", *rows]) + "\n")
    renamed = [{"words": json.loads(line)["text"]} for line in unlabeled.read_text().splitlines()]
    more = tuning.write(tmp_path / "more.jsonl", renamed)
    fields = {"text": "words", "label": "verdict"}
    recipe = tuning.recipe(bert, file, examples={"format": "tsv", "fields": fields}, **LEARNED)
    report = tune(recipe, tmp_path / "run", unlabeled=str(more), confidence=0.6)
    record = json.loads((tmp_path / "run" / "pseudo.jsonl").read_text().splitlines()[0])
    assert record.keys() == {"words", "verdict", "confidence"}
    assert report["data"]["splits"]["train"]["examples"] > 36


@pytest.mark.parametrize("family", ["gpt", "xlnet", "longformer", "t5"])
def test_every_family(family: str, reviews: Path, unlabeled: Path, tmp_path: Path) -> None:
    """T5 learns, and gives labels, as text."""
    model = tuning.model(tmp_path / family, family)
    recipe = tuning.recipe(model, reviews, budget={"steps": 2}, batch={"seq_len": 24})
    stages = {"adapt": "2 steps", "unlabeled": str(unlabeled), "confidence": 0.001}
    report = tune(recipe, tmp_path / "run", **stages)
    assert (
        report["outcome"] == "done" and report["adapted"]["out"] and report["pseudo"]["asked"] > 50
    )
    adapted = runs.recipes.read(tmp_path / "run" / "adapted" / "recipe.toml")
    assert adapted["objective"]["name"] == FAMILIES[family].objective
    crossed = tuning.recipe(model, reviews, budget={"steps": 1}, batch={"seq_len": 24})
    assert len(tune(crossed, tmp_path / "crossed", folds=2)["runs"]) == 2


def test_everything_at_once(bert: Path, reviews: Path, unlabeled: Path, tmp_path: Path) -> None:
    recipe = tuning.recipe(bert, reviews, budget={"steps": 4})
    stages = {"folds": 2, "adapt": "2 steps", "unlabeled": str(unlabeled), "confidence": 0.5}
    report = tune(recipe, tmp_path / "run", **stages)
    assert report["folds"] == 2
    for i in (1, 2):
        names = {file.name for file in (tmp_path / "run" / f"fold-{i}").iterdir()}
        assert {"text", "adapted", "first", "pseudo.jsonl", "model.safetensors"} <= names


# -- what is refused


def test_data_that_changed_is_refused(
    bert: Path, unlabeled: Path, tmp_path: Path, stop: list[int]
) -> None:
    file = tuning.write(tmp_path / "reviews.jsonl", tuning.reviews(40))
    stop += [3]
    recipe = tuning.recipe(bert, file, budget={"steps": 6})
    assert tune(recipe, tmp_path / "run", folds=2)["outcome"] == "interrupted"
    tuning.write(file, tuning.reviews(41))
    with refuses(InputError, file, tmp_path / "run"):
        finetune(Recipe(), tmp_path / "run", resume=True, display="silent")


def test_both_files_of_pairs_are_looked_at(tmp_path: Path) -> None:
    for name in ("a.en", "a.zh"):
        (tmp_path / name).write_text("one\ntwo\n")
    recipe = Recipe(
        data=f"{tmp_path}/a.en,{tmp_path}/a.zh", examples=ExamplesConfig(task="translate")
    )
    before = data_digest(recipe, FinetuneOptions())
    (tmp_path / "a.zh").write_text("other\nlines\n")
    assert data_digest(recipe, FinetuneOptions()) != before


def test_a_directory_that_is_taken(bert: Path, reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    tune(tuning.recipe(bert, reviews, budget={"steps": 2}), out, folds=2)
    for stages in ({}, {"folds": 3}, {"adapt": "1"}):
        with refuses(ConfigError, "--resume", "--out"):
            tune(tuning.recipe(bert, reviews), out, **stages)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with refuses(ConfigError, tmp_path / "other", "--out"):
        tune(tuning.recipe(bert, reviews), tmp_path / "other", folds=2)
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["letter.txt"]


def test_a_start_that_failed_is_no_obstacle(bert: Path, reviews: Path, tmp_path: Path) -> None:
    """Nothing had begun: the same place may be used again."""
    out = tmp_path / "run"
    with refuses(InputError, tmp_path / "none.jsonl"):
        tune(tuning.recipe(bert, tmp_path / "none.jsonl"), out, folds=2)
    wrong = tuning.recipe(bert, reviews, optimizer={"freeze_layers": 99})
    with refuses(ConfigError, "optimizer.freeze_layers is 99"):  # before anything is trained
        tune(wrong, out, folds=2, adapt="1 step")
    assert not out.exists() or not any(out.iterdir())
    recipe = tuning.recipe(bert, reviews, budget={"steps": 2})
    assert tune(recipe, out, folds=2)["folds"] == 2


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 2
    return capsys.readouterr().err


def test_what_the_command_refuses(
    bert: Path, reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ["finetune", bert, "--task", "classify", "--data", reviews, "--out", tmp_path / "run"]
    cases: list[tuple[list[object], list[str]]] = [
        (["--folds", 1], ["--folds"]),
        (["--folds", 2, "--valid", reviews], ["--folds", "--valid"]),
        (["--confidence", 0.5], ["--confidence", "--unlabeled"]),
        (["--unlabeled", reviews, "--confidence", 1.5], ["--confidence is 1.5"]),
        (["--adapt", "long"], ["--adapt is 'long'"]),
        (["--unlabeled", reviews, f"examples.extra_data={reviews}"], ["examples.extra_data"]),
        (["optimizer.freeze_layers=3"], ["optimizer.freeze_layers is 3", "2 layers"]),
        (["--task", "similar", "--unlabeled", reviews], ["not of similar"]),
    ]
    for words, names in cases:
        mentions(refusal(capsys, *plain, *words), names)
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_several_processes(
    bert: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refuses(ConfigError, "--folds", "one process"):
        tune(tuning.recipe(bert, reviews), tmp_path / "run", folds=2)


def test_amounts_and_what_they_ask_for() -> None:
    assert amount("3") == {"epochs": 3.0} and amount("0.5 epochs") == {"epochs": 0.5}
    assert amount("500steps") == amount("500 steps") == {"steps": 500}
    for wrong in ("", "0", "-1", "three", "5 minutes"):
        with refuses(ConfigError, f"--adapt is '{wrong}'"):
            amount(wrong)
    assert FinetuneOptions.of({"unlabeled": "more.txt"}).confidence == 0.9
    assert FinetuneOptions.of({"adapt": "2", "unlabeled": "more.txt"}).confidence is None
    assert (
        FinetuneOptions.of({"adapt": "2", "unlabeled": "more.txt", "confidence": 0.7}).confidence
        == 0.7
    )
    assert not FinetuneOptions.of({})


# -- the command


def test_a_dry_run_writes_nothing(
    bert: Path, reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["finetune", bert, "--task", "classify", "--data", reviews, "--out", tmp_path / "run"]
    words += ["--dry-run", "--epochs", "2", "batch.size=8", "engine.precision=fp32"]
    assert main([*map(str, words), "--folds", "3", "--adapt", "2"]) == 0
    shown = capsys.readouterr().out
    assert 'name = "classify"' in shown and "steps = 13" in shown
    assert f"# 3 such runs: {tmp_path / 'run' / 'fold-1'} to {tmp_path / 'run' / 'fold-3'}" in shown
    assert "adapted reads the task's text: 2" in shown
    assert main([*map(str, words), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recipe"]["budget"]["steps"] == 18
    assert not (tmp_path / "run").exists()


def test_the_table_of_a_cross_validation(
    bert: Path, reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["finetune", bert, "--task", "classify", "--data", reviews, "--out", out, "--quiet"]
    words += ["budget.steps=2", "batch.size=8", "engine.precision=fp32", "--folds", 2]
    assert main(list(map(str, words))) == 0
    shown = capsys.readouterr()
    assert "accuracy" in shown.out and "deviation" in shown.out
    assert f"{out}/folds.json" in shown.err
    assert main(["finetune", "--resume", str(out), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["accuracy"]["mean"] <= 1


@pytest.mark.parametrize(
    "words",
    [
        ["--task", "tag"],
        ["--folds", "3"],
        ["--seed", "0"],
        ["--lr", "0.1"],
        ["--augment", "swap"],
        ["--header"],
        ["optimizer.lr=1"],
    ],
)
def test_a_run_goes_on_by_its_own_recipe(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["finetune", "--resume", str(tmp_path / "run"), *words]) == 2
    assert f"{words[0].partition('=')[0]} is given beside --resume" in capsys.readouterr().err
