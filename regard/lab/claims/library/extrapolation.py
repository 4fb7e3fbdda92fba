"""Extrapolation to texts that are longer than those of the training."""

from __future__ import annotations

from regard.lab.claims.engine.experiment import FollowedExperiment, Found, Workspace
from regard.lab.claims.engine.guessing import unigram
from regard.lab.claims.engine.texts import python_docs

LENGTHS = (64, 128, 256)


def lengths(arm: str, seed: int, room: Workspace) -> Found:
    """Trains at the first length and measures at all of them."""
    from regard.lab.claims.engine.small import bits_at_lengths

    bits, guess = bits_at_lengths(arm, LENGTHS, seed, room), unigram(python_docs(room.place))
    return {
        (arm, n): {"bits_per_byte": each, "growth": each / bits[LENGTHS[0]], **guess}
        for n, each in bits.items()
    }


EXPERIMENT = FollowedExperiment(lengths)
