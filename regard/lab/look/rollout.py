"""Attention rolled out through the layers (Abnar and Zuidema 2020, 3).

Half of a row is what it was, half is what it reads: 0.5·A + 0.5·I, multiplied layer upon layer.
What a row holds after some layers is so a share of each token at the bottom.
"""

from __future__ import annotations

import numpy as np

BLOCK = 256  # rows multiplied together; keys that none of them sees are left out


class Rollout:
    """Shares of the first tokens in the rows of a stack, after each layer that is added.

    The keys are `past` remembered rows and then the rows themselves. A remembered row stands for
    itself in every layer: what it was made of is no longer there. Rows behind the others (XLNet's
    query stream) read these but are not read; they begin as nobody's word, so their shares sum to
    less than 1.
    """

    def __init__(self, rows: int, past: int, asking: int = 0) -> None:
        self.rows, self.past = rows, past
        self.own: np.ndarray = np.zeros((rows, past + rows), np.float32)
        self.own[np.arange(rows), past + np.arange(rows)] = 1.0
        self.asking = np.zeros((asking, past + rows), np.float32)
        self.first = True

    def add(self, mean: np.ndarray) -> np.ndarray:
        """One layer's weights, the mean of its heads [rows + asking, past + rows]; gives the shares
        after it.
        """
        content, asking = mean[: self.rows], mean[self.rows :]
        self.asking = 0.5 * self.through(asking) + 0.5 * self.asking
        self.own = self.through(self.step(content))
        self.first = False
        return np.concatenate([self.own, self.asking])

    def step(self, content: np.ndarray) -> np.ndarray:
        """0.5·A + 0.5·I; a row that reads nothing stays what it was."""
        shares = 0.5 * content
        shares[np.arange(self.rows), self.past + np.arange(self.rows)] += 0.5
        shares /= shares.sum(1, keepdims=True)
        return shares

    def through(self, step: np.ndarray) -> np.ndarray:
        """What rows hold that read by these weights what the rows below hold."""
        if self.first:
            return step
        shares = carried(step[:, self.past :], self.own)
        shares[:, : self.past] += step[:, : self.past]
        return shares


class CrossRollout(Rollout):
    """A decoder, whose layers read twice: themselves, and then what an encoder has made of its
    source. The same rule holds for both: a cross-attention leaves half of what a row was, and half
    is what it reads. A row's shares of target and source tokens sum to 1 together.
    """

    def __init__(self, rows: int, encoder: Rollout) -> None:
        super().__init__(rows, 0)
        self.encoder = encoder
        self.source: np.ndarray = np.zeros((rows, encoder.rows), np.float32)

    def add(self, mean: np.ndarray) -> np.ndarray:
        """One layer's self-attention; gives the shares of target tokens after it."""
        self.source = carried(self.step(mean), self.source)
        return super().add(mean)

    def cross(self, mean: np.ndarray) -> np.ndarray:
        """Its cross-attention [rows, source rows]; gives the shares of source tokens after it."""
        self.own = 0.5 * self.own
        self.source = 0.5 * self.source + 0.5 * carried(mean, self.encoder.own)
        return self.source


def carried(step: np.ndarray, below: np.ndarray) -> np.ndarray:
    """step @ below, without the columns that nothing in a block of rows sees."""
    shares = np.zeros((len(step), below.shape[1]), np.float32)
    for start in range(0, len(step), BLOCK):
        part = step[start : start + BLOCK]
        seen = np.flatnonzero(part.any(0))
        shares[start : start + BLOCK] = part[:, seen] @ below[seen]
    return shares
