"""Records attention: `with record(model) as seen: model(tokens)` shows every head's weights.

A recorder replaces the kernel of each Attention inside the `with` block. Its kernel computes the
output exactly as the model would, and keeps the queries, keys and biases, from which the weights
are computed when they are read. Outside the block there is no cost. In training, the recorded
weights are those before dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn

from regard.attention.attention import Attention, Kernel
from regard.attention.kernels import AttentionArgs
from regard.attention.pattern import Pattern
from regard.core.errors import InputError


@dataclass(frozen=True)
class AttentionCall:
    """One call of one Attention module."""

    name: str  # the module's name in the model: "blocks.3.attention.layer"
    queries: Tensor
    keys: Tensor
    values: Tensor
    how: AttentionArgs
    pattern: Pattern

    @property
    def weights(self) -> Tensor:
        """The attention weights [B, H, Q, K], computed when they are read."""
        return self.pattern.weights(self.queries, self.keys, self.how)

    @property
    def output(self) -> Tensor:
        """The weights times the values, [B, H, Q, D]: the model's own output, computed again."""
        return (self.weights @ self.values.to(self.weights.dtype)).to(self.values.dtype)


@dataclass
class Recording:
    """All recorded calls, in the order in which they were made."""

    layers: list[AttentionCall] = field(default_factory=list)

    def __iter__(self) -> Iterator[AttentionCall]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> AttentionCall:
        return self.layers[index]

    def named(self, part: str) -> list[AttentionCall]:
        """Returns the calls whose module name contains `part`: "cross", "encoder", "wide", …"""
        return [seen for seen in self.layers if part in seen.name]


@contextmanager
def record(model: nn.Module) -> Iterator[Recording]:
    """Records every attention of the model inside the `with` block, without changing any output."""
    recording = Recording()
    attentions = [
        (name, part) for name, part in model.named_modules() if isinstance(part, Attention)
    ]
    if not attentions:
        raise InputError(f"{type(model).__name__} has no attention to record; choose another model")
    before = [part.kernel for _, part in attentions]
    for name, part in attentions:
        part.kernel = watching(name, recording, part.kernel)
    try:
        yield recording
    finally:
        for (_, part), kernel in zip(attentions, before, strict=True):
            part.kernel = kernel


def watching(name: str, recording: Recording, inner: Kernel) -> Kernel:
    """Returns a kernel that records its inputs and then calls the `inner` kernel."""

    def kernel(pattern: Pattern, q: Tensor, k: Tensor, v: Tensor, how: AttentionArgs) -> Tensor:
        groups = q.size(1) // k.size(1)  # every query head is recorded with the keys that it reads
        queries = q.detach().clone()
        keys, values = (x.detach().repeat_interleave(groups, 1) for x in (k, v))
        bias = None if how.bias is None else how.bias.detach().clone()
        shown = how._replace(bias=bias, rate=0.0)
        recording.layers.append(AttentionCall(name, queries, keys, values, shown, pattern))
        return inner(pattern, q, k, v, how)

    return kernel
