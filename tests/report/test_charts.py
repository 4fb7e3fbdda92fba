"""Lines and bars stand where their numbers are."""

import re

import pytest

from regard.report.bars import Bar, Bars
from regard.report.bars import inline as bars_inline
from regard.report.curves import CurveLine, Panel, decades, inline


def test_a_logarithmic_axis_has_even_steps():
    points = [(1.0, 10.0), (10.0, 100.0), (100.0, 1000.0)]
    text = inline(Panel("t", [CurveLine("a", points, dots=True)], logarithmic=(True, True)))
    places = [
        (float(x), float(y))
        for x, y in re.findall(r'<circle[^>]*cx="([\d.]+)" cy="([\d.]+)"', text)
    ]
    (x1, y1), (x2, y2), (x3, y3) = places
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2) and y1 - y2 == pytest.approx(y2 - y3, abs=0.2)


def test_what_has_no_logarithm_is_left_out():
    line = CurveLine("a", [(1, 0.0), (2, 1.0), (3, 2.0)], dots=True, band=[(1, 0.0, 1.0)])
    text = inline(Panel("t", [line], logarithmic=(False, True)))
    assert text.count("<circle") == 2 and "c-band" not in text and "nan" not in text


@pytest.mark.parametrize(
    ("low", "high"), [(1e-17, 0.005), (0.05, 0.4), (1, 1), (2.9, 3.4), (3, 9e8)]
)
def test_decades_cover(low, high):
    ticks = decades(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 9
    assert ticks == sorted(set(ticks))


def test_bars_are_as_long_as_their_numbers():
    bars = [Bar("a", 1.0, 0.5, 1.5), Bar("b", 2.0, 2.0, 2.0, ink=2), Bar("c", float("nan"), 0, 0)]
    text = bars_inline(Bars("t", bars))
    one, other = map(float, re.findall(r'<rect[^>]* width="([\d.]+)"', text))
    assert other == pytest.approx(2 * one, abs=0.2)
    assert "–" in text
