"""Charts as data: what has nothing to show is left out, and saved pictures stand where their
numbers are."""

import math

import pytest

from regard.core.text import Bilingual
from regard.report.charts import Bar, BarChart, ChartAxis, HeatChart, Line, LineChart, smooth, thin
from regard.report.curves import decades, panel_of, svg


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
    assert data["title"] == ("a\ufffdb", "甲") and data["lines"][0]["name"] == "x␊"


@pytest.mark.parametrize(
    ("low", "high"), [(1e-17, 0.005), (0.05, 0.4), (1, 1), (2.9, 3.4), (3, 9e8)]
)
def test_decades_cover(low, high):
    ticks = decades(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 9
    assert ticks == sorted(set(ticks))


def test_a_chart_can_be_saved_as_a_picture():
    line = Line(
        Bilingual("mean", "平均"), [(1, 2.0), (2, 4.0)], band=[(1, 1.0, 3.0), (2, 3.0, 5.0)]
    )
    text = svg([panel_of(LineChart(Bilingual("Loss", "损失"), [line], ChartAxis("step")))])
    assert "Loss" in text and "损失" not in text and text.count("c-band") == 2  # its style, and one


def test_smoothing_and_thinning_keep_what_matters():
    points = [(float(i), 2.0) for i in range(1000)]
    assert all(y == pytest.approx(2.0) for _, y in smooth(points))
    jump = smooth([*points, (1000.0, 22.0)])
    assert jump[-1][1] == pytest.approx(2.0 + 20.0 / 20)  # the mean of about twenty
    thinned = thin([(float(i), float(i)) for i in range(1000)], 100)
    assert len(thinned) == 100 and thinned[0] == (0.0, 0.0) and thinned[-1] == (999.0, 999.0)
    assert all(x == pytest.approx(y) for x, y in thinned)
