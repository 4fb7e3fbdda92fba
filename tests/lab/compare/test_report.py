"""The report of a comparison: three files that say the same numbers, and no markup of others."""

import itertools
import json
import re
import shlex
from html import unescape

import numpy as np
import pytest

from regard.cli.compare import where_compared
from regard.lab.compare.comparison import ComparisonPlan
from regard.lab.compare.lineup import ModelBudget, lineup
from regard.lab.compare.page import allowance, breaks, curve_panels, page, unfolded
from regard.lab.compare.repeat import command, spelt
from regard.lab.compare.report import report_of, write_report
from regard.report import pages
from regard.report.charts import INKS
from regard.report.pages import environment, words
from tests.html import Page
from tests.lab.compare.made import EVIL, comparison


def written(facts, out):
    """What a comparison found as a report, and its page."""
    return write_report(facts, out), (out / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    return *written(comparison(), out), out


def test_three_files_that_say_the_same(whole):
    report, html, out = whole
    assert json.loads((out / "report.json").read_text(encoding="utf-8")) == report
    assert (out / "report.md").read_text(encoding="utf-8").startswith(report["summary"])
    rows = report["tables"]["bits_per_byte"]
    shown = {row[0] for row in Page(html).table("bits_per_byte")}
    assert shown == {row["mean"] for row in rows} | {report["cells"]["ngram"]["bits_per_byte"]}
    spent = [[row[k] for k in ("parameters", "tokens", "flops", "seconds", "tokens_per_second",
                               "peak_memory")] for row in report["spent"]]  # fmt: skip
    assert Page(html).table("spent") == spent
    assert not list(out.glob(".*.part"))


def test_time_and_the_hash_of_the_text_are_told(whole):
    _, html, out = whole
    seen, text = Page(html).text, (out / "report.md").read_text(encoding="utf-8")
    for sentence in ("whole command: 6 min 00 s", "It took 7 min 30 s"):
        assert sentence in seen and sentence in text
    assert "预计时间：6 min 00 s" in seen and "实际用时：7 min 30 s" in seen
    assert "cd" * 32 in text and "SHA-256, builtin:python-docs " + "cd" * 32 in seen


def test_the_last_line_says_what_was_found_and_where(whole):
    report, _, out = whole
    last = where_compared(report)
    assert last.startswith(report["verdict"][0]["en"]) and last.endswith(str(out / "report.html"))
    assert "\n" not in last
    assert "Nothing has been measured yet" in where_compared(report | {"verdict": []})


def test_means_and_spread_are_those_of_the_seeds(whole):
    report, _, _ = whole
    gpt = next(row for row in report["tables"]["bits_per_byte"] if row["model"] == "gpt")
    values = [report["cells"][f"gpt-{seed}"]["bits_per_byte"] for seed in (1, 2, 3)]
    assert gpt["values"] == values
    assert gpt["mean"] == pytest.approx(np.mean(values))
    assert gpt["deviation"] == pytest.approx(np.std(values, ddof=1))


def test_pseudo_likelihoods_and_prefixes_are_never_among_exact_bits(whole):
    report, html, _ = whole
    exact = {row["model"] for row in report["tables"]["bits_per_byte"]}
    assert exact == {"gpt", "lstm"}
    for key, models in (("pseudo_bits_per_byte", {"bert"}), ("prefix_bits_per_byte",
                                                             {"transformer"})):  # fmt: skip
        rows = report["tables"][key]
        assert {row["model"] for row in rows} == models
        assert not any(row["best"] for row in rows)
    assert "cannot be ranked" in html
    for panel in curve_panels(report):
        models = {line["model"] for line in panel["lines"]}
        assert models <= exact if panel["group"] == "exact" else not models & exact


def test_a_probe_is_held_against_the_untrained_model(tmp_path):
    facts = comparison(seeds=1)
    for model, untrained in (("gpt", 0.5), ("bert", 0.6), ("lstm", 0.9), ("transformer", 0.56)):
        facts["cells"][f"{model}-1"]["probe_untrained"] = untrained
    _, html = written(facts, tmp_path)  # every interval begins at 0.55
    assert "Clearly above an untrained model of its shape: gpt." in html
    facts["cells"]["gpt-1"]["probe_untrained"] = 0.55
    assert "None of them is clearly above" in written(facts, tmp_path)[1]


def test_what_others_wrote_is_only_text(whole):
    _, html, _ = whole
    seen = Page(html)
    assert EVIL not in html and seen.tags.count("script") == 3
    assert EVIL in seen.chart("attention-0-0")["rows"] and EVIL in seen.text


def test_charts_hold_the_numbers_of_report_json(whole):
    report, html, _ = whole
    seen = Page(html)
    for i, panel in enumerate(curve_panels(report)):
        drawn = seen.chart(f"panel-{i}")
        assert [line["points"] for line in drawn["lines"]] == [p["points"] for p in panel["lines"]]
        assert [line["group"] for line in drawn["lines"]] == [p["model"] for p in panel["lines"]]
        assert [axis["key"] for axis in drawn["x"]] == ["seconds", "tokens", "operations"]
    assert seen.chart("panel-0")["limit"][1] == report["cells"]["ngram"]["bits_per_byte"]
    for key in ("seconds", "bytes"):
        curves = report["costs"]["curves"]
        assert {line["name"]: line["points"] for line in seen.chart(f"costs-{key}")["lines"]} == {
            model: [[p["length"], p[key]] for p in points] for model, points in curves.items()
        }
    models = [m for m in report["models"] if report["cells"][f"{m}-1"]["attention"]]
    for i, model in enumerate(models):
        for j, layer in enumerate(report["cells"][f"{model}-1"]["attention"]["layers"]):
            assert seen.chart(f"attention-{i}-{j}")["values"] == layer["weights"]


def test_nothing_is_fetched(whole):
    _, html, _ = whole
    assert [a for a in Page(html).fetched if not a.startswith("runs/")] == []
    assert "@import" not in html and set(re.findall(r"https?://[^\s'\"]+", html)) == {
        "http://www.w3.org/2000/svg"
    }


def test_every_word_is_there_in_both_languages(whole):
    _, html, _ = whole
    assert html.count('class="en" lang="en"') == html.count('class="zh" lang="zh-Hans"') > 50


def test_a_comparison_that_has_only_begun(tmp_path):
    facts = comparison()
    facts["missing"] = list(facts["cells"])
    facts |= {"cells": {}, "costs": None}
    report, html = written(facts, tmp_path)
    assert "Not finished" in report["summary"] and report["spent"] == []
    assert 'id="exact"' not in html and 'id="attention"' not in html and 'id="repeat"' in html


def test_who_reads_otherwise_is_said_to(tmp_path):
    """Of as many tokens T5 meets more of the text."""
    for models, shown in ((("gpt", "bert"), False), (("t5", "xlnet"), True)):
        html = unescape(written(comparison(models=models, seeds=1), tmp_path)[1])
        note = words("compare")["reads_span"]
        assert (note.en in html) == (note.zh in html) == shown


@pytest.mark.parametrize(
    ("minutes", "en", "zh"), [(0.5, "30 s", "30 秒"), (2.0, "2 min", "2 分钟")]
)
def test_a_budget_is_said_alike_in_both_languages(minutes, en, zh):
    assert allowance(ModelBudget("minutes", minutes)) == (en, zh)


def test_one_model_with_one_seed(tmp_path):
    report, html = written(comparison(models=("gpt",), seeds=1), tmp_path)
    assert report["title"]["en"] == "gpt and one text"
    assert "between seeds" not in html and 'data-table="bits_per_byte"' in html


def test_figures_that_are_no_numbers_become_nothing(tmp_path):
    facts = comparison()
    facts["cells"]["gpt-1"]["curve"][0]["bits_per_byte"] = float("inf")
    report = write_report(facts, tmp_path)
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    line = curve_panels(report)[0]["lines"][0]
    assert len(line["points"]) == len(facts["cells"]["gpt-1"]["curve"]) - 1


def test_the_command_repeats_the_plan(tmp_path):
    plan = ComparisonPlan.of(comparison()["plan"])
    words = shlex.split(command(plan, "again"))
    options = dict(itertools.pairwise(words))
    assert words[:3] == ["regard", "compare", plan.sources[0]]
    assert ModelBudget.of(options["--budget"]) == plan.budget
    assert tuple(lineup(options["--models"].split(","))) == plan.entries
    assert [b for a, b in itertools.pairwise(words) if a == "--prompt"] == list(plan.prompts)
    assert int(options["--seeds"]) == plan.seeds and options["--size"] == plan.size
    assert shlex.split(unfolded(command(plan, "again")).replace("\\\n", "")) == words


@pytest.mark.parametrize("budget", [ModelBudget("minutes", 2 / 3), ModelBudget("tokens", 2e6),
                                    ModelBudget("flops", 3.25e14)])  # fmt: skip
def test_a_budget_is_spelt_as_it_is_read(budget):
    again = ModelBudget.of(spelt(budget))
    assert again.kind == budget.kind and again.amount == pytest.approx(budget.amount, rel=1e-14)


def test_runs_are_linked_where_they_have_a_report(tmp_path):
    report = tmp_path / "runs" / "gpt-2" / "report.html"
    report.parent.mkdir(parents=True)
    report.write_text("")
    runs = report_of(comparison(), tmp_path)["recipe"]["runs"]
    assert {run["name"]: run["report"] for run in runs if run["report"]} == {
        "gpt-2": "runs/gpt-2/report.html"
    }
    assert all(run["command"].startswith("regard train ") for run in runs)


def test_a_sample_stands_under_its_own_prompt(tmp_path):
    facts = comparison(seeds=1)
    del facts["cells"]["gpt-1"]["samples"][0]  # a prompt that was too long for it
    html = re.search(r'<section id="samples">.*?</section>', page(report_of(facts, tmp_path)), re.S)
    first, second = html[0].split("<h3>")[1:]
    assert ">gpt<" not in first and ">gpt<" in second
    assert ">bert<" in first and ">bert<" in second


def test_more_models_than_inks(tmp_path):
    models = tuple(f"gpt:causal@{size}" for size in "abcdefghijkl")
    _, html = written(comparison(models=models, seeds=1), tmp_path)
    assert 'class="i1 again"' in html and "i11" not in html
    inks = {line["ink"] for line in Page(html).chart("costs-seconds")["lines"]}
    assert inks == set(range(1, 13))  # the script draws an eleventh as the first, dashed


def test_empty_lines_are_counted():
    assert breaks("a\n\n\nb\nc\n") == 'a<span class="soft"> ↵3</span>\nb\nc'


# -- inks

# Machado, Oliveira and Fernandes 2009: how dichromats see, on linear RGB.
SIGHT = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                 [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip


def linear(ink: str) -> np.ndarray:
    c = np.array([int(ink[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    x = XYZ @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(("place", "ground"), [(0, "#ffffff"), (1, "#181d25")])
def test_inks_are_told_apart_by_every_eye(place, ground):
    style = pages.text_of("base.css")
    template = environment().get_template("parts.html").module.shapes()
    shapes = re.findall(r'<symbol id="m\d+" viewBox="0 0 12 12"><path d="([^"]+)"', template)
    every = re.findall(r"--i\d+: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", style)
    inks = [pair[place] for pair in every]
    assert len(inks) == len(shapes) == len(set(shapes)) == INKS
    assert ground in re.findall(r"--paper: light-dark\((#\w+), (#\w+)\)", style)[0]
    for sight in SIGHT.values():
        seen = [lab(np.array(sight) @ linear(ink)) for ink in inks]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20
    light = [float(XYZ[1] @ linear(ink)) + 0.05 for ink in (*inks, ground)]
    assert min(max(x, light[-1]) / min(x, light[-1]) for x in light[:-1]) >= 3
