"""Control tasks (Hewitt and Liang 2019): how well a probe can memorize.

Each word type has its own random label, the same in training and test, so that a probe can know it
only by memorizing the word. Selectivity is the accuracy on the task minus the accuracy on its
control task.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from regard.core.seeding import keyed

RULES = ("self", "first", "last")  # where a word type attaches in the control task of heads


def control_labels(
    words: Sequence[str], codes: np.ndarray, learned: np.ndarray, classes: int, seed: int
) -> np.ndarray:
    """Returns a label for each word, drawn by its type. The labels have the frequencies of `codes`
    where `learned` (the training part) is true."""
    counts = np.bincount(codes[learned], minlength=classes)
    shares = counts / counts.sum()

    @cache
    def label(word: str) -> int:
        return int(keyed(seed, "control", word).choice(classes, p=shares))

    return np.array([label(word) for word in words], np.int64)


def control_heads(words: Sequence[str], seed: int) -> np.ndarray:
    """Returns the position in the sentence that each word attaches to by the rule of its type."""

    def place(number: int, word: str) -> int:
        rule = RULES[int(keyed(seed, "control head", word).integers(len(RULES)))]
        return {"self": number, "first": 0, "last": len(words) - 1}[rule]

    return np.array([place(number, word) for number, word in enumerate(words)], np.int64)


def selectivity(task: float, control: float) -> float:
    return task - control
