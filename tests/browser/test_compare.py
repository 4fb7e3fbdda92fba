"""The page of a comparison, as a browser shows it."""

from __future__ import annotations

import pytest

from regard.lab.compare.report import write_report
from tests.lab.compare.made import comparison

ROWS = """(name) => [...document.querySelectorAll(`[data-table="${name}"] tbody tr`)].map((row) =>
  [row.querySelector('th').textContent.trim(),
   ...[...row.querySelectorAll('data')].map((cell) => [Number(cell.value), cell.textContent])])"""
TICKS = "(chart) => [...chart.querySelectorAll('text')].map((text) => text.textContent)"


@pytest.fixture(scope="module")
def report_page(tmp_path_factory):
    """(file, what report.json says)."""
    out = tmp_path_factory.mktemp("comparison")
    report = write_report(comparison(), out)
    return out / "report.html", report


def test_it_speaks_the_language_of_the_reader_and_the_other(page, report_page):
    file, report = report_page
    english = page(file)
    assert english.locator("h1").inner_text() == report["title"]["en"] == english.title()
    assert english.locator("#verdict .lead").inner_text() == report["verdict"][0]["en"]
    english.locator("#language").focus()
    english.keyboard.press("Enter")
    assert english.locator("h1").inner_text() == report["title"]["zh"] == english.title()
    assert english.evaluate("document.documentElement.lang") == "zh-Hans"
    assert "n-gram 模型" in " ".join(
        english.locator("[data-chart=panel-0] text").all_text_contents()
    )
    chinese = page(file, language="zh-CN")
    assert chinese.locator("#verdict .lead").inner_text() == report["verdict"][0]["zh"]
    assert not any(chinese.locator(".en").evaluate_all("all => all.map(e => e.offsetWidth > 0)"))
    chinese.locator("#language").click()
    assert chinese.locator("h1").inner_text() == report["title"]["en"]


def test_the_tables_show_the_numbers_of_report_json(page, report_page):
    file, report = report_page
    shown = page(file)
    for key, digits in (("bits_per_byte", 3), ("prefix_bits_per_byte", 3),
                        ("pseudo_bits_per_byte", 3)):  # fmt: skip
        rows = {name: cells for name, *cells in shown.evaluate(ROWS, key)}
        for row in report["tables"][key]:
            value, text = rows[row["model"]][0]
            assert value == row["mean"] and text == f"{row['mean']:.{digits}f}"
            between = row["interval"] or []
            assert [cell[0] for cell in rows[row["model"]][1 : 1 + len(between)]] == between
    for key in ("masked_accuracy", "minimal_pairs", "probe_accuracy"):
        rows = {name: cells for name, *cells in shown.evaluate(ROWS, key)}
        assert {n: c[0][1] for n, c in rows.items()} == {
            row["model"]: f"{row['mean']:.1%}" for row in report["tables"][key]
        }
    ngram = {name: cells for name, *cells in shown.evaluate(ROWS, "bits_per_byte")}["5-gram"]
    assert ngram[0][0] == report["cells"]["ngram"]["bits_per_byte"]
    for key in ("seconds", "bytes"):
        for name, *cells in shown.evaluate(ROWS, f"costs-{key}"):
            curve = report["costs"]["curves"][name]
            assert [cell[0] for cell in cells] == [point[key] for point in curve]


def test_curves_go_along_time_tokens_or_operations(page, report_page):
    file, report = report_page
    shown = page(file)
    first = shown.locator("[data-chart=panel-0]")
    lines = [n for n in report["cells"] if n.startswith(("gpt-", "lstm-"))]
    assert first.locator(".line").count() == len(lines) == 6
    assert first.locator("line.limit").count() == 1
    seen, below = {}, []
    for axis in ("tokens", "seconds", "operations"):
        shown.locator(f"input[value={axis}]").check(force=True)
        seen[axis] = first.evaluate(TICKS)
        below.append(shown.locator("#curves .first .below").inner_text())
    assert below == ["tokens", "time", "operations"]
    assert "20k" in seen["tokens"] and "4 s" in seen["seconds"]
    assert any(text.endswith("G") for text in seen["operations"])
    shown.locator("input[value=operations]").focus()
    shown.keyboard.press("ArrowLeft")
    assert first.evaluate(TICKS) == seen["tokens"]


def test_a_point_says_its_numbers_to_pointer_and_keys(page, report_page):
    file, report = report_page
    shown = page(file)
    curve = report["cells"]["gpt-1"]["curve"]
    chart = shown.locator("[data-chart=panel-0] svg[role=img]")
    chart.scroll_into_view_if_needed()
    place = chart.locator("use").first.evaluate(
        "mark => { const box = mark.getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2] }"
    )
    shown.mouse.move(*place)
    tip = shown.locator("#tip")
    assert tip.inner_text().split("\n") == [
        "gpt · seed 1", f"{curve[0]['bits_per_byte']:.5g}", "10,000 tokens",
    ]  # fmt: skip
    shown.mouse.move(0, 0)
    assert tip.is_hidden()
    chart.focus()
    shown.keyboard.press("ArrowRight")
    assert "10,000 tokens" in tip.inner_text()
    shown.keyboard.press("ArrowRight")
    assert "20,000 tokens" in tip.inner_text()
    shown.keyboard.press("Escape")
    assert tip.is_hidden()


def test_attention_is_drawn_as_it_was_recorded(page, report_page):
    file, report = report_page
    shown = page(file)
    models = [m for m in report["models"] if report["cells"][f"{m}-1"]["attention"]]
    maps = shown.locator("#attention .heat")
    assert maps.count() == 2 * len(models)
    weights = maps.first.evaluate(
        "map => [...map.querySelectorAll('[data-value]')].map(r => Number(r.dataset.value))"
    )
    recorded = report["cells"][f"{models[0]}-1"]["attention"]["layers"][0]["weights"]
    assert weights == [weight for row in recorded for weight in row]
    assert "月亮" in maps.first.locator("text").first.text_content()


@pytest.mark.parametrize("kind", ["one model", "begun"])
def test_small_comparisons_are_whole_pages(page, tmp_path, kind):
    facts = comparison(models=("gpt",), seeds=1)
    if kind == "begun":
        facts |= {"missing": ["gpt-1"], "cells": {}, "costs": None}
    write_report(facts, tmp_path)
    shown = page(tmp_path / "report.html", width=360)
    assert shown.locator("section").count() == (2 if kind == "begun" else 10)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
