"""Random choices as pure functions of a key, so that no random state ever has to be saved."""

from __future__ import annotations

import hashlib

import numpy as np

from regard.core.errors import ConfigError

LARGEST = 2**63 - 1


def keyed(*key: int | str) -> np.random.Generator:
    """Returns a generator for one key, such as (seed, epoch, sample): the same on every machine."""
    return np.random.default_rng([number(part) for part in key])


def number(part: int | str) -> int:
    """Returns an integer for one part of a key; words separate purposes with the same numbers."""
    if isinstance(part, int):
        if part < 0:
            raise ConfigError(f"the seed is {part}; it must be 0 or a larger whole number")
        return part
    return int.from_bytes(hashlib.blake2b(part.encode(), digest_size=4).digest(), "little")


def permutation(count: int, *key: int | str) -> np.ndarray:
    """Returns the numbers 0 … count - 1 in an order that the key decides."""
    return keyed(*key).permutation(count)


def seed_torch(*key: int | str) -> None:
    """Seeds the generators that dropout draws from, on every device."""
    import torch

    torch.manual_seed(int(keyed(*key).integers(LARGEST)))
