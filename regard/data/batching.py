"""Puts samples of similar length into one step, so that a batch holds little padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from regard.core.seeding import keyed, permutation

Rows = Sequence[Sequence[int] | np.ndarray]
POOL = 64  # steps whose samples are sorted by length together
TOKENS = 8192  # the maximum number of tokens of a batch without a gradient, with padding
ROWS = 256  # the maximum number of its rows


def by_length(sizes: np.ndarray, batch: int, seed: int, epoch: int) -> np.ndarray:
    """Returns the order of an epoch: the samples are shuffled, then sorted by size within POOL
    steps, then the steps are shuffled. An epoch may begin in the middle of a step."""
    count = len(sizes)
    begun = min(-epoch * count % batch, count)
    mixed = permutation(count, seed, "order", epoch)
    pool = POOL * batch
    pools = [mixed[i : i + pool] for i in range(begun, count, pool)]
    ordered = [part[np.argsort(sizes[part], kind="stable")] for part in pools]
    body = np.concatenate([mixed[:0], *ordered])
    whole = len(body) // batch * batch
    steps = body[:whole].reshape(-1, batch)
    steps = keyed(seed, "steps", epoch).permutation(steps)
    return np.concatenate([mixed[:begun], steps.flatten(), body[whole:]])


def by_tokens(sizes: np.ndarray, tokens: int = TOKENS, rows: int = ROWS) -> Iterator[list[int]]:
    """Yields batches of rows of similar length, each with as many rows as fit."""
    batch: list[int] = []
    for place in np.argsort(-sizes, kind="stable").tolist():  # the longest needs the most memory
        if batch and (len(batch) == rows or (len(batch) + 1) * sizes[batch[0]] > tokens):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


class Ragged:
    """Rows of different lengths, stored one after the other in one array."""

    def __init__(self, rows: Rows, dtype: type = np.int32) -> None:
        self.sizes = np.array([len(row) for row in rows], np.int64)
        self.edges = np.concatenate([[0], np.cumsum(self.sizes)])
        self.flat: np.ndarray = np.empty(int(self.edges[-1]), dtype)
        for place, row in enumerate(rows):
            self[place][:] = row

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.flat[self.edges[index] : self.edges[index + 1]]


def padded(
    rows: list[np.ndarray], fill: int, *, left: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Pads rows to the longest one and returns (rows [B, T] as int64, attention mask [B, T]).
    Padding to the next multiple of 8 would add a tenth more tokens where texts are short."""
    width = max(len(row) for row in rows)
    table = np.full((len(rows), width), fill, np.int64)
    attention_mask = np.zeros((len(rows), width), np.bool_)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(len(row))
        table[i, place], attention_mask[i, place] = row, True
    return table, attention_mask
