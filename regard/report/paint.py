"""Pixels: PNG files by the standard library alone, and bars as SVG.

A PNG here is three colors a pixel, no filter, one compressed block: what RFC 2083 asks at least.
Its names are written in dots (`letters`).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from regard.report import clean, letters
from regard.report.curves import STYLE, said
from regard.report.heatmap import label

Color = tuple[int, int, int]

GROUND, INK, GRID, TEXT = (255, 255, 255), (29, 78, 216), (201, 206, 214), (31, 41, 55)
INKS: tuple[Color, ...] = (
    INK, (194, 65, 12), (4, 120, 87), (126, 34, 206), (190, 24, 93), (14, 116, 144),
    (161, 98, 7), (75, 85, 99),
)  # fmt: skip
LARGEST = 1024  # pixels of a side, about
MARGIN, GAP, BAR = 16, 8, 18
LINE = 2 * letters.DOWN + GAP  # a title and what is below it


class Canvas:
    """Rows of pixels from the top."""

    def __init__(self, across: int, down: int) -> None:
        self.across, self.down = across, down
        self.pixels = bytearray(bytes(GROUND) * (across * down))

    def fill(self, x: int, y: int, across: int, down: int, color: Color) -> None:
        left, right = max(0, x), min(self.across, x + across)
        if right <= left:
            return
        line = bytes(color) * (right - left)
        for row in range(max(0, y), min(self.down, y + down)):
            start = 3 * (row * self.across + left)
            self.pixels[start : start + len(line)] = line

    def line(self, a: tuple[float, float], b: tuple[float, float], color: Color) -> None:
        steps = max(1, math.ceil(max(abs(b[0] - a[0]), abs(b[1] - a[1]))))
        for i in range(steps + 1):
            x, y = (a[k] + (b[k] - a[k]) * i / steps for k in (0, 1))
            self.fill(round(x), round(y), 2, 2, color)

    def write(
        self, x: int, y: int, text: str, color: Color = TEXT, size: int = 1, upwards: bool = False
    ) -> None:
        """A line of letters from its upper left corner, or turned to the left, from its lower."""
        for right, down in letters.dots(text):
            a, b = (x + down * size, y - right * size) if upwards else (
                x + right * size, y + down * size)  # fmt: skip
            self.fill(a, b - upwards * size, size, size, color)

    def head(self, title: str) -> None:
        size = 2 if 2 * MARGIN + long([title], 2) <= self.across else 1
        self.write(MARGIN, MARGIN, clean(title), size=size)

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


def mixed(share: float) -> Color:
    """Between ground and ink; what is not a number is ground."""
    share = min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    red, green, blue = (
        round(g + (i - g) * share) for g, i in zip(GROUND, INK, strict=True)
    )  # fmt: skip
    return red, green, blue


def long(names: Sequence[str], size: int = 1) -> int:
    """Pixels that the longest name takes."""
    return letters.ACROSS * size * max(map(len, names), default=0)


def heat(
    title: str, shares: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]
) -> bytes:
    """Squares from ground (0) to ink (1), with a frame, and the names around it."""
    down, across = [label(name) for name in rows], [label(name) for name in columns]
    cell = max(1, min(24, LARGEST // max(len(down), len(across), 1)))
    size = 2 if cell >= 2 * letters.DOWN else 1
    step = max(1, -(-size * letters.DOWN // cell))  # names that fit: every so manieth
    left = MARGIN + long(down, size) + GAP
    top = MARGIN + LINE + long(across, size) + GAP
    wide, high = cell * len(across), cell * len(down)
    canvas = Canvas(max(left + wide, MARGIN + long([title], size)) + MARGIN, top + high + MARGIN)
    canvas.head(title)
    canvas.fill(left - 1, top - 1, wide + 2, high + 2, GRID)
    middle = (cell - size * letters.DOWN) // 2
    for i in range(0, len(down), step):
        x = left - GAP - long([down[i]], size)
        canvas.write(x, top + cell * i + middle, down[i], size=size)
    for j in range(0, len(across), step):
        canvas.write(left + cell * j + middle, top - GAP, across[j], size=size, upwards=True)
    for i, row in enumerate(shares):
        for j, share in enumerate(row):
            canvas.fill(left + cell * j, top + cell * i, cell, cell, mixed(share))
    return canvas.png()


def curves(title: str, lines: dict[str, list[tuple[float, float]]], below: str) -> bytes:
    """Lines over a common frame that begins at height 0; their names stand in their colors."""
    across, down = 640, 320
    canvas = Canvas(across, down + LINE)
    canvas.head(title)
    points = [point for line in lines.values() for point in line]
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    most = max(y for _, y in points) or 1.0
    heights = [said(most * part / 4) for part in range(5)]
    left, right = MARGIN + long(heights) + GAP, across - MARGIN
    top, bottom = MARGIN + LINE + LINE, down + LINE - MARGIN - LINE

    def place(x: float, y: float) -> tuple[float, float]:
        share = (x - first) / ((last - first) or 1.0)
        return left + share * (right - left), bottom - y / most * (bottom - top)

    for part, text in enumerate(heights):
        y = round(place(first, most * part / 4)[1])
        canvas.fill(left, y, right - left, 1, GRID)
        canvas.write(left - GAP - long([text]), y - letters.DOWN // 2, text)
    for at, text in ((left, said(first)), (right - long([said(last)]), said(last))):
        canvas.write(at, bottom + GAP, text)
    canvas.write((left + right - long([below])) // 2, bottom + GAP, clean(below))
    x = left
    for number, (name, line) in enumerate(lines.items()):
        ink = INKS[number % len(INKS)]
        canvas.write(x, MARGIN + LINE, clean(name), ink)
        x += long([name]) + 2 * GAP
        for a, b in pairwise([place(*point) for point in line]):
            canvas.line(a, b, ink)
    return canvas.png()


def bars(title: str, counts: dict[str, float], unit: str) -> bytes:
    """A name, a bar and its number in each line."""
    across, most = 640, max(counts.values(), default=0.0) or 1.0
    numbers = [f"{count:,.0f}" for count in counts.values()]
    canvas = Canvas(across, 2 * MARGIN + LINE + BAR * (len(counts) + 1))
    canvas.head(title)
    left = MARGIN + long(list(counts)) + GAP
    room = across - MARGIN - long(numbers) - GAP - left
    y = MARGIN + LINE
    for (name, count), number in zip(counts.items(), numbers, strict=True):
        canvas.write(left - GAP - long([name]), y + 3, clean(name))
        canvas.fill(left, y, round(room * count / most), BAR - 4, INK)
        canvas.write(left + round(room * count / most) + GAP, y + 3, number)
        y += BAR
    canvas.write(left, y + 3, f"{sum(counts.values()):,.0f} {unit} in all")
    return canvas.png()


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
        tip = escape(f"{clean(name)}: {count:,.0f} {unit}".strip())
        body.append(
            f'  <text class="c-text" x="{left - 10}" y="{y + 13}" text-anchor="end">'
            f"{escape(clean(name))}</text>"
            f'<rect class="c-dot c-1" x="{left}" y="{y}" width="{long * count / most:.1f}" '
            f'height="{line - 7}"><title>{tip}</title></rect>'
            f'<text class="c-text c-note" x="{left + long * count / most + 6:.1f}" y="{y + 13}">'
            f"{count:,.0f}</text>"
        )
    return "\n".join([*body, "</svg>"]) + "\n"
