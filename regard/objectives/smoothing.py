"""Label smoothing (Szegedy et al. 2016, 7; Vaswani et al. 2017, 5.4) in its three variants.

For K words, the true word y and a share ε:
    others   q_y = 1 - ε,          q_k = ε / (K - 1)      (tensor2tensor; the Transformer's own)
    all      q_y = 1 - ε + ε / K,  q_k = ε / K            (Szegedy; torch's `label_smoothing`)
    no-pad   as others, but padding has q = 0 and the rest ε / (K - 2)    (Annotated Transformer)
Cross-entropy and KL divergence differ by the entropy of q, a constant: their gradients are equal.
"""

from __future__ import annotations

import math

from regard.core.errors import ConfigError, UnknownName
from regard.models.output import SoftTarget

KINDS = ("others", "all", "no-pad")


def others_of(kind: str, words: int) -> int:
    """Returns the number of words over which ε is spread."""
    return {"others": words - 1, "all": words, "no-pad": words - 2}[kind]


def smoothing(epsilon: float, words: int, kind: str, pad: int | None = None) -> SoftTarget:
    """Returns the loss -Σ_k q_k log p_k as a SoftTarget of the output."""
    if kind not in KINDS:
        raise UnknownName("smoothing_kind", kind, KINDS)
    if not 0 <= epsilon < 1:
        raise ConfigError(f"smoothing is {epsilon}; it must be at least 0 and less than 1")
    if others_of(kind, words) < 1:
        raise ConfigError(f"a vocabulary of {words} is too small for label smoothing")
    if kind == "no-pad" and pad is None:
        raise ConfigError(
            "'no-pad' smoothing needs a padding token, and this data has none; choose 'others'"
        )
    other = epsilon / others_of(kind, words)
    own = 1 - epsilon if kind == "all" else 1 - epsilon - other
    return SoftTarget(own, other, pad if kind == "no-pad" else None)


def entropy(epsilon: float, words: int, kind: str) -> float:
    """Returns the entropy of q in nats: the cross-entropy of a perfect prediction."""
    other = epsilon / others_of(kind, words)
    true = 1 - epsilon + (other if kind == "all" else 0.0)
    rest = others_of(kind, words) - (kind == "all")
    return -sum(n * q * math.log(q) for n, q in ((1, true), (rest, other)) if q > 0)
