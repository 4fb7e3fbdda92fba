"""Curves over the layers with their spread as a band: SVG of its own, for light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.sax.saxutils import escape

from regard.report.curves import (
    ACROSS,
    BOTTOM,
    DOWN,
    LEFT,
    RIGHT,
    STYLE,
    TOP,
    Line,
    finite,
    legend,
    said,
    steps_between,
)
from regard.report.heatmap import clean

MORE = """
    .p-band { stroke: none; opacity: 0.18 }
    .p-band.c-1 { fill: #1d4ed8 } .p-band.c-2 { fill: #c2410c } .p-band.c-3 { fill: #047857 }
    .p-band.c-4 { fill: #7e22ce } .p-level { stroke: #6b7280; stroke-dasharray: 5 4 }
    @media (prefers-color-scheme: dark) {
      .p-band.c-1 { fill: #93c5fd } .p-band.c-2 { fill: #fdba74 } .p-band.c-3 { fill: #6ee7b7 }
      .p-band.c-4 { fill: #d8b4fe } .p-level { stroke: #9ca3af }
    }"""


class Spot(NamedTuple):
    """A layer, what was measured there, and from where to where it spreads."""

    layer: float
    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    name: str
    spots: Sequence[Spot]
    ink: int = 1  # 1 … 4

    @property
    def line(self) -> Line:
        points = finite([(spot.layer, spot.middle) for spot in self.spots])
        return Line(self.name, points, self.ink, dots=True)


@dataclass(frozen=True)
class Panel:
    title: str
    curves: Sequence[Curve]
    levels: Sequence[tuple[str, float]] = ()  # what is the same in all layers


def picture(panels: Sequence[Panel]) -> str:
    """A file of its own with one panel above the other."""
    shown = [panel for panel in panels if any(curve.line.points for curve in panel.curves)]
    height = max(1, len(shown)) * DOWN
    title = ", ".join(clean(panel.title) for panel in shown) or "nothing was measured"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {ACROSS} {height}" '
        f'width="{ACROSS}" height="{height}" role="img">',
        f"  <title>{escape(title)}</title>",
        f"  <style>{STYLE}{MORE}\n  </style>",
        '  <rect class="c-ground" width="100%" height="100%"/>',
    ]
    for number, panel in enumerate(shown):
        body += [f'  <g transform="translate(0 {number * DOWN})">', *drawn(panel), "  </g>"]
    return "\n".join([*body, "</svg>"]) + "\n"


class Scale:
    """From layers and values to pixels."""

    def __init__(self, panel: Panel) -> None:
        spots = [spot for curve in panel.curves for spot in curve.spots]
        values = [y for spot in spots for y in (spot.middle, spot.low, spot.high)]
        values += [level for _, level in panel.levels]
        known = [y for _, y in finite([(0.0, y) for y in values])]
        self.ticks = steps_between(min(known), max(known))
        self.low, self.high = min(*known, self.ticks[0]), max(*known, self.ticks[-1])
        layers = [spot.layer for spot in spots]
        self.first, self.last = min(layers), max(layers)

    def x(self, layer: float) -> float:
        share = (layer - self.first) / ((self.last - self.first) or 1.0)
        return LEFT + share * (ACROSS - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return DOWN - BOTTOM - share * (DOWN - TOP - BOTTOM)


def drawn(panel: Panel) -> list[str]:
    scale = Scale(panel)
    curves = [curve for curve in panel.curves if curve.line.points]
    body = [
        f'  <text class="c-text c-heading" x="{LEFT}" y="20">{escape(clean(panel.title))}</text>',
        *legend([curve.line for curve in curves]),
    ]
    for tick in scale.ticks:
        y = scale.y(tick)
        body.append(
            f'  <line class="c-grid" x1="{LEFT}" x2="{ACROSS - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="c-text c-note" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{said(tick)}</text>"
        )
    for name, level in panel.levels:
        y = scale.y(level)
        body.append(
            f'  <line class="p-level" x1="{LEFT}" x2="{ACROSS - RIGHT}" y1="{y:.1f}" '
            f'y2="{y:.1f}"/><text class="c-text c-note" x="{ACROSS - RIGHT}" y="{y - 4:.1f}" '
            f'text-anchor="end">{escape(clean(name))} {said(level)}</text>'
        )
    body += [band(curve, scale) for curve in curves] + [path(curve, scale) for curve in curves]
    for curve in curves:
        body += [dot(curve, spot, scale) for spot in known(curve)]
    return body + below(scale, panel)


def known(curve: Curve) -> list[Spot]:
    return [spot for spot in curve.spots if finite([(spot.layer, spot.middle)])]


def band(curve: Curve, scale: Scale) -> str:
    spots = [s for s in known(curve) if len(finite([(s.layer, s.low), (s.layer, s.high)])) == 2]
    there = [(scale.x(spot.layer), scale.y(spot.high)) for spot in spots]
    back = [(scale.x(spot.layer), scale.y(spot.low)) for spot in reversed(spots)]
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in there + back)
    return f'  <polygon class="p-band c-{curve.ink}" points="{corners}"/>'


def path(curve: Curve, scale: Scale) -> str:
    way = " ".join(
        f"{'L' if number else 'M'}{scale.x(spot.layer):.1f} {scale.y(spot.middle):.1f}"
        for number, spot in enumerate(known(curve))
    )
    return f'  <path class="c-line c-{curve.ink}" d="{way}"/>'


def dot(curve: Curve, spot: Spot, scale: Scale) -> str:
    tip = escape(
        f"{clean(curve.name)}, layer {spot.layer:g}: {spot.middle:.4g} "
        f"({spot.low:.4g} to {spot.high:.4g})"
    )
    return (
        f'  <circle class="c-dot c-{curve.ink}" cx="{scale.x(spot.layer):.1f}" '
        f'cy="{scale.y(spot.middle):.1f}" r="3"><title>{tip}</title></circle>'
    )


def below(scale: Scale, panel: Panel) -> list[str]:
    """Every layer's number, or some of them where they would not fit."""
    layers = sorted({spot.layer for curve in panel.curves for spot in curve.spots})
    step = -(-len(layers) // 16)
    y = DOWN - BOTTOM + 16
    marks = [
        f'  <text class="c-text c-note" x="{scale.x(layer):.1f}" y="{y}" '
        f'text-anchor="middle">{layer:g}</text>'
        for layer in layers[::step]
    ]
    middle = (LEFT + ACROSS - RIGHT) / 2
    return [
        *marks,
        f'  <text class="c-text c-note" x="{middle:.0f}" y="{y + 14}" text-anchor="middle">'
        "layer</text>",
    ]
