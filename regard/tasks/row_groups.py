"""Divides rows of different lengths into groups with little padding."""

from __future__ import annotations

import numpy as np

OVERHEAD = 192  # tokens: about what one more pass of a model costs besides its rows


def grouped(sizes: np.ndarray, most: int | None = None) -> list[np.ndarray]:
    """Returns groups of row numbers, of at most `most` rows each. Their tokens with padding, plus
    OVERHEAD for each group, are as few as possible; longer rows come first."""
    order = np.argsort(-sizes, kind="stable")
    lengths, counts = np.unique(sizes, return_counts=True)
    lengths, counts = lengths[::-1], counts[::-1]
    upto = np.concatenate([[0], np.cumsum(counts)])
    best, begun = np.zeros(len(lengths) + 1), np.zeros(len(lengths) + 1, np.int64)
    for end in range(1, len(lengths) + 1):  # a group holds the rows of lengths start … end - 1
        costs = best[:end] + lengths[:end] * (upto[end] - upto[:end]) + OVERHEAD
        begun[end] = int(costs.argmin())
        best[end] = costs[begun[end]]
    edges, end = [], len(lengths)
    while end:
        edges.append((upto[begun[end]], upto[end]))
        end = int(begun[end])
    groups = [order[start:stop] for start, stop in reversed(edges)]
    if most is None:
        return groups
    return [part for group in groups for part in np.split(group, range(most, len(group), most))]
