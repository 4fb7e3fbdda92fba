"""Extrapolation to texts that are longer than those of the training."""

from __future__ import annotations

from regard.lab.claims.engine.experiment import FollowedExperiment, Found, Workspace

LENGTHS = (64, 128, 256)


def lengths(arm: str, seed: int, room: Workspace) -> Found:
    """Trains at the first length and measures at all of them."""
    from regard.lab.claims.engine.small import bits_at_lengths

    bits = bits_at_lengths(arm, LENGTHS, seed, room)
    return {
        (arm, n): {"bits_per_byte": each, "growth": each / bits[LENGTHS[0]]}
        for n, each in bits.items()
    }


EXPERIMENT = FollowedExperiment(lengths)
