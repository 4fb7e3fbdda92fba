"""Figures: those of the field's own libraries, hand-checked cases, and the same under weights."""

from __future__ import annotations

import json
import math
import re
import string
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.core.errors import InputError, UnknownName
from regard.metrics.answers import Answers, exact, overlap, pieces
from regard.metrics.base import points
from regard.metrics.figures import calibration
from regard.metrics.labels import Classification, TaggingMetric
from regard.metrics.numbers import bits_per_byte, perplexity
from regard.metrics.text import AnyScriptTokenizer
from tests.metrics.kinds import KINDS, each, figures_of, measured, summarize
from tests.refusals import refuses

sklearn = pytest.importorskip("sklearn.metrics")
pytest.importorskip("seqeval")
pytest.importorskip("sacrebleu")
pytest.importorskip("rouge_score")

TRUE = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG", "I-ORG"], ["O", "O"], ["I-LOC", "B-LOC"]]
SAID = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-ORG", "O"], ["O", "B-LOC"], ["I-LOC", "B-LOC"]]
TEXTS = [
    ("The cat sat on the mat.", "The cat sat on the mat."),
    ("It rained all day in Paris, sadly.", "It was raining all day in Paris."),
    ("Hello there!", "Goodbye."),
    ("He bought three red apples at the market.", "He bought red apples at a market there."),
    ("No.", ""),
]
CHINESE = [
    ("我喜欢吃苹果。", "我很喜欢苹果。"),
    ("今天GDP增长3%。", "今天 GDP 增长了3%。"),
    ("你好", "再见"),
]


PARTS = (  # of speech
    [["DT", "NN", "VB"], ["NN"], [], ["DT", "NN"]],
    [["DT", "VB", "VB"], ["NN"], [], ["IN", "VB"]],
)


def random_labels(count=400, classes=5, seed=0):
    draw = np.random.default_rng(seed)
    gold = draw.integers(0, classes, count)
    noise = draw.integers(0, classes + 1, count)  # one class is predicted but never real
    predicted = np.where(draw.random(count) < 0.6, gold, noise)
    return [f"class {x}" for x in gold], [f"class {x}" for x in predicted]


def examples(task):
    if task in ("classify", "entail"):
        return random_labels(60)
    if task == "choose":
        return [0, 1, 1, 0, 2], [0, 1, 0, 0, 1]
    if task == "tag":
        return TRUE, SAID
    if task == "words":
        return PARTS
    if task == "answer":
        return [["the cat"], ["a dog", "dog"], [], ["Paris"], []], ["cat", "big dog", "", "", "no"]
    if task == "similar":
        draw = np.random.default_rng(1)
        gold = draw.integers(0, 6, 50) / 2  # with ties
        return list(gold), list(gold + draw.normal(0, 1, 50))
    if task == "model":
        return [(10, 42), (5, 20), (7, 30)], [31.0, 12.5, 20.0]
    return [a for a, _ in TEXTS], [b for _, b in TEXTS]


# -- labels


def test_classification_is_scikit_learns():
    gold, predicted = random_labels()
    figures = figures_of("classify", gold, predicted)
    assert list(figures) == ["accuracy", "macro_f1", "micro_f1", "weighted_f1", "matthews"]
    assert figures["accuracy"] == sklearn.accuracy_score(gold, predicted)
    for average in ("macro", "micro", "weighted"):
        value = sklearn.f1_score(gold, predicted, average=average, zero_division=0)
        assert figures[f"{average}_f1"] == pytest.approx(value, abs=1e-15)
    matthews = sklearn.matthews_corrcoef(gold, predicted)
    assert figures["matthews"] == pytest.approx(matthews, abs=1e-12)


def test_classification_by_hand():
    # a: 2 real, 3 claimed, 2 hits: 0.8; b: 2 real, 1 claimed, 1 hit: 2/3; c: 1 real, 1 claimed: 1
    figures = figures_of("classify", list("aabbc"), list("aaabc"))
    assert figures["accuracy"] == pytest.approx(0.8)
    assert figures["macro_f1"] == pytest.approx((0.8 + 2 / 3 + 1) / 3)
    assert figures["weighted_f1"] == pytest.approx((2 * 0.8 + 2 * 2 / 3 + 1) / 5)
    assert figures["matthews"] == pytest.approx((4 * 5 - (6 + 2 + 1)) / math.sqrt(14 * 16))


def test_the_report_of_each_class_and_the_confusion():
    gold, predicted = random_labels()
    details = Classification(gold, predicted).details
    names = sorted({*gold, *predicted})
    report = sklearn.classification_report(gold, predicted, output_dict=True, zero_division=0)
    assert [row["label"] for row in details["classes"]] == names
    for row in details["classes"]:
        theirs = report[row["label"]]
        assert row["precision"] == pytest.approx(theirs["precision"])
        assert row["recall"] == pytest.approx(theirs["recall"])
        assert row["f1"] == pytest.approx(theirs["f1-score"])
        assert row["support"] == theirs["support"]
        assert row["predicted"] == predicted.count(row["label"])
    assert details["confusion"]["labels"] == names
    assert details["confusion"]["matrix"] == sklearn.confusion_matrix(gold, predicted).tolist()


def test_numbers_as_labels_keep_their_order():
    details = Classification([10, 2, 2, 1], [10, 2, 1, 1]).details
    assert details["confusion"]["labels"] == ["1", "2", "10"]


def test_choice_is_accuracy():
    assert figures_of("choose", [0, 1, 1, 0], [0, 1, 0, 1]) == {"accuracy": 0.5}


# -- tags


@pytest.mark.parametrize("mode", ["", "strict"])
def test_tags_are_seqevals(mode):
    from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
    from seqeval.scheme import IOB2

    options = {"mode": "strict", "scheme": IOB2} if mode else {}
    figures = figures_of("tag", TRUE, SAID, mode=mode)
    assert figures["f1"] == pytest.approx(f1_score(TRUE, SAID, **options))
    assert figures["precision"] == pytest.approx(precision_score(TRUE, SAID, **options))
    assert figures["recall"] == pytest.approx(recall_score(TRUE, SAID, **options))
    report = classification_report(TRUE, SAID, output_dict=True, zero_division=0, **options)
    assert figures["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])
    rows = TaggingMetric(TRUE, SAID, mode=mode).details["classes"]
    assert {row["label"] for row in rows} == {"LOC", "ORG", "PER"}
    for row in rows:
        assert row["f1"] == pytest.approx(report[row["label"]]["f1-score"])
        assert row["support"] == report[row["label"]]["support"]


def test_tags_by_hand():
    # real: PER, LOC | ORG 1–2 | – | LOC, LOC; claimed: PER, ORG | ORG 1–1 | LOC | LOC, LOC
    figures = figures_of("tag", TRUE, SAID)
    assert figures["precision"] == pytest.approx(3 / 6)
    assert figures["recall"] == pytest.approx(3 / 5)
    assert figures["f1"] == pytest.approx(6 / 11)
    assert figures["accuracy"] == pytest.approx(8 / 11)
    strict = figures_of("tag", TRUE, SAID, mode="strict")  # I-LOC begins nothing
    assert strict["f1"] == pytest.approx(2 * 2 / (5 + 4))
    assert each("tag", TRUE, SAID) == pytest.approx([0.5, 0.0, 0.0, 1.0])
    assert each("tag", [["O"]], [["O"]]) == [1.0]


def test_tags_without_entities():
    figures = figures_of("tag", [["O", "O"], []], [["O", "O"], []])
    assert figures == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "macro_f1": 0.0, "accuracy": 1.0}


def test_parts_of_speech_are_measured_by_words():
    assert figures_of("words", *PARTS) == {"accuracy": 0.5}
    assert each("words", *PARTS) == pytest.approx([2 / 3, 1.0, 1.0, 0.0])
    summary = summarize("words", *PARTS)
    rows = {row["label"]: row for row in summary["classes"]}
    assert rows["NN"]["recall"] == pytest.approx(1 / 3) and rows["NN"]["precision"] == 1.0
    assert rows["VB"]["support"] == 1 and rows["VB"]["predicted"] == 3
    assert summary["worst"][0] == {
        "index": 3, "score": 0.0, "gold": ["DT", "NN"], "predicted": ["IN", "VB"],
    }  # fmt: skip


# -- answers


@pytest.mark.parametrize(
    ("gold", "predicted", "same", "share"),
    [
        ("The Eiffel Tower", "eiffel tower!", 1, 1),
        ("the cat", "a cat", 1, 1),
        ("anthem", "them", 0, 0),  # articles are words, not letters
        ("in 1905", "1905", 0, 2 / 3),
        ("red red car", "red car car", 0, 2 / 3),  # bags, not sets
        ("U.S.", "us", 1, 1),
        ("well-known", "well known", 0, 0),  # the hyphen goes, no space comes
        ("", "", 1, 1),
        ("the", "an", 1, 1),  # nothing is left of either
        ("", "cat", 0, 0),
    ],
)
def test_english_answers(gold, predicted, same, share):
    assert exact(gold, predicted) == same
    assert overlap(gold, predicted) == pytest.approx(share)


def test_chinese_answers():
    assert pieces("《红楼梦》的作者，是曹雪芹。", "zh-CN") == list("红楼梦的作者是曹雪芹")
    assert pieces("GDP增长 3.5%", "zh") == ["gdp", "增", "长", "35"]
    assert exact("曹雪芹。", "曹 雪 芹", "zh") == 1
    assert overlap("北京市", "北京", "zh") == pytest.approx(0.8)
    assert overlap("北京市", "北京") == 0  # by words they share nothing


def stripped(text):
    bare = text.lower().translate(dict.fromkeys(map(ord, string.punctuation)))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def bag_f1(gold, predicted):
    real, claimed = stripped(gold).split(), stripped(predicted).split()
    same = sum((Counter(real) & Counter(claimed)).values())
    if not real or not claimed:
        return float(real == claimed)
    if not same:
        return 0.0
    precision, recall = same / len(claimed), same / len(real)
    return 2 * precision * recall / (precision + recall)


@settings(max_examples=200, deadline=None)
@given(*[st.lists(st.sampled_from([*"ab. '-_", "the ", "an ", "cat"])).map("".join)] * 2)
def test_answers_are_stripped_as_squads_script_does(gold, predicted):
    assert exact(gold, predicted) == float(stripped(gold) == stripped(predicted))
    assert overlap(gold, predicted) == pytest.approx(bag_f1(gold, predicted))


def squad(gold, predicted, silence, limit):
    """The rules of evaluate-v2.0.py, question by question, written out again."""

    def scores(accepted, answer, measure):
        answers = [x for x in accepted if stripped(x)] or [""]
        return max(measure(x, answer) for x in answers)

    def same(gold, predicted):
        return float(stripped(gold) == stripped(predicted))

    totals = {}
    for name, measure in (("exact_match", same), ("f1", bag_f1)):
        raw = [scores(a, b, measure) for a, b in zip(gold, predicted, strict=True)]
        cut = [float(not a) if s > limit else r for a, s, r in zip(gold, silence, raw, strict=True)]
        totals[name] = sum(cut) / len(gold)
        now = best = sum(not a for a in gold)
        threshold = 0.0
        for s, r, a, b in sorted(
            zip(silence, raw, gold, predicted, strict=True), key=lambda x: x[0]
        ):
            now += r if a else (-1 if b else 0)
            if now > best:
                best, threshold = now, s
        totals[f"best_{name}"], totals[f"best_{name}_threshold"] = best / len(gold), threshold
    return totals


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(
    st.lists(st.sampled_from(["the cat", "dog", "a big dog", "red fox"]), max_size=2),
    st.sampled_from(["", "cat", "dog", "big dog", "a fox"]),
    st.integers(0, 10).map(lambda x: x / 10),
), min_size=1, max_size=12))  # fmt: skip
def test_answers_follow_squads_script(rows):
    gold, predicted, silence = map(list, zip(*rows, strict=True))
    metric = Answers(gold, predicted, silence=silence, threshold=0.5)
    theirs = squad(gold, predicted, silence, 0.5)
    assert metric.figures["f1"] == pytest.approx(theirs["f1"])
    assert metric.figures["exact_match"] == pytest.approx(theirs["exact_match"])
    for name, value in metric.details["thresholds"].items():
        assert value == pytest.approx(theirs[name]), name


def test_answers_that_are_none():
    figures = figures_of("answer", *examples("answer"))
    assert figures["f1"] == pytest.approx((1 + 2 / 3 + 1 + 0 + 0) / 5)
    assert figures["exact_match"] == pytest.approx((1 + 0 + 1 + 0 + 0) / 5)
    assert figures["answerable_f1"] == pytest.approx((1 + 2 / 3) / 3)
    assert figures["unanswerable_accuracy"] == pytest.approx(0.5)
    assert list(figures_of("answer", [["a cat"]], ["cat"])) == ["f1", "exact_match"]


# -- texts


@pytest.mark.parametrize("language", ["en", "zh", "zh-Hans"])
def test_translation_is_sacrebleus(language):
    import sacrebleu

    pairs = TEXTS if language == "en" else CHINESE
    gold, predicted = [a for a, _ in pairs], [b for _, b in pairs]
    metric = measured("translate", gold, predicted, language=language)
    tokenizer = "13a" if language == "en" else "zh"
    theirs = sacrebleu.corpus_bleu(predicted, [gold], tokenize=tokenizer)
    assert metric.figures["bleu"] == pytest.approx(theirs.score, abs=1e-9)
    assert metric.figures["chrf"] == pytest.approx(sacrebleu.corpus_chrf(predicted, [gold]).score)
    signature = metric.details["signatures"]["bleu"]
    assert f"tok:{tokenizer}" in signature and "nrefs:1" in signature and "smooth:exp" in signature
    assert sacrebleu.__version__ in metric.details["signatures"]["chrf"]


sentences = st.lists(st.sampled_from("the cat sat on a mat".split()), max_size=7).map(" ".join)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=4))
def test_bleu_and_chrf_from_counts_are_sacrebleus(pairs):
    """Short texts: orders without a match are smoothed, orders without n-grams are not."""
    import sacrebleu

    gold, predicted = map(list, zip(*pairs, strict=True))
    figures = points(measured("translate", gold, predicted).weighted, len(gold))
    bleu, chrf = sacrebleu.corpus_bleu(predicted, [gold]), sacrebleu.corpus_chrf(predicted, [gold])
    assert figures["bleu"] == pytest.approx(bleu.score, abs=1e-9)
    assert figures["chrf"] == pytest.approx(chrf.score, abs=1e-9)


def test_orders_without_a_match_are_smoothed_one_after_the_other():
    figures = points(measured("translate", ["a b c d e f"], ["a b x d y f"]).weighted, 1)
    precisions = [4 / 6, 1 / 5, 1 / (2 * 4), 1 / (4 * 3)]
    assert figures["bleu"] == pytest.approx(100 * math.prod(precisions) ** 0.25)


def test_several_references():
    import sacrebleu

    gold = [["The cat sat.", "A cat was sitting."], "It rains.", ["Go.", "Go away.", "Leave."]]
    predicted = ["A cat sat.", "It is raining.", "Go away now."]
    streams = [
        ["The cat sat.", "It rains.", "Go."],
        ["A cat was sitting.", None, "Go away."],
        [None, None, "Leave."],
    ]
    figures = figures_of("translate", gold, predicted)
    assert figures["bleu"] == pytest.approx(sacrebleu.BLEU().corpus_score(predicted, streams).score)
    assert figures["chrf"] == pytest.approx(sacrebleu.CHRF().corpus_score(predicted, streams).score)
    assert "nrefs:var" in measured("translate", gold, predicted).details["signatures"]["bleu"]


def test_each_translation_is_its_chrf():
    import sacrebleu

    scores = each("translate", *examples("translate"))
    theirs = [sacrebleu.sentence_chrf(b, [a]).score for a, b in TEXTS]
    assert scores == pytest.approx(theirs)


def test_summaries_are_rouge_scores():
    from rouge_score.rouge_scorer import RougeScorer

    gold, predicted = examples("summarize")
    for stemmer in (False, True):
        scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stemmer)
        figures = figures_of("summarize", gold, predicted, stemmer=stemmer)
        for name, value in figures.items():
            theirs = [scorer.score(a, b)[name].fmeasure for a, b in TEXTS]
            assert value == pytest.approx(np.mean(theirs)), name
    several = figures_of("summarize", [["no match", "the cat sat"]], ["the cat sat"])
    assert several["rougeL"] == 1.0


def test_summaries_in_other_scripts_are_not_zero():
    assert AnyScriptTokenizer().tokenize("我爱GDP，3.5%！Привет мир") == [
        "我", "爱", "gdp", "3", "5", "привет", "мир",
    ]  # fmt: skip
    figures = figures_of("summarize", ["我喜欢苹果"], ["我喜欢梨"], language="zh")
    assert figures["rouge1"] == pytest.approx(2 * 3 / (5 + 4))
    assert figures["rouge2"] == pytest.approx(2 * 2 / (4 + 3))
    assert figures_of("summarize", ["привет мир"], ["привет мир"], language="ru")["rougeL"] == 1.0
    assert figures_of("summarize", ["привет мир"], ["привет мир"])["rougeL"] == 0.0  # English rules


# -- numbers


def test_similarity_is_scipys():
    from scipy.stats import pearsonr, spearmanr

    gold, predicted = examples("similar")
    figures = figures_of("similar", gold, predicted)
    assert figures["spearman"] == pytest.approx(spearmanr(gold, predicted).statistic)
    assert figures["pearson"] == pytest.approx(pearsonr(gold, predicted).statistic)
    assert all(math.isnan(x) for x in figures_of("similar", [1, 2, 3], [2, 2, 2]).values())


def test_language_modelling_by_hand():
    figures = figures_of("model", [(2, 4), (2, 12)], [math.log(16), math.log(16)])
    assert figures["perplexity"] == pytest.approx(4.0)
    assert figures["bits_per_byte"] == pytest.approx(8 / 16)
    assert math.isnan(perplexity(1.0, 0)) and math.isnan(bits_per_byte(1.0, 0))
    assert perplexity(1e6, 1) == math.inf
    assert each("model", [(2, 4), (4, 12)], [4.0, 2.0]) == [-2.0, -0.5]


# -- all of them


@pytest.mark.parametrize("task", KINDS)
def test_weights_of_one_give_the_librarys_figures(task):
    metric = measured(task, *examples(task))
    assert points(metric.weighted, metric.count) == pytest.approx(metric.figures, rel=1e-9)
    assert len(metric.each) == metric.count


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_repeated_examples(task, seed):
    """A resample by weights is the library's figure of the examples written out."""
    gold, predicted = examples(task)
    drawn = np.random.default_rng(seed).integers(0, len(gold), len(gold))
    weights = np.bincount(drawn, minlength=len(gold))[None].astype(float)
    theirs = figures_of(task, [gold[i] for i in drawn], [predicted[i] for i in drawn])
    for name, figure in measured(task, gold, predicted).weighted.items():
        value = float(figure(weights)[0])
        expected = theirs.get(name, math.nan)  # a resample may lack a kind of question
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True) or (
            name.startswith(("answerable", "unanswerable")) and name not in theirs
        ), name


@pytest.mark.parametrize("task", KINDS)
def test_a_summary_is_plain_json(task):
    gold, predicted = examples(task)
    summary = summarize(task, gold, predicted, texts=[f"text {i}" for i in range(len(gold))])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["examples"] == len(gold) and summary["main"] == next(iter(summary["figures"]))
    assert summary["figures"] == pytest.approx(figures_of(task, gold, predicted))
    assert set(summary["intervals"]) == set(summary["figures"])
    for name, (low, high) in summary["intervals"].items():
        assert low <= high, name
    assert summary["worst"] and summary["worst"][0]["text"].startswith("text ")
    assert summary == summarize(
        task, gold, predicted, texts=[f"text {i}" for i in range(len(gold))]
    )


def test_undefined_is_none():
    summary = summarize("similar", [1.0, 2.0], [3.0, 3.0])
    assert summary["figures"] == {"spearman": None, "pearson": None}
    assert summary["intervals"] == {"spearman": None, "pearson": None}


def test_the_worst_come_first():
    gold, predicted = ["a", "b", "a", "b", "a"], ["a", "a", "b", "a", "b"]
    sure = [{"a": 0.9, "b": 0.1}, {"a": 0.6, "b": 0.4}, {"a": 0.1, "b": 0.9},
            {"a": 0.99, "b": 0.01}, {"b": 1.0}]  # fmt: skip
    summary = summarize("classify", gold, predicted, scores=sure, texts=list("vwxyz"))
    assert [row["index"] for row in summary["worst"]] == [4, 3, 2, 1]
    assert summary["worst"][1] == {
        "index": 3, "score": 0.0, "confidence": 0.99, "loss": pytest.approx(-math.log(0.01)),
        "text": "y", "gold": "b", "predicted": "a",
    }  # fmt: skip
    lone = summarize("classify", gold, predicted, scores=[0.9, 0.6, 0.9, 0.99, 0.5], worst=2)
    assert [row["index"] for row in lone["worst"]] == [3, 2]
    chosen = summarize("choose", [0, 1], [1, 1], scores=[[0.2, 0.8], [0.1, 0.9]])
    assert [(row["index"], row["loss"]) for row in chosen["worst"]] == [
        (0, pytest.approx(-math.log(0.2)))
    ]


def test_the_worst_tags_are_shown_as_entities():
    words = [["Ann", "Lee", "in", "Rome"], ["the", "United", "Nations"], ["x", "y"], ["a", "b"]]
    rows = summarize("tag", TRUE, SAID, texts=words)["worst"]
    shown = {row["index"]: (row["gold"], row["predicted"]) for row in rows}
    assert shown[0] == (["PER: Ann Lee", "LOC: Rome"], ["PER: Ann Lee", "ORG: Rome"])
    assert shown[1] == (["ORG: United Nations"], ["ORG: United"])
    assert 3 not in shown
    assert summarize("tag", TRUE, SAID)["worst"][0]["gold"] == ["ORG: 1–2"]
    assert summarize("tag", TRUE, SAID, mode="strict")["worst"][0]["gold"] == ["ORG: 1–2"]


def test_calibration_by_hand():
    summary = calibration([0.95, 0.85, 0.85, 0.15, 1.0], [1, 1, 0, 0, 1])
    bins = [(row["from"], row["count"]) for row in summary["bins"]]
    assert bins == [(0.1, 1), (0.8, 2), (0.9, 2)]
    distances = 1 * 0.15 + 2 * abs(0.85 - 0.5) + 2 * abs(0.975 - 1)
    assert summary["error"] == pytest.approx(distances / 5)
    with refuses(InputError, "probability"):
        calibration([1.5], [1])


def test_answers_with_silence_are_summarized():
    gold, predicted = examples("answer")
    summary = summarize("answer", gold, predicted, scores=[0.1, 0.2, 0.9, 0.8, 0.3])
    assert set(summary["thresholds"]) == {
        "best_f1", "best_f1_threshold", "best_exact_match", "best_exact_match_threshold",
    }  # fmt: skip
    # 1 silences nothing
    assert summary["figures"]["f1"] == figures_of("answer", gold, predicted)["f1"]


STRICT = {"mode": "strict", "scheme": "IOB2"}


@pytest.mark.parametrize(
    ("kind", "gold", "predicted", "options", "error", "named"),
    [
        ("classify", ["a", "b"], ["a"], {}, InputError, "2 gold, 1 predictions"),
        ("answer", [], [], {}, InputError, "no examples"),
        ("answer", ["cat"], ["cat"], {}, InputError, "question 1, 'cat', list"),
        ("words", [["NN"]], [["NN", "NN"]], {}, InputError, "sentence 1, 1 gold, 2 predicted"),
        ("tag", [["O"], ["O"]], [["O"], ["O", "O"]], {}, InputError, "sentence 2, 2 predicted"),
        ("tag", [["PER"]], [["O"]], {}, InputError, "'PER'"),
        ("tag", [["B-PER"]], [["E-PER"]], STRICT, InputError, "'E-PER'"),
        ("tag", [["O"]], [["O"]], {"scheme": "IOBE"}, UnknownName, "scheme 'IOBE', 'IOBES'"),
        ("tag", [["O"]], [["O"]], {"mode": "stric"}, UnknownName, "mode, 'stric', 'strict'"),
        ("translate", [[]], [""], {}, InputError, "example 1, reference"),
        ("translate", ["a"], ["a"], {"tokenizer": "zhh"}, UnknownName, "tokenizer, 'zhh'"),
        ("similar", [1.0, math.nan], [1.0, 2.0], {}, InputError, "finite"),
    ],
)
def test_bad_input_is_named(kind, gold, predicted, options, error, named):
    with refuses(error, *named.split(", ")):
        figures_of(kind, gold, predicted, **options)


def test_one_score_for_each_example():
    with refuses(InputError, "2 examples", "1 scores"):
        summarize("classify", ["a", "b"], ["a", "b"], scores=[0.5])


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    with refuses(InputError, "'sklearn.metrics'", "regard[tasks]"):
        figures_of("classify", ["a"], ["a"])
