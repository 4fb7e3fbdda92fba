"""Why positions are not simple integers."""

from __future__ import annotations

from regard.lab.claims.engine.experiment import FollowedExperiment, Found, Workspace

LENGTHS = (16, 64, 256)


def lengths(arm: str, seed: int, room: Workspace) -> Found:
    from regard.lab.claims.engine.small import bits_at_lengths

    bits = bits_at_lengths(arm, LENGTHS, seed, room)
    return {(arm, n): {"bits_per_byte": each} for n, each in bits.items()}


EXPERIMENT = FollowedExperiment(lengths)
