"""What a page writes and draws is what was measured: every number, and the place of every line."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.browser.made import data_of, probed
from tests.lab.claims.measured import measured
from tests.training.test_report import FACTS, metrics

TABLE = """(name) => [...document.querySelectorAll(`[data-table="${name}"] tbody tr`)]
  .map((row) => [...row.children].map((cell) => {
    const number = cell.querySelector('data');
    return number ? Number(number.value) : cell.innerText;
  }))"""
FIGURES = """() => Object.fromEntries([...document.querySelectorAll('.facts > div')].map((each) => {
  const number = each.querySelector('data');
  return [each.querySelector('dt').innerText,
    number ? Number(number.value) : each.querySelector('dd').innerText];
}))"""
DRAWING = """(name) => {
  const plot = document.querySelector(`[data-chart="${name}"] .plot svg`);
  const all = (selector, ...names) => [...plot.querySelectorAll(selector)].map((part) =>
    names.map((name) => name ? part.getAttribute(name) : part.textContent));
  return {
    up: all('text[text-anchor=end]:not(.named)', '', 'y'),
    across: all('text[text-anchor=middle]', '', 'x'),
    lines: all('path.line', 'd'), bands: all('path.band', 'd'),
    bars: all('rect.bar', 'data-value', 'x', 'width'),
    cells: all('rect.cell', 'data-value', 'fill-opacity', 'x', 'y', 'width'),
    numbers: all('text[text-anchor=middle]', ''),
  };
}"""
CLOSE = 0.11  # pixels: places are written to a tenth


def places(path: str) -> list[tuple[float, float]]:
    pairs = re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)
    return [(float(x), float(y)) for x, y in pairs]


def scale_of(ticks: Sequence[Sequence[str]], log: bool, shift: float = 0.0) -> Callable[..., float]:
    """From a number to the pixel where it belongs, by the numbers that stand beside the chart."""
    known = [(float(text.replace(",", "")), float(place) - shift) for text, place in ticks]
    form = math.log10 if log else float
    (low, first), (high, last) = known[0], known[-1]
    slope = (last - first) / (form(high) - form(low))
    return lambda value: first + (form(value) - form(low)) * slope


def check_lines(drawing: dict[str, Any], spec: dict[str, Any]) -> None:
    up = scale_of(drawing["up"], spec["y"]["log"], shift=4)
    across = scale_of(drawing["across"][:-1], spec["x"][0]["log"])  # the last may stand aside
    lines = [line for line in spec["lines"] if len(line["points"]) > 1]
    assert lines and len(lines) == len(drawing["lines"])
    for line, (path,) in zip(lines, drawing["lines"], strict=True):
        expected = [(across(x), up(y)) for x, y in line["points"]]
        assert places(path) == [pytest.approx(each, abs=CLOSE) for each in expected]
    bands = [line["band"] for line in lines if line["band"]]
    for band, (path,) in zip(bands, drawing["bands"], strict=True):
        edge = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
        expected = [(across(x), up(y)) for x, y in edge]
        assert places(path) == [pytest.approx(each, abs=CLOSE) for each in expected]


# -- lines, bars and maps stand where their numbers are


@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("kind", ["run", "claim", "probe"])
def test_lines_and_bands_stand_where_the_scale_says(page, files, kind, width):
    seen = page(files(kind), width=width)
    charts = {
        name: spec
        for name, spec in data_of(seen)["charts"].items()
        if spec["kind"] == "lines" and not any(line["faint"] for line in spec["lines"])
    }
    scales = {(spec["x"][0]["log"], spec["y"]["log"]) for spec in charts.values()}
    assert {"run": {(False, False)}, "claim": {(True, True), (True, False)},
            "probe": {(False, False)}}[kind] == scales  # fmt: skip
    for name, spec in charts.items():
        drawing = seen.evaluate(DRAWING, name)
        assert bool(drawing["bands"]) == any(line["band"] for line in spec["lines"])
        check_lines(drawing, spec)


def test_bars_are_as_long_as_their_numbers(page, files):
    seen = page(files("bars"))
    ((name, spec),) = data_of(seen)["charts"].items()
    drawing = seen.evaluate(DRAWING, name)
    across = scale_of(drawing["across"], spec["x"]["log"])
    for bar, (value, x, width) in zip(spec["bars"], drawing["bars"], strict=True):
        assert float(value) == bar["value"]
        assert float(x) + float(width) == pytest.approx(across(bar["value"]), abs=CLOSE)


def check_cells(drawing: dict[str, Any], values: Sequence[Sequence[float]]) -> None:
    """Each square has its number, its strength, and its place."""
    high = max(map(max, values))
    expected = [(value, i, j) for i, row in enumerate(values) for j, value in enumerate(row)]
    assert len(drawing["cells"]) == len(expected)
    _, _, left, top, side = map(float, drawing["cells"][0])
    for (value, i, j), cell in zip(expected, drawing["cells"], strict=True):
        number, strength, x, y, _ = map(float, cell)
        assert number == pytest.approx(value, rel=1e-6)
        assert strength == pytest.approx(value / high, abs=6e-4)
        assert (x, y) == pytest.approx((left + side * j, top + side * i))
    assert [text for (text,) in drawing["numbers"]] == [f"{value:.2f}" for value, _, _ in expected]


def test_the_map_of_heads_shows_their_importance(page, files):
    seen = page(files("heads"))
    importance = [0.1, 0.4, 0.7, 1.0]
    check_cells(seen.evaluate(DRAWING, "heads"), [importance] * 3)
    assert seen.evaluate(TABLE, "gone") == [["blocks.0", "1, 3"]]
    assert seen.evaluate(FIGURES) == {"The model": "my-bert"}


# -- tables and figures


def test_the_figures_of_a_probing(page, files):
    result = probed(hostile=False)
    seen = page(files("probe"))
    assert data_of(seen)["layers"] == result["layers"]
    for row, own in zip(seen.evaluate(TABLE, "figures"), result["layers"], strict=True):
        trained, untrained = own["trained"], own["untrained"]
        heads = [trained["heads"][name]["mean"] for name in trained["heads"] if name != "heads"]
        expected = [
            own["layer"], trained["task"]["accuracy"]["mean"],
            trained["control"]["accuracy"]["mean"], trained["control"]["majority"]["mean"],
            trained["task"]["selectivity"]["mean"], *heads,
            untrained["task"]["accuracy"]["mean"], *heads,
        ]  # fmt: skip
        assert [float(cell) for cell in row] == expected
    assert seen.evaluate(TABLE, "baselines") == [["accuracy: majority", 0.5]]
    assert seen.evaluate(TABLE, "relations")[0][1::3] == [1200, 0.5]
    for name in ("distance", "entropy", "first", "previous", "next", "self", "separator"):
        values = [[head[name] for head in row["trained"]["heads"]["heads"]]
                  for row in result["layers"]]  # fmt: skip
        check_cells(seen.evaluate(DRAWING, f"map-{name}"), values)


def test_the_figures_of_a_run(page, files):
    seen = page(files("run"))
    records = list(metrics())
    shown = seen.evaluate(FIGURES)
    assert shown["parameters"] == FACTS["model"]["parameters"]
    assert shown["tokens learned from"] == FACTS["progress"]["tokens"]
    assert shown["steps"] == FACTS["progress"]["step"]
    assert shown["time in steps"] == FACTS["progress"]["seconds"]
    assert shown["tokens per second"] == records[-2]["tokens_per_second"]
    assert shown["peak memory"] == FACTS["peak_memory"]
    assert shown["last loss"] == records[-2]["loss"]
    validations = [(r["step"], *r["valid"].values()) for r in records if "valid" in r]
    assert seen.evaluate(TABLE, "validation") == [list(row) for row in validations]
    charts = data_of(seen)["charts"]
    for number, column in enumerate(("bits_per_byte", "perplexity")):
        points = [[r["step"], r["valid"][column]] for r in records if "valid" in r]
        assert charts[f"validation-{number}"]["lines"][0]["points"] == points
    losses = [[r["step"], r["loss"]] for r in records if "loss" in r]
    assert charts["loss"]["lines"][0]["points"] == losses
    splits = [[name, *own.values(), own["bytes"] / own["tokens"]]
              for name, own in FACTS["data"]["splits"].items()]  # fmt: skip
    assert seen.evaluate(TABLE, "splits") == splits


def test_the_figures_of_a_test(page, files):
    seen = page(files("test"))
    shown = seen.evaluate("""() => Object.fromEntries([...document.querySelectorAll(
      '[data-figure]')].map((card) => [card.dataset.figure,
      Number(card.querySelector('data').value)]))""")
    assert shown == data_of(seen)["figures"]


def test_the_gallery_draws_the_means_of_the_seeds(page, files, tmp_path):
    seen = page(files("gallery"))
    claim, facts = measured("scaling", tmp_path.parent)
    ((name, spec),) = data_of(seen)["charts"].items()
    assert name == "scaling"
    figure = claim.charts[0].figure
    for line in spec["lines"]:
        for at, value in line["points"]:
            cells = [cell["figures"][figure] for cell in facts["cells"]
                     if (cell["arm"], cell["at"]) == (line["name"], at)]  # fmt: skip
            assert len(cells) == facts["seeds"] and value == statistics.fmean(cells)
    check_lines(seen.evaluate(DRAWING, name), spec)
    assert f"{facts['seeds']} seeds" in seen.locator("#scaling").inner_text()
    assert re.findall(r"reproduced (\d+)", seen.locator(".counts").inner_text()) == ["1"]
    waiting = seen.locator(".waiting li").count()
    assert waiting == seen.locator(".waiting code").count() and waiting > 30
