"""Pages of claims: whole, in both languages, with the recorded numbers, and safe."""

import dataclasses
import json

import pytest

from regard.cli.claims import warned
from regard.cli.main import program
from regard.lab.claims import claim, names
from regard.lab.claims.engine.chart import drawn, numbers
from regard.lab.claims.engine.claim import Axis, Bilingual, Chart
from regard.lab.claims.engine.page import gallery, page
from regard.lab.claims.engine.run import judged
from tests.html import HOSTILE, Page
from tests.lab.claims.measured import measured


@pytest.fixture(scope="module")
def scaling(tmp_path_factory):
    return measured("scaling", tmp_path_factory.getbasetemp())


def test_a_page_shows_what_was_recorded(scaling):
    study, facts = scaling
    seen = Page(page(study, facts))
    assert seen.fetched == ["../gallery.html"]
    for cell in facts["cells"]:
        assert all(f"{value:.6g}" in seen.text for value in cell["figures"].values())
    assert study.statement.en in seen.text and study.statement.zh in seen.text
    assert "reproduced" in seen.text and "已复现" in seen.text
    assert "regard claims run scaling" in seen.text and "--seeds" not in seen.text


def test_what_a_program_reads_is_what_was_recorded(scaling):
    assert Page(page(*scaling)).data["facts"] == json.loads(json.dumps(scaling[1]))


def test_the_rule_shown_is_the_one_that_judged(scaling):
    study, facts = scaling
    assert "grows with a power from 0.9 to 1.1" in page(study, facts)
    other = page(study, facts | {"rule": "an older rule"})
    shown = Page(other).text
    assert "an older rule" in shown and "grows with a power from" not in shown


def test_a_first_look_says_so(scaling):
    trained = claim("in-context")
    cells = [{"arm": arm, "at": at, "seed": 1, "figures": {"accuracy": 0.5, "gain": 0.0}}
             for arm in trained.arms for at in trained.axis.places]  # fmt: skip
    facts = scaling[1] | {"cells": cells}
    assert "first look" in page(trained, facts | {"effort": 0.1})
    assert "first look" not in page(trained, facts)
    assert "first look" not in page(scaling[0], scaling[1] | {"effort": 0.1})
    few = facts | {"cause": "fewer seeds", "parts": [], "seeds": 2, "verdict": "undecided"}
    seen = Page(page(trained, few)).text
    assert "than the 5 that the claim fixed" in seen and "事先定下的 5 个" in seen
    assert "regard claims run scaling --seeds 2" in seen


def test_a_terminal_is_told_why_a_verdict_may_be_none():
    facts = {"effort": 1.0, "seeds": 1, "cause": "fewer seeds", "seeds_fixed": 5, "changed": []}
    (warning,) = warned(claim("in-context"), facts)
    assert "fewer seeds than the 5" in warning
    (warning,) = warned(claim("in-context"), facts | {"cause": "not learned"})
    assert "had not learned" in warning
    (warning,) = warned(claim("scaling"), facts | {"cause": "", "changed": ["abc1234"]})
    assert "after data (abc1234)" in warning
    assert warned(claim("in-context"), facts | {"cause": ""}) == []


def test_every_part_stands_with_its_test_in_both_languages(scaling):
    study, facts = scaling
    assert len(facts["parts"]) == len(study.rule.rules) and facts["verdict"] == "reproduced"
    seen = Page(page(study, facts)).text
    for words in ("two one-sided tests, p < 0.001", "两个单侧检验，p < 0.001", "paired t-test",
                  "Holm's method", "霍尔姆方法"):  # fmt: skip
        assert words in seen


def test_before_the_run_is_said_only_where_it_was(scaling):
    study, facts = scaling
    assert facts["changed"] == []
    seen = Page(page(study, facts)).text
    assert "rule fixed before the run" in seen and "规则在运行前定下" in seen
    later = page(study, facts | {"changed": ["abc1234"]})
    seen = Page(later).text
    assert "rule changed after data (abc1234)" in seen and "改过（abc1234）" in seen
    assert "fixed before the run" not in seen and "运行前" not in seen
    records = {"scaling": facts, "heads": facts | {"name": "heads", "changed": ["abc1234"]}}
    seen = Page(gallery(records)).text
    assert "1 of 2 rules were fixed before" in seen and "abc1234" in seen


def test_an_undecided_part_tells_its_power(scaling):
    study, facts = scaling
    part = facts["parts"][0] | {"verdict": "undecided", "chance": 0.12, "power": 0.31, "seeds": 17}
    open_facts = facts | {"verdict": "undecided", "cause": "too noisy", "parts": [part]}
    seen = Page(page(study, open_facts)).text
    assert "p = 0.12, power 31%, 17 seeds would give 80%" in seen and "17 个随机种子" in seen
    assert "The seeds do not decide" in seen and "无定论" in seen


def test_what_others_wrote_is_only_text(scaling):
    study, facts = scaling
    nasty = dataclasses.replace(study, statement=Bilingual(HOSTILE, HOSTILE), source=HOSTILE)
    parts = [facts["parts"][0] | {"because": HOSTILE}]
    facts = facts | {"parts": parts, "printed": {HOSTILE: HOSTILE}, "changed": [HOSTILE]}
    for text in (page(nasty, facts), page(nasty, facts | {"name": HOSTILE})):
        seen = Page(text)
        assert seen.tags.count("script") == 3 and "img" not in seen.tags
        assert seen.text.count("<script>alert") >= 6


def test_lines_along_the_axis_and_bars_without(scaling):
    study, facts = scaling
    lines = drawn(study, facts, study.charts[0]).data()
    assert lines["kind"] == "lines" and [len(line["band"]) for line in lines["lines"]] == [5, 5]
    measured = numbers(facts, study.charts[0].figure)
    for line in lines["lines"]:
        for at, value in line["points"]:
            assert value == pytest.approx(sum(measured[line["name"], at]) / 5)
    still = {(arm, at): [{"x": 1.0}, {"x": 2.0}] for arm in study.arms for at in (4, 16)}
    same = judged(dataclasses.replace(study, rule=Still()), still, 1.0)
    bars = drawn(study, same, Chart("x", Bilingual("x", "值"))).data()
    assert bars["kind"] == "bars"
    assert [(b["value"], b["low"], b["high"]) for b in bars["bars"]] == [(1.5, 1.0, 2.0)] * 2
    assert drawn(study, facts, Chart("nothing", Bilingual("x", "值"))) is None
    assert numbers(same, "x")["scaled", 4] == [1.0, 2.0]


class Still(type(claim("scaling").rule)):
    """Judges nothing."""

    def __init__(self):
        super().__init__(())


def test_the_gallery_counts_links_and_waits(scaling):
    facts = scaling[1]
    other = facts | {"verdict": "not reproduced", "name": "shift"}
    all_of_them = dict.fromkeys(names())
    text = gallery(all_of_them | {"scaling": facts, "heads": other | {"name": "heads"}})
    seen = Page(text)
    assert seen.fetched == ["heads/claim.html", "scaling/claim.html"]
    assert text.count('class="badge no"') == 2  # of the count, and of one claim
    assert text.count("✓ ") == 4  # and that both rules were fixed before
    assert f"regard claims run {names()[0]}" in seen.text
    assert "regard claims run scaling" not in seen.text


def test_an_empty_gallery_is_a_page_too():
    assert "尚未运行" in Page(gallery(dict.fromkeys(names()))).text


# -- the commands


def test_the_commands(tmp_path, capsys):
    def call(*words):
        program([*words, "--out", str(tmp_path)], standalone_mode=False)
        return capsys.readouterr()

    listed = json.loads(call("claims", "list", "--json").out)["claims"]
    assert [row["name"] for row in listed] == names()
    assert all(row["verdict"] is None and row["minutes"] > 0 for row in listed)
    result = call("claims", "run", "shift")
    assert "REPRODUCED" in result.out and "30/30" in result.err
    assert (tmp_path / "shift" / "claim.html").is_file()
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "shift" / "cells").iterdir()}
    again = json.loads(call("claims", "run", "shift", "--json").out)
    assert again["claims"][0]["verdict"] == "reproduced"
    shown = json.loads(call("claims", "show", "shift", "--json").out)
    assert shown["verdict"] == "reproduced" and shown["because"]
    assert before == {f: f.stat().st_mtime_ns for f in (tmp_path / "shift" / "cells").iterdir()}
    call("claims", "run", "shift", "word-order")
    assert {*before} == {*(tmp_path / "shift" / "cells").iterdir()}
    text = (tmp_path / "gallery.html").read_text("utf-8")
    assert "shift/claim.html" in text and "word-order/claim.html" in text
    row = next(
        r
        for r in json.loads(call("claims", "list", "--json").out)["claims"]
        if r["name"] == "shift"
    )
    assert row["verdict"] == "reproduced" and row["effort"] == 1.0


def test_an_axis_is_named_in_both_languages(scaling):
    study, facts = scaling
    axis = Axis(Bilingual("how wide", "多宽"), study.axis.places, logarithmic=True)
    seen = Page(page(dataclasses.replace(study, axis=axis), facts))
    assert seen.text.count("how wide") == seen.text.count("多宽") == 2
    assert all(
        chart["x"][0]["name"] == ["how wide", "多宽"] for chart in seen.data["charts"].values()
    )
