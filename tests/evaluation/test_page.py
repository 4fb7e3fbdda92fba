"""The page of a test: whole, self-contained, and safe whatever the texts hold."""

from __future__ import annotations

import numpy as np
import pytest

from regard.evaluation.page import LONGEST, shown, verdict, write_page
from tests.html import HOSTILE, Page
from tests.metrics.kinds import compare, summarize

pytest.importorskip("sklearn")

NASTY = HOSTILE + "\x00"


def results(label=str, text=str, count=120, classes=3):
    draw = np.random.default_rng(0)
    gold = draw.integers(0, classes, count)
    first = np.where(draw.random(count) < 0.6, gold, draw.integers(0, classes, count))
    second = np.where(draw.random(count) < 0.9, gold, draw.integers(0, classes, count))
    names = [label(i) for i in range(classes)]
    gold, first, second = ([names[i] for i in side] for side in (gold, first, second))
    sure = [{x: 0.8 if x == y else 0.2 / (classes - 1) for x in names} for y in second]
    texts = [text(i) for i in range(count)]
    report = summarize("classify", gold, second, scores=sure, texts=texts)
    return report | {"comparison": compare("classify", gold, first, second, names=("old", "new"))}


def test_the_page_says_everything(tmp_path):
    report = results(lambda i: f"kind {i}", lambda i: f"The text of number {i}.")
    file = write_page(tmp_path, report | {"title": "Reviews", "model": "runs/a", "data": "t.tsv"})
    assert file == tmp_path / "report.html"
    page = Page(file.read_text())
    assert page.fetched == []
    for word in ("Reviews", "runs/a · t.tsv ·", "120 examples", "accuracy", "macro F1", "Matthews"):
        assert word in page.text, word
    assert page.data["figures"] == report["figures"]
    assert page.data["intervals"] == {k: list(v) for k, v in report["intervals"].items()}
    low, high = report["intervals"]["accuracy"]
    assert f"{low:.4f} – {high:.4f}" in page.text
    assert "95% intervals by bootstrap over examples (1,000 resamples)" in page.text
    assert "new is better (accuracy +0." in page.text and "McNemar, exact" in page.text
    assert "new 更好（准确率 +0." in page.text and "McNemar 检验（精确）" in page.text
    assert "expected calibration error" in page.text
    bins = report["calibration"]["bins"]
    assert page.chart("calibration")["lines"][1]["points"] == [
        [r["confidence"], r["accuracy"]] for r in bins
    ]
    assert report["worst"][0]["text"] in page.text and "最严重的错误" in page.text
    assert page.table("confusion") == report["confusion"]["matrix"]
    assert page.table("comparison")[0][:3] == [
        report["comparison"]["figures"]["accuracy"][k] for k in ("first", "second", "difference")
    ]
    columns = ("precision", "recall", "f1", "support", "predicted")
    assert page.table("classes") == [[row[k] for k in columns] for row in report["classes"]]


def test_no_text_of_others_becomes_markup(tmp_path):
    report = results(lambda i: f"{NASTY}{i}", lambda i: NASTY)
    report["comparison"]["names"] = [NASTY, NASTY]
    report["comparison"]["verdict"] = NASTY
    report |= {
        "title": NASTY, "model": NASTY, "data": NASTY, "task": NASTY,
        "signatures": {NASTY: NASTY}, "thresholds": {NASTY: 0.5},
        "figures": {NASTY: 0.5}, "intervals": {NASTY: [0.1, 0.9]},
    }  # fmt: skip
    raw = write_page(tmp_path / "page.html", report).read_text()
    page = Page(raw)
    assert page.tags.count("script") == 3 and "img" not in page.tags
    assert "\x00" not in raw and page.text.count("<script>alert") > 20


@pytest.mark.parametrize("task", ["answer", "similar", "model", "tag", "translate"])
def test_every_task_has_a_page(tmp_path, task):
    pytest.importorskip({"tag": "seqeval", "translate": "sacrebleu"}.get(task, "scipy"))
    gold, predicted, scores, texts = {
        "answer": ([["a cat"], []], ["cat", "dog"], [0.1, 0.7], ["q?", {"question": "r?"}]),
        "similar": ([1.0, 2.0, 3.0], [2.0, 2.5, 2.0], None, [("one", "two")] * 3),
        "model": ([(10, 42), (5, 20)], [31.0, 12.0], None, ["first", "second"]),
        "tag": ([["B-X", "O"]], [["O", "O"]], [0.5], [["Ann", "ran"]]),
        "translate": (["Hello there."], ["Hello."], None, ["你好。"]),
    }[task]
    report = summarize(task, gold, predicted, scores=scores, texts=texts)
    page = Page(write_page(tmp_path, report).read_text())
    assert f"Test: {task}" in page.text
    wanted = {
        "answer": "question: r?", "similar": "one · two", "model": "perplexity",
        "tag": "X: Ann", "translate": "nrefs:1|",
    }  # fmt: skip
    assert wanted[task] in page.text and "undefined" not in page.text
    assert ("best F1 threshold" in page.text) == (task == "answer")


def test_what_is_counted_and_where_it_stands(tmp_path):
    report = summarize("model", [(10, 42), (5, 20)], [31.0, 12.0], texts=["first", "second"])
    report["worst"] = [{"index": 1, "text": "second", "loss": 2.5, "place": f"{NASTY}.txt:7"}]
    page = Page(write_page(tmp_path, report | {"units": "documents"}).read_text())
    assert "intervals by bootstrap over documents" in page.text and "2 documents" in page.text
    assert "document 文档 2" in page.text and ".txt:7" in page.text and "img" not in page.tags
    page = Page(write_page(tmp_path, report | {"units": "batches of 4"}).read_text())
    assert "intervals by bootstrap over batches" in page.text and "over examples" not in page.text


def test_what_is_missing_is_left_out(tmp_path):
    page = Page(write_page(tmp_path, {}).read_text())
    assert "h2" not in page.tags and "table" not in page.tags
    undefined = summarize("similar", [1.0, 2.0], [3.0, 3.0])
    assert "undefined" in Page(write_page(tmp_path, undefined).read_text()).text


def test_many_classes_show_the_commonest_confusions(tmp_path):
    report = results(lambda i: f"intent {i}", count=600, classes=50)
    page = Page(write_page(tmp_path, report).read_text())
    matrix = np.array(report["confusion"]["matrix"])
    np.fill_diagonal(matrix, 0)
    i, j = np.unravel_index(matrix.argmax(), matrix.shape)
    labels = report["confusion"]["labels"]
    assert f"{labels[i]} {labels[j]} {matrix.max()}" in page.text
    assert page.table("confusion")[0] == [matrix.max()]


def test_long_texts_are_cut_and_lines_kept():
    assert shown("a\nb<") == "a\nb<"
    assert len(shown("x" * 5000)) == LONGEST and shown("x" * 5000).endswith("…")
    assert shown([]) == shown(None) == "–"


def test_a_verdict_is_said_in_both_languages():
    english = "no difference beyond chance (macro f1 +0.2, 95% interval -0.1 to +0.3, p = 0.3)"
    chinese = "没有超出偶然的差别（宏平均 F1 +0.2，95% 区间 -0.1 至 +0.3，p = 0.3）"
    whole = "p\u00a0=\u00a00.3"  # stays in one line
    assert verdict(english, "macro_f1") == tuple(
        text.replace("p = 0.3", whole) for text in (english, chinese)
    )
    undefined = verdict("spearman is undefined for one of the runs", "spearman")
    assert undefined == (
        "spearman is undefined for one of the runs",
        "斯皮尔曼相关系数对其中一方无定义",
    )
    assert verdict("as nobody says", "f1") == "as nobody says"
