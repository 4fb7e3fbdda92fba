"""`regard evaluate` for scores, choices, answers and texts, and as a command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from regard.core.errors import ConfigError, InputError
from regard.tasks import task
from regard.tasks.base import Prediction
from tests.command import run as called
from tests.tasks import tuning
from tests.tasks.world import sides

stats = pytest.importorskip("scipy.stats")
pytest.importorskip("sklearn")


@pytest.fixture
def run():
    """The command as it is given to the program."""
    return lambda *words: called("evaluate", *words)


def plain(text: str) -> str:
    """As SQuAD's script compares it: without articles."""
    return " ".join(word for word in text.lower().split() if word not in ("a", "an", "the"))


# -- the other tasks


def test_similarity_is_scipys(tested):
    report, written = tested("judge", "similar")
    gold, predicted = sides(written)
    assert len(gold) == 60 and all(isinstance(x, float) for x in gold)
    assert report["figures"] == pytest.approx({
        "spearman": stats.spearmanr(gold, predicted).statistic,
        "pearson": stats.pearsonr(gold, predicted).statistic,
    })  # fmt: skip
    assert report["worst"][0]["text"].keys() == {"text", "pair"}


def test_choices_are_counted(tested):
    report, written = tested("chooser", "choose")
    gold, predicted = sides(written)
    assert set(gold) == {0, 1}
    assert report["figures"] == {"accuracy": np.mean(np.equal(gold, predicted))}
    assert all(len(row["scores"]) == 2 for row in written)


def test_answers_are_compared_as_text(tested):
    report, written = tested("answerer", "answer")
    gold, predicted = sides(written)
    assert sum(not accepted for accepted in gold) == 20  # those without an answer
    short = [[plain(text) for text in accepted if plain(text)] or [""] for accepted in gold]
    exact = [plain(answer) in right for answer, right in zip(predicted, short, strict=True)]
    assert report["figures"]["exact_match"] == pytest.approx(np.mean(exact))
    assert report["options"] == {"language": "en"}
    assert report["thresholds"]["best_f1"] >= report["figures"]["f1"] - 1e-9


def test_the_best_threshold_may_lie_below_zero():
    predicted = [
        Prediction("", None, {"null": null, "candidates": [("word", 0, 4, 1.0)]})
        for null in (-3.0, -2.0, -1.0, 2.0)
    ]
    gold = [["word"], ["word"], [], []]
    thresholds = task("answer").more_figures(gold, predicted, {})["thresholds"]
    assert thresholds["best_f1"] == 1.0 and thresholds["best_f1_threshold"] == pytest.approx(-2.0)
    assert task("answer").more_figures([["word"]], [Prediction("word", 0.5)], {}) == {}


def test_translations_are_sacrebleus(tested):
    sacrebleu = pytest.importorskip("sacrebleu")
    decoding = {"num_beams": 2, "max_new_tokens": 8}
    report, written = tested("translator", "translate", limit=20, language="zh", decoding=decoding)
    gold, predicted = sides(written)
    assert gold == [row["text"][::-1] for row in written]
    bleu = sacrebleu.corpus_bleu(predicted, [gold], tokenize="zh").score
    chrf = sacrebleu.corpus_chrf(predicted, [gold]).score
    assert report["figures"] == pytest.approx({"bleu": bleu, "chrf": chrf})
    assert "tok:zh" in report["signatures"]["bleu"]


def test_every_reply_of_a_dialogue_is_one(world, tested):
    data = world.data("converse", 6)
    report, predictions = tested("talker", data, decoding={"max_new_tokens": 4})
    assert report["examples"] == len(predictions) == 12 and report["task"] == "converse"
    talk = json.loads(Path(data).read_text().splitlines()[0])["turns"]
    assert [(row["text"], row["gold"]) for row in predictions[:2]] == [
        (talk[:1], talk[1]), (talk[:2], talk[2]),
    ]  # fmt: skip


# -- the command


def test_the_table(run, world, tmp_path):
    place = tmp_path / "t"
    done = run(world.run("reviewer"), world.data("classify"), "--out", place,
               "--against", world.run("beginner"))  # fmt: skip
    report = json.loads((place / "test.json").read_text())
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and lines[0] == "classify, 60 examples"
    low, high = report["intervals"]["accuracy"]
    accuracy = next(line for line in lines if line.startswith("accuracy"))
    assert accuracy.split() == ["accuracy", f"{report['figures']['accuracy']:.4f}",
                                f"{low:.4f}", "to", f"{high:.4f}"]  # fmt: skip
    assert any(line.split()[:1] == ["good"] for line in lines)
    assert f"reviewer against beginner: {report['comparison']['verdict']}" in lines
    assert "report.html" not in done.stdout and "report.html" in done.stderr


def test_json_is_all_that_stdout_holds(run, world, tmp_path):
    words = (world.run("tagger"), world.data("tag"), "--out", tmp_path / "t", "--json")
    done = run(*words, "--show-errors", 2, "--limit", 30)
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "t/test.json").read_text())
    assert {"task", "examples", "main", "figures", "intervals", "classes", "worst", "unseen",
            "notes", "model", "data", "seconds", "out", "precision"} <= set(report)  # fmt: skip
    assert report["task"] == "tag" and report["main"] == "f1" and len(report["worst"]) <= 2
    assert "only the first 30 of 60 examples" in done.stderr
    assert run(*words, "--quiet").stderr == ""


def test_fields_and_forms_may_be_named(run, world, tmp_path):
    records = [{"words": r["text"], "mood": r["label"]} for r in tuning.reviews(5)]
    data = tuning.write(tmp_path / "odd.data", records)
    done = run(world.run("reviewer"), data, "--format", "jsonl", "--field", "text=words",
               "--field", "label=mood", "--out", tmp_path / "t", "--json")  # fmt: skip
    assert json.loads(done.stdout)["examples"] == 5


def test_what_cannot_be_is_refused(run, world):
    absent = run(world.run("reviewer"), "nowhere.jsonl").exception
    assert isinstance(absent, InputError) and "nowhere.jsonl" in str(absent)
    wrong = run(world.run("reviewer"), world.data("classify"), "--limit", -1).exception
    assert isinstance(wrong, ConfigError) and "--limit is -1" in str(wrong)
