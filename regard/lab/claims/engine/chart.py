"""The figures of a claim as pictures: lines along its axis, or bars where there is none."""

from __future__ import annotations

import statistics
from typing import Any

from regard.lab.claims.engine.claim import Chart, Claim
from regard.report import charts
from regard.report.charts import BarChart, Line, LineChart

Numbers = dict[tuple[str, float], list[float]]  # (arm, place) -> a number a seed


def numbers(facts: dict[str, Any], figure: str) -> Numbers:
    """What was measured under this name."""
    measured: Numbers = {}
    for cell in facts["cells"]:
        if figure in cell["figures"]:
            measured.setdefault((cell["arm"], cell["at"]), []).append(cell["figures"][figure])
    return measured


def moves(measured: Numbers) -> bool:
    """Does the place on the axis make a difference for any arm?"""
    arms: dict[str, set[tuple[float, ...]]] = {}
    for (arm, _), seeds in measured.items():
        arms.setdefault(arm, set()).add(tuple(seeds))
    return any(len(each) > 1 for each in arms.values())


def drawn(claim: Claim, facts: dict[str, Any], chart: Chart) -> charts.PageChart | None:
    """A chart for a page; None where nothing was measured."""
    measured = numbers(facts, chart.figure)
    if not measured:
        return None
    if claim.axis is None or not moves(measured):
        return bars(claim, chart, measured)
    return lines(claim, chart, measured)


def bars(claim: Claim, chart: Chart, measured: Numbers) -> BarChart:
    """The mean of each arm; what the place does not change is taken once."""
    first: dict[str, list[float]] = {}
    for (arm, _), seeds in measured.items():
        first.setdefault(arm, seeds)
    drawn_bars = [
        charts.Bar(arm, statistics.fmean(first[arm]), min(first[arm]), max(first[arm]), ink)
        for ink, arm in enumerate(claim.arms, 1)
        if arm in first
    ]
    log = chart.logarithmic and all(bar.low > 0 for bar in drawn_bars)
    return BarChart(chart.title, drawn_bars, charts.ChartAxis(log=log, zero=True))


def lines(claim: Claim, chart: Chart, measured: Numbers) -> LineChart:
    """The mean of each arm at every place, in a band from the least to the most of the seeds."""
    assert claim.axis is not None
    drawn_lines = []
    for ink, arm in enumerate(claim.arms, 1):
        along = [(at, each) for (whose, at), each in sorted(measured.items()) if whose == arm]
        points = [(at, statistics.fmean(each)) for at, each in along]
        band = [(at, min(each), max(each)) for at, each in along if len(each) > 1]
        drawn_lines.append(Line(arm, points, ink, band=band))
    axis = claim.axis
    x = charts.ChartAxis(axis.name, "number", axis.logarithmic, ticks=axis.places)
    return LineChart(chart.title, drawn_lines, x, charts.ChartAxis(log=chart.logarithmic))
