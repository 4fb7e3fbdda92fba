"""Label smoothing (Szegedy et al. 2016, 7; Vaswani et al. 2017, 5.4), in the three ways it is done.

Of K words, the true one y and a share ε:
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
    """Over how many words ε is spread."""
    return {"others": words - 1, "all": words, "no-pad": words - 2}[kind]


def smoothing(epsilon: float, words: int, kind: str, pad: int | None = None) -> SoftTarget:
    """The loss -Σ_k q_k log p_k as one of the output's."""
    if kind not in KINDS:
        raise UnknownName("way of smoothing", kind, KINDS)
    if not 0 <= epsilon < 1:
        raise ConfigError(f"smoothing is {epsilon}; it must be at least 0 and less than 1")
    if others_of(kind, words) < 1:
        raise ConfigError(f"a vocabulary of {words} leaves nothing to smooth over")
    if kind == "no-pad" and pad is None:
        raise ConfigError(
            "'no-pad' smoothing needs a token for padding, and this data has none; choose 'others'"
        )
    other = epsilon / others_of(kind, words)
    own = 1 - epsilon if kind == "all" else 1 - epsilon - other
    return SoftTarget(own, other, pad if kind == "no-pad" else None)


def entropy(epsilon: float, words: int, kind: str) -> float:
    """Of q, in nats: what a perfect guess still costs as cross-entropy."""
    other = epsilon / others_of(kind, words)
    true = 1 - epsilon + (other if kind == "all" else 0.0)
    rest = others_of(kind, words) - (kind == "all")
    return -sum(n * q * math.log(q) for n, q in ((1, true), (rest, other)) if q > 0)
