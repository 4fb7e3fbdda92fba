"""Permutation and masking: two ways to see both sides."""

from __future__ import annotations

import math
from pathlib import Path

from regard.core.seeding import keyed
from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import opened

ASKED, ROW = 500, 62  # hidden words, tokens around each


def blanks(run: Path, cell: ClaimCell) -> dict[str, float]:
    """Hides one word of a row and shows all others; all models are tested on the same words."""
    from regard.lab.compare.blanks import BlankScorer

    corpus, loaded = opened(run)
    draw = keyed(0, "blanks")
    starts = draw.integers(len(corpus) - ROW, size=ASKED).tolist()
    rows = [corpus.read(start, start + ROW).tolist() for start in starts]
    guesses = BlankScorer(loaded, corpus.special)(rows, draw.integers(ROW, size=ASKED).tolist())
    nats = -sum(guess.logprob for guess in guesses) / len(guesses)
    right = sum(guess.right for guess in guesses) / len(guesses)
    return {"bits": nats / math.log(2), "right": right, "wrong": 1 - right}
