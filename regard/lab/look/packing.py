"""Packs attention weights into bytes for a page, with as many bits as fit.

f4   the recorded 32-bit floats u2   16 bits: fractions of the row's largest weight, with an error
of at most 1/131,070 of it u1   8 bits, with an error of at most 1/510 of it top  only the largest
weights of a row, each in 8 bits with its position, and the sum of the others
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from regard.lab.look.weights import HeadWeights, KeyBand

EXACT, FINE, MOST = 8 * 2**20, 12 * 2**20, 24 * 2**20  # bytes of all weights in f4, u2, u1 and top
SMALL = 40  # the most rows and columns of a small picture
LARGEST = {"u2": 65535, "u1": 255}
TYPES: dict[str, Any] = {"f4": np.dtype("<f4"), "u2": np.dtype("<u2"), "u1": np.dtype("u1")}
LONG = 512  # a full matrix of more rows among bands is stored as `top`
KEPT = 32  # weights of a row that are then stored


@dataclass(frozen=True)
class Precision:
    """How weights are stored: one of the four kinds, and for `top` how many weights of a row."""

    kind: str
    count: int = 0

    @classmethod
    def of(cls, cells: int, rows: int, room: float = 1.0) -> Precision:
        """Returns the best precision that fits for `cells` weights in `rows` rows of all heads."""
        if 4 * cells <= EXACT * room:
            return cls("f4")
        if 2 * cells <= FINE * room:
            return cls("u2")
        if cells <= MOST * room:
            return cls("u1")
        return cls("top", int(min(max((MOST * room / max(rows, 1) - 8) // 3, 1), 255)))

    def beside(self, matrix: HeadWeights, banded: bool) -> Precision:
        """Returns the precision for a matrix without a band, if others of the page have one."""
        large = banded and matrix.band is None and len(matrix.values) > LONG
        return Precision("top", KEPT) if large and self.kind != "top" else self


@dataclass(frozen=True)
class Packed:
    """One matrix as bytes. `unpack` restores it, as the page does."""

    kind: str
    data: bytes
    rows: int
    keys: int
    band: KeyBand | None = None
    whole_rows: tuple[int, ...] = ()
    whole: bytes = b""
    count: int = 0

    def table(self) -> dict[str, Any]:
        """Returns the fields for JSON, with short names, because there may be thousands of
        matrices."""
        fields: dict[str, Any] = {"a": self.kind, "d": base64.b64encode(self.data).decode()}
        if self.count:
            fields["k"] = self.count
        if self.band is not None:
            b = self.band
            fields["band"] = [b.before, b.after, b.step, list(b.far)]
        if self.whole_rows:
            fields["r"] = list(self.whole_rows)
            fields["w"] = base64.b64encode(self.whole).decode()
        return fields

    def unpack(self) -> np.ndarray:
        """Returns the weights [rows, keys]."""
        if self.kind == "top":
            return untop(self.data, self.rows, self.keys, self.count)
        width = self.keys if self.band is None else self.band.width
        values = unquantise(self.data, self.kind, self.rows, width)
        whole = unquantise(self.whole, self.kind, len(self.whole_rows), self.keys)
        full = whole if self.whole_rows else None
        return HeadWeights(values, self.keys, self.band, self.whole_rows, full).dense()


def pack(matrix: HeadWeights, precision: Precision) -> Packed:
    packed = Packed(precision.kind, b"", len(matrix.values), matrix.keys, matrix.band, matrix.rows)
    if precision.kind == "top":
        count = min(precision.count, matrix.keys)
        return replace(packed, data=top(matrix, count), count=count, band=None, whole_rows=())
    data = quantise(matrix.values, precision.kind)
    whole = b"" if matrix.whole is None else quantise(matrix.whole, precision.kind)
    return replace(packed, data=data, whole=whole)


# -- all of a row


def quantise(values: np.ndarray, kind: str) -> bytes:
    """Returns the values for f4; otherwise the largest weight of each row as f4, then the fractions
    of it."""
    if kind == "f4":
        return values.astype(TYPES[kind]).tobytes()
    most = values.max(1, initial=0.0).astype(TYPES["f4"])
    return most.tobytes() + parts(values, most, kind).tobytes()


def parts(values: np.ndarray, most: np.ndarray, kind: str) -> np.ndarray:
    scale = np.divide(LARGEST[kind], most, out=np.zeros_like(most), where=most > 0)
    return np.rint(values * scale[:, None]).astype(TYPES[kind])


def unquantise(data: bytes, kind: str, rows: int, width: int) -> np.ndarray:
    if kind == "f4":
        return np.frombuffer(data, TYPES[kind]).reshape(rows, width).astype(np.float32)
    most = np.frombuffer(data, TYPES["f4"], rows)
    levels = np.frombuffer(data, TYPES[kind], rows * width, 4 * rows).reshape(rows, width)
    return levels.astype(np.float32) * (most / LARGEST[kind])[:, None]


# -- the largest of a row


def top(matrix: HeadWeights, count: int) -> bytes:
    """Packs, for all rows: the largest weight, the sum of the weights left out, positions, and
    fractions."""
    values, rows = matrix.values, len(matrix.values)
    keys = np.zeros((rows, count), "<u2")
    strongest = np.zeros((rows, count), np.float32)
    chosen = largest(values, count)
    weights = np.take_along_axis(values, chosen, 1)
    strongest[:, : chosen.shape[1]] = weights
    places = chosen if matrix.band is None else matrix.band.columns(rows, matrix.keys)
    if matrix.band is not None:
        places = np.take_along_axis(places, chosen, 1)
    keys[:, : chosen.shape[1]] = np.where(weights > 0, places, 0)
    total = values.sum(1)
    if matrix.whole is not None:
        own = list(matrix.rows)
        chosen = largest(matrix.whole, count)
        keys[own], strongest[own] = chosen, np.take_along_axis(matrix.whole, chosen, 1)
        total[own] = matrix.whole.sum(1)
    most = strongest.max(1, initial=0.0).astype("<f4")
    rest = np.clip(total - strongest.sum(1), 0.0, None).astype("<f4")
    return b"".join(x.tobytes() for x in (most, rest, keys, parts(strongest, most, "u1")))


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Returns the positions of the largest values of each row, in descending order of value."""
    count = min(count, values.shape[1])
    chosen = np.argpartition(-values, count - 1, 1)[:, :count]
    order = np.argsort(-np.take_along_axis(values, chosen, 1), 1, kind="stable")
    return np.take_along_axis(chosen, order, 1)


def untop(data: bytes, rows: int, keys: int, count: int) -> np.ndarray:
    most = np.frombuffer(data, "<f4", rows)
    places = np.frombuffer(data, "<u2", rows * count, 8 * rows).reshape(rows, count)
    levels = np.frombuffer(data, "u1", rows * count, (8 + 2 * count) * rows).reshape(rows, count)
    weights = np.zeros((rows, keys), np.float32)
    values = levels.astype(np.float32) * (most / 255)[:, None]
    np.add.at(weights, (np.arange(rows)[:, None], places), values)
    return weights


# -- small pictures


def thumbnail(matrix: HeadWeights) -> tuple[np.ndarray, tuple[int, int]]:
    """Returns the largest weight of each part of the matrix in 8 bits, not finer than the matrix
    itself. The scale ends where it does in the large picture: at the weight that nine of ten rows
    do not exceed, and not below four times a uniform share."""
    rows, keys = len(matrix.values), matrix.keys
    down, across = min(SMALL, rows), min(SMALL, keys)
    if not rows * keys:
        return np.zeros((0, 0), np.uint8), (0, 0)
    edges = [i * rows // down for i in range(down + 1)]
    columns = np.arange(across) * keys // across
    strongest, of_rows, seen = [], [], 0
    for pair in pairwise(edges):
        block = matrix.dense(*pair)
        strongest.append(block.max(0))
        of_rows.append(block.max(1))
        seen += int(np.count_nonzero(block))
    pooled = np.maximum.reduceat(np.stack(strongest), columns, 1)
    most = np.sort(np.concatenate(of_rows))[int(0.9 * (rows - 1))] or pooled.max() or 1.0
    most = max(float(most), min(1.0, 4 * rows / max(seen, 1)))
    return np.rint(np.minimum(pooled / most, 1.0) * 255).astype(np.uint8), (down, across)
