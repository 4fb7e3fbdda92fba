"""Gated residual paths: a learned gate per feature decides how much of a sub-layer's output is
added.

With the residual stream x and a sub-layer's output y, a plain block continues with x + y. The kinds
of gates are
  sigmoid  x + g ⊙ y,              g = σ(W x + b)
  highway  (1 - g) ⊙ x + g ⊙ y,    g = σ(W x + b)       (Srivastava et al. 2015)
  gru      (1 - z) ⊙ x + z ⊙ h,    z = σ(W_z y + U_z x + b), r = σ(W_r y + U_r x),
                                   h = tanh(W_h y + U_h (r ⊙ x))
"sigmoid" is the output gate and "gru" the gate of GTrXL (Parisotto et al. 2019, 3.2), whose bias
has the other sign there; its ReLU on y is left out, since sub-layers stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.attention.block import Block, CrossBlock, PostNorm, PreNorm
from regard.core.errors import ConfigError
from regard.data.tokenizer import Tokenizer
from regard.models.extensions.base import Extension, adopt

PLACES = {
    "both": ("attention", "cross", "feed_forward"),
    "attention": ("attention", "cross"),
    "feed_forward": ("feed_forward",),
}


@dataclass(frozen=True)
class GateOptions:
    place: str = "both"  # "attention", "feed_forward"
    kind: str = "sigmoid"  # "highway", "gru"
    open: float | None = None  # b at the start: a higher b opens the gate; None: the kind's default


class Sigmoid(nn.Module):
    """A gate that is almost open at first, so that training starts near the plain model."""

    OPEN = 4.0

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)

    def initialize(self, start: float) -> None:
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, start)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + torch.sigmoid(self.gate(x)) * y


class Highway(Sigmoid):
    """A gate that is almost closed at first, near the identity, as in its paper."""

    OPEN = -2.0

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + torch.sigmoid(self.gate(x)) * (y - x)


class GRU(nn.Module):
    """A gate that is almost closed at first, as in GTrXL, where b is -2."""

    OPEN = -2.0

    def __init__(self, width: int) -> None:
        super().__init__()
        self.found = nn.Linear(width, 3 * width)  # W of z, r and h; only z has a bias in the paper
        self.stream = nn.Linear(width, 2 * width, bias=False)  # U of z and r
        self.reset = nn.Linear(width, width, bias=False)  # U of h

    def initialize(self, start: float) -> None:
        for layer in (self.found, self.stream, self.reset):
            for matrix in layer.weight.split(layer.in_features):
                nn.init.xavier_uniform_(matrix)
        nn.init.zeros_(self.found.bias)
        nn.init.constant_(self.found.bias[: self.reset.in_features], start)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z, r, h = self.found(y).chunk(3, -1)
        own_z, own_r = self.stream(x).chunk(2, -1)
        z, r = torch.sigmoid(z + own_z), torch.sigmoid(r + own_r)
        return x + z * (torch.tanh(h + self.reset(r * x)) - x)


KINDS: dict[str, Any] = {"sigmoid": Sigmoid, "highway": Highway, "gru": GRU}


class GatedPostNorm(PostNorm):
    """norm(gate(x, dropout(layer(x)))); it replaces the plain sub-layer."""

    def __init__(self, plain: PostNorm, gate: nn.Module) -> None:
        adopt(self, plain)
        self.gate = gate

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y: Tensor = self.norm(self.gate(x, self.dropout(self.layer(x, *context))))
        return y


class GatedPreNorm(GatedPostNorm, PreNorm):
    """gate(x, dropout(layer(norm(x))))."""

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        y: Tensor = self.gate(x, self.dropout(self.layer(self.norm(x), *context)))
        return y


GATED: dict[type[PostNorm], type[GatedPostNorm]] = {PostNorm: GatedPostNorm, PreNorm: GatedPreNorm}


class Gates(Extension):
    Options: ClassVar[type] = GateOptions
    name = "gates"
    choices: ClassVar = {"place": PLACES, "kind": KINDS}

    def check(self, model: Any) -> None:
        o = self.options
        if o.open is not None and not math.isfinite(o.open):
            raise ConfigError(f"extensions.gates.open is {o.open!r}; it must be a number")
        if not self.paths(model):
            raise ConfigError(
                f"{type(model).__name__} has no residual path that place={o.place} could gate; "
                "choose another place or model"
            )

    def paths(self, model: nn.Module) -> list[tuple[nn.Module, str, PostNorm]]:
        """Returns (block, name, sub-layer) of each path that is gated."""
        blocks = [part for part in model.modules() if isinstance(part, Block | CrossBlock)]
        names = PLACES[self.options.place]
        pairs = [(block, name) for block in blocks for name in names if hasattr(block, name)]
        paths = [(block, name, getattr(block, name)) for block, name in pairs]
        return [each for each in paths if isinstance(each[2], PostNorm)]

    def apply(self, model: Any) -> None:
        for block, name, plain in self.paths(model):
            (width,) = plain.norm.normalized_shape  # type: ignore[misc]
            gate = KINDS[self.options.kind](width)
            setattr(block, name, GATED[type(plain)](plain, gate))

    def initialize(self, model: Any, tokenizer: Tokenizer | None) -> None:
        start = self.options.open
        with torch.no_grad():
            for _, _, gated in self.paths(model):
                gate: Any = gated.gate
                gate.initialize(gate.OPEN if start is None else float(start))
