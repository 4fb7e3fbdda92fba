"""Charts as data: what has nothing to show is left out, and saved pictures stand where their
numbers are."""

import math
import re

import pytest

from regard.core.text import Bilingual
from regard.report.charts import Bar, BarChart, ChartAxis, HeatChart, Line, LineChart, smooth, thin
from regard.report.curves import panel, steps_between
from regard.report.drawings import Curves


def test_what_has_no_logarithm_is_left_out():
    line = Line("a", [(1, 0.0), (2, 1.0), (3, 2.0), (4, math.nan)], band=[(1, 0.0, 1.0)])
    data = LineChart("t", [line, Line("empty", [])], y=ChartAxis(log=True)).data()
    assert [(each["points"], each["band"]) for each in data["lines"]] == [
        ([[2, 1.0], [3, 2.0]], [])
    ]


def test_points_may_go_along_several_axes():
    axes = [ChartAxis(key="seconds"), ChartAxis(key="tokens")]
    chart = LineChart("t", [Line("a", [(None, 5, 1.0), (2, 6, 2.0), (None, None, 3.0)])], axes)
    assert chart.data()["lines"][0]["points"] == [[None, 5, 1.0], [2, 6, 2.0]]


def test_bars_without_a_number_and_cells_without_one():
    bars = BarChart("t", [Bar("a", 1.0, 0.5, 1.5), Bar("c", math.nan, 0, 0)]).data()["bars"]
    assert [bar["value"] for bar in bars] == [1.0, None] and bars[1]["low"] is None
    heat = HeatChart("t", ["a"], ["x", "y"], [[0.25, math.nan]]).data()
    assert heat["values"] == [[0.25, None]] and heat["high"] == 0.25


def test_names_are_visible_in_both_languages():
    data = LineChart(Bilingual("a\u202eb", "甲"), [Line("x\n", [(1, 1.0)])]).data()
    assert data["title"] == ("a\ufffdb", "甲") and data["lines"][0]["name"] == "x↵"


def test_curves_of_a_notebook_stand_where_their_numbers_are():
    calm = panel(Curves("x", {"a": [(0, 0.0), (5, math.nan), (10, 4.0)]}))
    assert calm["lines"][0]["way"] == "M64.0 176.0 L624.0 10.0"
    assert [tip for _, _, tip in calm["lines"][0]["dots"]] == ["a · 0: 0", "a · 10: 4"]
    assert calm["ends"] == ("0", "10") and [text for _, text in calm["ticks"]] == [*"01234"]
    long = panel(Curves("x", {"a": [(i, 5 + math.sin(i)) for i in range(3000)]}))["lines"][0]
    assert long["way"].count(" ") < 3 * 600 and long["dots"] == []  # thinned
    for points in ([(5, 3.0)], [(1, 0.0), (2, 0.0)], [(1, -2.0), (9, -2.0)]):
        way = panel(Curves("x", {"a": points}, zero=False))["lines"][0]["way"]
        assert all(0 <= float(n) <= 640 for n in re.findall(r"-?[\d.]+", way))
    assert panel(Curves("x", {"a": [], "b": [(1, math.inf)]})) is None


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 4, [0, 1, 2, 3, 4]),
        (2.1, 3.9, [2, 2.5, 3, 3.5, 4]),
        (0, 2.5e-4, [0, 1e-4, 2e-4, 3e-4]),
        (5, 5, [4.5, 4.75, 5, 5.25, 5.5]),
    ],
)
def test_ticks_are_round_and_cover(low, high, expected):
    ticks = steps_between(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and 3 <= len(ticks) <= 7
    if low < high:
        assert ticks == pytest.approx(expected)


def test_smoothing_and_thinning_keep_what_matters():
    points = [(float(i), 2.0) for i in range(1000)]
    assert all(y == pytest.approx(2.0) for _, y in smooth(points))
    jump = smooth([*points, (1000.0, 22.0)])
    assert jump[-1][1] == pytest.approx(2.0 + 20.0 / 20)  # the mean of about twenty
    thinned = thin([(float(i), float(i)) for i in range(1000)], 100)
    assert len(thinned) == 100 and thinned[0] == (0.0, 0.0) and thinned[-1] == (999.0, 999.0)
    assert all(x == pytest.approx(y) for x, y in thinned)
