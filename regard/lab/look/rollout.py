"""Attention rollout through the layers (Abnar and Zuidema 2020, 3).

Half of a row stays what it was, and half is what it reads: 0.5·A + 0.5·I, multiplied layer by
layer. So after some layers, a row consists of a share of each token at the bottom.
"""

from __future__ import annotations

import numpy as np

BLOCK = 256  # rows multiplied together; keys that none of them sees are skipped


class Rollout:
    """The shares of the input tokens in the rows of a stack, updated by each layer that is
    added.

    The keys are `past` memory rows and then the rows themselves. A memory row stands for itself in
    every layer, because what it was made of is no longer known. The `asking` rows after the others
    (XLNet's query stream) read these rows but are not read; they start without a token of their
    own, so their shares sum to less than 1.
    """

    def __init__(self, rows: int, past: int, asking: int = 0) -> None:
        self.rows, self.past = rows, past
        self.own: np.ndarray = np.zeros((rows, past + rows), np.float32)
        self.own[np.arange(rows), past + np.arange(rows)] = 1.0
        self.asking = np.zeros((asking, past + rows), np.float32)
        self.first = True

    def add(self, mean: np.ndarray) -> np.ndarray:
        """Adds the attention of one layer, averaged over its heads [rows + asking, past + rows];
        returns the shares after it."""
        content, asking = mean[: self.rows], mean[self.rows :]
        self.asking = 0.5 * self.through(asking) + 0.5 * self.asking
        self.own = self.through(self.step(content))
        self.first = False
        return np.concatenate([self.own, self.asking])

    def step(self, content: np.ndarray) -> np.ndarray:
        """Returns 0.5·A + 0.5·I; a row that reads nothing stays as it was."""
        shares = 0.5 * content
        shares[np.arange(self.rows), self.past + np.arange(self.rows)] += 0.5
        shares /= shares.sum(1, keepdims=True)
        return shares

    def through(self, step: np.ndarray) -> np.ndarray:
        """Returns the shares of rows that read the rows of the layer below with these weights."""
        if self.first:
            return step
        shares = carried(step[:, self.past :], self.own)
        shares[:, : self.past] += step[:, : self.past]
        return shares


class CrossRollout(Rollout):
    """The rollout of a decoder, whose layers read twice: the target, and then the output of the
    encoder. The same rule holds for both: a cross-attention keeps half of a row, and half is what
    it reads. The shares of target tokens and source tokens in a row sum to 1 together."""

    def __init__(self, rows: int, encoder: Rollout) -> None:
        super().__init__(rows, 0)
        self.encoder = encoder
        self.source: np.ndarray = np.zeros((rows, encoder.rows), np.float32)

    def add(self, mean: np.ndarray) -> np.ndarray:
        """Adds the self-attention of one layer; returns the shares of target tokens after it."""
        self.source = carried(self.step(mean), self.source)
        return super().add(mean)

    def cross(self, mean: np.ndarray) -> np.ndarray:
        """Adds the cross-attention [rows, source rows] of the layer; returns the shares of source
        tokens."""
        self.own = 0.5 * self.own
        self.source = 0.5 * self.source + 0.5 * carried(mean, self.encoder.own)
        return self.source


def carried(step: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Returns step @ below, skipping the columns that no row of a block sees."""
    shares = np.zeros((len(step), below.shape[1]), np.float32)
    for start in range(0, len(step), BLOCK):
        part = step[start : start + BLOCK]
        seen = np.flatnonzero(part.any(0))
        shares[start : start + BLOCK] = part[:, seen] @ below[seen]
    return shares
