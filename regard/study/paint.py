"""Pixels: PNG files by the standard library alone, and bars as SVG.

A PNG here is three colours a pixel, no filter, one compressed block: what RFC 2083 asks at least.
There are no letters in it; what needs names is an SVG.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from regard.study.curves import STYLE
from regard.study.draw import clean

Colour = tuple[int, int, int]

GROUND, INK, GRID = (255, 255, 255), (29, 78, 216), (201, 206, 214)
INKS: tuple[Colour, ...] = (
    INK, (194, 65, 12), (4, 120, 87), (126, 34, 206), (190, 24, 93), (14, 116, 144),
    (161, 98, 7), (75, 85, 99),
)  # fmt: skip
LARGEST = 1024  # pixels of a side, about
MARGIN, BAR = 16, 18


class Canvas:
    """Rows of pixels from the top."""

    def __init__(self, across: int, down: int) -> None:
        self.across, self.down = across, down
        self.pixels = bytearray(bytes(GROUND) * (across * down))

    def fill(self, x: int, y: int, across: int, down: int, colour: Colour) -> None:
        left, right = max(0, x), min(self.across, x + across)
        if right <= left:
            return
        line = bytes(colour) * (right - left)
        for row in range(max(0, y), min(self.down, y + down)):
            start = 3 * (row * self.across + left)
            self.pixels[start : start + len(line)] = line

    def line(self, a: tuple[float, float], b: tuple[float, float], colour: Colour) -> None:
        steps = max(1, math.ceil(max(abs(b[0] - a[0]), abs(b[1] - a[1]))))
        for i in range(steps + 1):
            x, y = (a[k] + (b[k] - a[k]) * i / steps for k in (0, 1))
            self.fill(round(x), round(y), 2, 2, colour)

    def png(self) -> bytes:
        head = struct.pack(">IIBBBBB", self.across, self.down, 8, 2, 0, 0, 0)
        size = 3 * self.across
        rows = (b"\0" + self.pixels[i * size : (i + 1) * size] for i in range(self.down))
        body = zlib.compress(b"".join(rows), 9)
        parts = (chunk(b"IHDR", head), chunk(b"IDAT", body), chunk(b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def mixed(share: float) -> Colour:
    """Between ground and ink; what is not a number is ground."""
    share = min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    red, green, blue = (
        round(g + (i - g) * share) for g, i in zip(GROUND, INK, strict=True)
    )  # fmt: skip
    return red, green, blue


def heat(shares: Sequence[Sequence[float]]) -> bytes:
    """Squares from ground (0) to ink (1), with a frame."""
    rows, columns = len(shares), max(map(len, shares), default=0)
    cell = max(1, min(24, LARGEST // max(rows, columns, 1)))
    made = Canvas(2 * MARGIN + cell * columns, 2 * MARGIN + cell * rows)
    made.fill(MARGIN - 1, MARGIN - 1, cell * columns + 2, cell * rows + 2, GRID)
    for i, row in enumerate(shares):
        for j, share in enumerate(row):
            made.fill(MARGIN + cell * j, MARGIN + cell * i, cell, cell, mixed(share))
    return made.png()


def curves(lines: Sequence[Sequence[tuple[float, float]]]) -> bytes:
    """Lines over a common frame that begins at height 0."""
    across, down = 640, 320
    made = Canvas(across, down)
    points = [point for line in lines for point in line]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    most = max(y for _, y in points) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        right = MARGIN + (x - first) / ((last - first) or 1.0) * (across - 2 * MARGIN)
        return right, down - MARGIN - y / most * (down - 2 * MARGIN)

    for height in range(5):
        y = round(place(first, most * height / 4)[1])
        made.fill(MARGIN, y, across - 2 * MARGIN, 1, GRID)
    for number, line in enumerate(lines):
        for a, b in pairwise([place(*point) for point in line]):
            made.line(a, b, INKS[number % len(INKS)])
    return made.png()


def bars(counts: Sequence[float]) -> bytes:
    across, most = 640, max(counts, default=0.0) or 1.0
    made = Canvas(across, 2 * MARGIN + BAR * max(1, len(counts)))
    for i, count in enumerate(counts):
        long = round((across - 2 * MARGIN) * count / most)
        made.fill(MARGIN, MARGIN + BAR * i, long, BAR - 4, INK)
    return made.png()


def bars_svg(title: str, counts: dict[str, float], unit: str) -> str:
    """A name, a bar and its number in each line."""
    most = max(counts.values(), default=0.0) or 1.0
    left, long, line = 150, 330, 24
    height = 60 + line * len(counts)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" width="640" '
        f'height="{height}" role="img">',
        f"  <title>{escape(clean(title))}</title>",
        f"  <style>{STYLE}\n  </style>",
        '  <rect class="c-ground" width="100%" height="100%"/>',
        f'  <text class="c-text c-heading" x="16" y="24">{escape(clean(title))}</text>',
    ]
    for i, (name, count) in enumerate(counts.items()):
        y = 40 + line * i
        said = escape(f"{clean(name)}: {count:,.0f} {unit}".strip())
        body.append(
            f'  <text class="c-text" x="{left - 10}" y="{y + 13}" text-anchor="end">'
            f"{escape(clean(name))}</text>"
            f'<rect class="c-dot c-1" x="{left}" y="{y}" width="{long * count / most:.1f}" '
            f'height="{line - 7}"><title>{said}</title></rect>'
            f'<text class="c-text c-note" x="{left + long * count / most + 6:.1f}" y="{y + 13}">'
            f"{count:,.0f}</text>"
        )
    return "\n".join([*body, "</svg>"]) + "\n"
