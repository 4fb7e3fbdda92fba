"""The figures of a claim as pictures: lines along its axis, or bars where there is none."""

from __future__ import annotations

import statistics
from typing import Any

from regard.lab.claims.engine.claim import Chart, Claim
from regard.report.bars import Bar, Bars
from regard.report.bars import inline as bars_inline
from regard.report.curves import CurveLine, Panel, inline

INKS = 8
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


def drawn(claim: Claim, facts: dict[str, Any], chart: Chart) -> str:
    """SVG for a page; empty where nothing was measured."""
    measured = numbers(facts, chart.figure)
    if not measured:
        return ""
    if claim.axis is None or not moves(measured):
        return bars_inline(bars(claim, chart, measured))
    return inline(lines(claim, chart, measured))


def bars(claim: Claim, chart: Chart, measured: Numbers) -> Bars:
    """The mean of each arm; what the place does not change is taken once."""
    first: dict[str, list[float]] = {}
    for (arm, _), seeds in measured.items():
        first.setdefault(arm, seeds)
    drawn_bars = [
        Bar(arm, statistics.fmean(first[arm]), min(first[arm]), max(first[arm]), ink(i))
        for i, arm in enumerate(claim.arms)
        if arm in first
    ]
    return Bars(chart.title.en, drawn_bars, chart.logarithmic, chart.title.zh)


def lines(claim: Claim, chart: Chart, measured: Numbers) -> Panel:
    """The mean of each arm at every place, in a band from the least to the most of the seeds."""
    assert claim.axis is not None
    drawn_lines = []
    for i, arm in enumerate(claim.arms):
        along = [(at, each) for (whose, at), each in sorted(measured.items()) if whose == arm]
        points = [(at, statistics.fmean(each)) for at, each in along]
        band = [(at, min(each), max(each)) for at, each in along if len(each) > 1]
        drawn_lines.append(CurveLine(arm, points, ink(i), dots=True, band=band))
    axis = claim.axis
    return Panel(
        chart.title.en,
        drawn_lines,
        across=axis.name.en,
        logarithmic=(axis.logarithmic, chart.logarithmic),
        marks=axis.places,
        chinese=(chart.title.zh, axis.name.zh),
        key=f"{claim.name} {chart.figure}",
    )


def ink(number: int) -> int:
    return number % INKS + 1
