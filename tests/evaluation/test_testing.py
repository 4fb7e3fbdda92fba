"""`regard evaluate`: figures equal to the libraries' on what was written down, nothing dropped."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from regard.api import load
from regard.core.errors import ConfigError, InputError, StorageError, UnknownName
from regard.data.corpus import Corpus
from regard.data.examples import LabeledExample, Question, TaggedExample
from regard.evaluation.language_modeling import first_documents
from regard.evaluation.predictors import learners, predictor_for
from regard.evaluation.test import Plan, examine
from regard.metrics.labels import TaggingMetric
from regard.metrics.text import language_of
from regard.tasks import task
from regard.training.run import train
from tests.html import Page
from tests.metrics.kinds import compare
from tests.refusals import refuses
from tests.tasks import tuning
from tests.tasks.world import conll, rows, sides
from tests.training import small

sklearn = pytest.importorskip("sklearn.metrics")
seqeval = pytest.importorskip("seqeval.metrics")


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    """A language model, and the text it was made from."""
    place = tmp_path_factory.mktemp("reader")
    data = small.data(place / "data")
    for name, seed in (("one", 1), ("two", 2)):
        train(small.recipe("gpt", data, seed=seed), place / name, display="silent")
    return place


# -- labels


def test_figures_are_scikit_learns_on_the_predictions_written(world, tested):
    report, written = tested("reviewer", "classify")
    gold, predicted = sides(written)
    records = [json.loads(line) for line in Path(world.data("classify")).read_text().splitlines()]
    assert gold == [record["label"] for record in records]
    assert [row["text"] for row in written] == [record["text"] for record in records]
    assert set(predicted) == {"good", "bad"} and gold != predicted
    assert report["figures"] == pytest.approx({
        "accuracy": sklearn.accuracy_score(gold, predicted),
        "macro_f1": sklearn.f1_score(gold, predicted, average="macro", zero_division=0),
        "micro_f1": sklearn.f1_score(gold, predicted, average="micro"),
        "weighted_f1": sklearn.f1_score(gold, predicted, average="weighted", zero_division=0),
        "matthews": sklearn.matthews_corrcoef(gold, predicted),
    })  # fmt: skip
    assert report["confusion"]["matrix"] == sklearn.confusion_matrix(gold, predicted).tolist()
    for name, value in report["figures"].items():
        low, high = report["intervals"][name]
        assert low <= value <= high
    for row in written:
        assert row["predicted"] == max(row["scores"], key=row["scores"].get)
        assert row["score"] == pytest.approx(row["scores"][row["predicted"]])
        assert sum(row["scores"].values()) == pytest.approx(1, abs=1e-5)


def test_predictions_are_those_of_transformers(world, tested):
    transformers = pytest.importorskip("transformers")
    _, written = tested("reviewer", "classify")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        world.run("reviewer")
    ).eval()
    fast = load(world.run("reviewer")).tokenizer
    for row in written[:20]:
        ids = [2, *fast.encode(row["text"], special=False), 3]
        with torch.no_grad():
            chances = model(torch.tensor([ids])).logits.softmax(1)[0].tolist()
        wanted = dict(zip(["bad", "good"], chances, strict=True))
        assert row["scores"] == pytest.approx(wanted, abs=1e-5)


def test_what_is_written(world, tested, tmp_path):
    report, _ = tested("reviewer", "classify", worst=3)
    assert sorted(file.name for file in (tmp_path / "t").iterdir()) == [
        "predictions.jsonl", "report.html", "test.json",
    ]  # fmt: skip
    assert json.loads((tmp_path / "t/test.json").read_text(encoding="utf-8")) == report
    page = Page((tmp_path / "t/report.html").read_text(encoding="utf-8"))
    assert page.fetched == [] and page.tags.count("script") == 3
    assert "reviewer: classify" in page.text and world.data("classify") in page.text
    assert len(report["worst"]) <= 3
    for row in report["worst"]:
        assert row["gold"] != row["predicted"] and row["text"] in page.text
        assert row["place"] == f"{world.data('classify')}:{row['index'] + 1}"
        assert row["place"] in page.text


def test_the_training_report_stays(world, tmp_path):
    before = Path(world.run("reviewer"), "report.html").read_bytes()
    report = examine(world.run("reviewer"), [world.data("classify")], Plan(limit=10))
    assert report["out"] == str(Path(world.run("reviewer")) / "test-classify-60-5")
    assert (Path(report["out"]) / "report.html").is_file()
    assert Path(world.run("reviewer"), "report.html").read_bytes() == before
    with refuses(StorageError, "report.html", "training"):
        examine(
            world.run("reviewer"), [world.data("classify")], Plan(out=Path(world.run("reviewer")))
        )


def test_a_limit_is_said(tested):
    report, written = tested("reviewer", "classify", limit=7)
    assert report["examples"] == 7 == len(written)
    assert report["notes"] == ["only the first 7 of 60 examples were tested"]


def test_labels_never_learned_count_as_wrong(tested, tmp_path):
    records = tuning.reviews(30, seed=9)
    for i in range(0, 30, 3):
        records[i]["label"] = "odd" if i % 2 else "strange"
    data = tuning.write(tmp_path / "new.jsonl", records)
    report, written = tested("reviewer", data)
    assert report["examples"] == len(written) == 30
    assert report["unseen"] == {"strange": 5, "odd": 5}
    right = sum(row["gold"] == row["predicted"] for row in written)
    assert report["figures"]["accuracy"] == pytest.approx(right / 30) and right <= 20
    assert "10 of 30 labels are such that the model never learned" in report["notes"][0]
    assert "'strange' 5" in Page((tmp_path / "t/report.html").read_text()).text


def test_long_texts_are_cut_and_counted(tested, tmp_path):
    records = [*tuning.reviews(5), {"text": "the film was " * 30, "label": "good"}]
    data = tuning.write(tmp_path / "long.jsonl", records)
    report, _ = tested("reviewer", data)
    assert report["notes"] == ["1 of 6 texts have more than 16 tokens and were cut"]


def test_what_is_read_in_windows_is_counted(world, tested, tmp_path):
    text = "the film was very dull and the plot of a film was great and a music"
    long = {"text": text, "label": ""}
    data = conll(tmp_path / "long.conll", [*tuning.reviews(3), long])
    report, _ = tested("tagger", data)
    assert report["notes"] == [
        "1 of 4 sentences have more than 16 tokens and are read in several windows"
    ]
    predictor = predictor_for(load(world.run("answerer")))
    for passage in ("a film", long["text"], f"{long['text']} {long['text']}"):
        predictor([Question("the plot", passage)])
    note = predictor.notes[0]
    assert note.startswith("2 of 3 questions do not fit 16 tokens with their passage, which is ")
    assert int(note.split()[-2]) >= 5 and len(predictor.notes) == 1


# -- two runs


def test_two_runs_are_compared_on_the_same_examples(world, tested, tmp_path):
    report, ours = tested("reviewer", "classify", against=world.run("beginner"))
    comparison = report["comparison"]
    theirs = [one.value for one in predictor_for(load(world.run("beginner")))(
        [LabeledExample(row["text"]) for row in ours]
    )]  # fmt: skip
    assert comparison["names"] == ["beginner", "reviewer"]
    changed = [a["predicted"] != b for a, b in zip(ours, theirs, strict=True)]
    assert comparison["differing"] == sum(changed)
    gold = [row["gold"] for row in ours]
    first = sklearn.accuracy_score(gold, theirs)
    second = sklearn.accuracy_score(gold, [row["predicted"] for row in ours])
    row = comparison["figures"]["accuracy"]
    assert (row["first"], row["second"]) == pytest.approx((first, second))
    assert row["test"] == "McNemar, exact"
    better = second > first and row["p_value"] < 0.05
    assert ("reviewer is better" in comparison["verdict"]) == better
    assert comparison["verdict"] in Page((tmp_path / "t/report.html").read_text()).text


def test_a_run_against_itself_is_no_different(world, tested):
    comparison = tested("reviewer", "classify", against=world.run("reviewer"))[0]["comparison"]
    assert comparison["differing"] == 0 and "no difference beyond chance" in comparison["verdict"]


def test_runs_that_differ_on_thousands_of_examples():
    gold = ["a", "b"] * 1500
    comparison = compare("classify", gold, ["a"] * 3000, ["b"] * 3000, resamples=20)
    assert comparison["differing"] == 3000 and "no difference" in comparison["verdict"]


# -- tags


def test_entities_are_seqevals_on_the_predictions_written(tested):
    report, written = tested("tagger", "tag")
    gold, predicted = sides(written)
    assert len(written) == 60 and any("B-praise" in tags for tags in gold)
    assert [len(row["text"]) for row in written] == [len(tags) for tags in predicted]
    assert report["figures"] == pytest.approx({
        "f1": seqeval.f1_score(gold, predicted),
        "precision": seqeval.precision_score(gold, predicted),
        "recall": seqeval.recall_score(gold, predicted),
        "macro_f1": seqeval.f1_score(gold, predicted, average="macro"),
        "accuracy": seqeval.accuracy_score(gold, predicted),
    })  # fmt: skip
    for row in report["worst"]:
        assert isinstance(row["text"], str) and isinstance(row["gold"], list)


def test_entities_of_unseen_kinds_are_counted(tested, tmp_path):
    kinds = {"good": "praise", "bad": "rumour"}
    data = conll(tmp_path / "new.conll", tuning.reviews(20, seed=3), kinds)
    report, _ = tested("tagger", data)
    lines = data.read_text().splitlines()
    assert report["unseen"] == {"rumour": sum(line.endswith("B-rumour") for line in lines)}
    by_kind = {row["label"]: row for row in report["classes"]}
    assert by_kind["rumour"]["recall"] == 0 and by_kind["rumour"]["support"] > 0


def test_a_strict_reading_says_so(tested):
    report, written = tested("tagger", "tag", strict=True)
    assert report["options"] == {"mode": "strict", "scheme": "IOB2"}
    from seqeval.scheme import IOB2

    wanted = seqeval.f1_score(*sides(written), mode="strict", scheme=IOB2)
    assert report["figures"]["f1"] == pytest.approx(wanted)


@pytest.mark.parametrize("quiet", [0, 5])
def test_sentences_without_entities_change_nothing(quiet):
    nothing = [["O", "O"]] * quiet
    gold = [*nothing, ["B-a", "O"], ["O", "O"], ["B-b", "I-b"], *nothing]
    predicted = [*nothing, ["B-a", "O"], ["B-a", "O"], ["O", "B-b"], *nothing]
    figures = TaggingMetric(gold, predicted).figures
    assert figures["f1"] == pytest.approx(seqeval.f1_score(gold, predicted))
    assert figures["macro_f1"] == pytest.approx(seqeval.f1_score(gold, predicted, average="macro"))
    assert figures["accuracy"] == pytest.approx(seqeval.accuracy_score(gold, predicted))
    assert TaggingMetric([["O"]], [["O"]]).figures["f1"] == 0


# -- language models


def test_a_language_model_is_measured_as_in_training(reader, tmp_path):
    trained = json.loads((reader / "one/run.json").read_text())["valid"]
    plan = Plan(out=tmp_path / "t", split="valid")
    report = examine(str(reader / "one"), [str(reader / "data")], plan)
    assert report["figures"] == pytest.approx(trained, rel=1e-5)
    corpus = Corpus.open(reader / "data", "valid")
    written = rows(tmp_path / "t")
    assert [row["tokens"] for row in written] == [
        len(corpus.document(i)) for i in range(len(corpus.documents) - 1)
    ]
    nats = sum(row["nats"] for row in written)
    assert report["figures"]["bits_per_byte"] == pytest.approx(
        nats / math.log(2) / corpus.bytes, rel=1e-9
    )
    assert report["units"] == "documents" and report["examples"] == len(written)


@pytest.mark.parametrize("model", ["transformer-xl", "bert"])
def test_other_ways_of_reading_too(reader, tmp_path, model):
    facts = train(small.recipe(model, reader / "data"), tmp_path / model, display="silent")
    report = examine(str(tmp_path / model), [str(reader / "data")], Plan(split="valid"))
    assert report["figures"] == pytest.approx(facts["valid"], rel=1e-5)
    for name, value in report["figures"].items():
        assert report["intervals"][name][0] <= value <= report["intervals"][name][1]
    if model == "bert":
        assert report["units"] == "batches of 4" and "masked_accuracy" in report["figures"]
        with refuses(ConfigError, "left to right"):
            plan = Plan(split="valid", against=str(tmp_path / model))
            examine(str(tmp_path / model), [str(reader / "data")], plan)


def test_text_is_cut_by_the_models_own_tokenizer(reader, tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("w7 w8 w9\n\nw10 w11\n", encoding="utf-8")
    plan = Plan(out=tmp_path / "t", against=str(reader / "two"), resamples=50, limit=2)
    report = examine(str(reader / "one"), [str(text)], plan)
    assert len(report["notes"]) == 1 and "learned no task" in report["notes"][0]
    assert [(row["tokens"], row["bytes"]) for row in rows(tmp_path / "t")] == [(4, 8), (3, 7)]
    model = load(reader / "one").model
    ids = torch.tensor([[1, 7, 8, 9, 1, 10, 11]])  # the end of another text comes first
    with torch.no_grad():
        chances = model.logits(model(ids)).log_softmax(-1)[0]
    wanted = -chances[torch.arange(7), torch.tensor([7, 8, 9, 1, 10, 11, 1])]
    assert report["figures"]["perplexity"] == pytest.approx(float(wanted.mean().exp()), rel=1e-5)
    assert report["comparison"]["names"] == ["two", "one"]
    assert list(report["comparison"]["figures"]) == ["perplexity", "bits_per_byte"]
    assert report["comparison"]["resamples"] == 50
    page = Page((tmp_path / "t/report.html").read_text()).text
    assert "intervals by bootstrap over documents" in page and "over examples" not in page


def test_a_limit_of_documents_is_said(reader, tmp_path):
    plan = Plan(out=tmp_path / "t", split="valid", limit=3)
    report = examine(str(reader / "one"), [str(reader / "data")], plan)
    total = len(Corpus.open(reader / "data", "valid").documents) - 1
    assert report["examples"] == 3 == len(rows(tmp_path / "t"))
    assert report["notes"][1:] == [f"only the first 3 of {total:,} documents were tested"]


def test_a_corpus_of_its_first_documents(reader):
    corpus = Corpus.open(reader / "data", "valid")
    few = first_documents(corpus, 3)
    assert len(few) == int(corpus.documents[3]) and len(few.documents) == 4
    assert few.bytes == int(corpus.document_bytes[:3].sum())
    assert few.read(0, 10**6).tolist() == corpus.read(0, int(corpus.documents[3])).tolist()
    assert int(few.sentences[-1]) == len(few) and first_documents(corpus, 0) is corpus


# -- what is refused


TEXT, CLASSIFY = "text", "classify"  # the reader's prepared text, or the world's data of a task
REFUSED = [  # the model, the data, the plan; the error, and what it names
    ("reviewer", "tag", {"task": "tag"}, ConfigError, "classify, tag, bert"),
    ("bert", CLASSIFY, {"task": "answer"}, ConfigError, "no task, answer"),
    ("reviewer", CLASSIFY, {"task": "clasify"}, UnknownName, "task 'clasify', 'classify'"),
    ("reviewer", CLASSIFY, {"against": "tagger"}, ConfigError, "tag, classify"),
    ("one", TEXT, {"split": "valid", "against": "reviewer"}, ConfigError, "classify, no task"),
    ("reviewer", TEXT, {}, InputError, "prepared text, classify"),
    ("bert", TEXT, {}, InputError, "tokenizer"),
    ("one", TEXT, {"split": "dev"}, UnknownName, "split 'dev'"),
    ("reviewer", CLASSIFY, {"decoding": {"num_beams": 4}}, ConfigError, "num_beams"),
    ("one", TEXT, {"decoding": {"num_beams": 4}}, ConfigError, "num_beams"),
    ("reviewer", CLASSIFY, {"length": 8}, ConfigError, "--seq-len, classify"),
    ("reviewer", CLASSIFY, {"split": "valid"}, ConfigError, "--split, classify"),
    ("reviewer", CLASSIFY, {"strict": True}, ConfigError, "--strict, classify"),
    ("reviewer", CLASSIFY, {"language": "zh"}, ConfigError, "--language, classify"),
    ("one", TEXT, {"strict": True}, ConfigError, "--strict, text"),
    ("one", TEXT, {"language": "zh"}, ConfigError, "--language, text"),
    ("reviewer", CLASSIFY, {"precision": "fp8"}, UnknownName, "precision 'fp8'"),
    ("reviewer", CLASSIFY, {"resamples": 0}, ConfigError, "resamples is 0"),
]


@pytest.mark.parametrize(("model", "data", "plan", "error", "named"), REFUSED)
def test_refusals(world, reader, tmp_path, model, data, plan, error, named):
    def directory(name):
        known = {"one": str(reader / "one"), "bert": None}
        return (known[name] or world.model(name)) if name in known else world.run(name)

    if "against" in plan:
        plan = plan | {"against": directory(plan["against"])}
    file = str(reader / "data") if data == TEXT else world.data(data)
    with refuses(error, *named.split(", ")):
        examine(directory(model), [file], Plan(out=tmp_path / "t", **plan))


def test_who_can_learn_a_task():
    assert {"t5", "gpt"} <= set(learners("translate")) and "t5" not in learners("tag")


def test_data_without_right_answers(world, tmp_path):
    bare = tuning.write(tmp_path / "bare.jsonl", [{"text": "a film"}, {"text": "the plot"}])
    with refuses(InputError, bare, "classify"):
        examine(world.run("reviewer"), [str(bare)])
    some = tuning.write(tmp_path / "some.jsonl", [*tuning.reviews(4), {"text": "a film"}])
    with refuses(InputError, "missing-label", f"{some}:5"):
        examine(world.run("reviewer"), [str(some)])
    plan = Plan(out=tmp_path / "t", skip=["missing-label"])
    report = examine(world.run("reviewer"), [str(some)], plan)
    assert report["examples"] == 4
    assert "1 records were left out: missing-label" in report["notes"][0]
    late = tuning.write(tmp_path / "late.jsonl", [{"text": "a film"}, *tuning.reviews(4)])
    with refuses(InputError, "1 of 5", f"{late}:1", "--skip missing-label"):
        examine(world.run("reviewer"), [str(late)])
    report = examine(world.run("reviewer"), [str(late)], plan)
    assert report["examples"] == 4 and "1 examples were left out" in report["notes"][0]


def test_broken_records_are_refused_or_counted(world, tmp_path):
    records = [*tuning.reviews(4), {"text": " ", "label": "good"}]
    data = tuning.write(tmp_path / "broken.jsonl", records)
    with refuses(InputError, f"{data}:5"):
        examine(world.run("reviewer"), [str(data)])
    plan = Plan(out=tmp_path / "t", skip=["empty-text"])
    report = examine(world.run("reviewer"), [str(data)], plan)
    assert report["examples"] == 4
    assert report["notes"] == ["1 records were left out: empty-text (as --skip empty-text asks)"]


# -- small parts


def test_the_language_is_seen_by_its_letters():
    assert language_of(["你好，世界", "再见 OK"]) == "zh"
    assert language_of([["the cat"], []]) == "en" and language_of(["12 34"]) == "en"


def test_unseen_labels():
    seen = [
        LabeledExample("a", label="x"),
        LabeledExample("b", label="y"),
        LabeledExample("c", label="y"),
    ]
    assert task("classify").unseen(seen, ["x"]) == {"y": 2}
    assert task("classify").unseen(seen, []) == {}
    tagged = [TaggedExample(("a", "b", "c"), ("B-p", "I-p", "B-q"))]
    assert task("tag").unseen(tagged, ["O", "B-p", "I-p"]) == {"q": 1}
