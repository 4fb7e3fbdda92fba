"""What a caller may know of a batch beyond its tokens: where rows stand, and who sees whom.

An encoder counts positions and lets every row see every other. Whoever knows better (the branches
of a sentence tree, the edges of a graph) hands the encoder another `Known`; the encoder asks it,
and does not care which one it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.pattern import Pattern
from regard.attention.position import Distances, View
from regard.models.state import positions


class Known:
    """Nothing more than what is written: rows stand and see as the model says."""

    def positions(self, real: Tensor | None, rows: int, device: torch.device) -> Tensor:
        """Where each row stands, [B|1, T]."""
        return positions(real, 0, rows, device)

    def distances(self, counted: Tensor) -> Tensor:
        """How far each key stands behind each row, [B|1, Q, K]; as written it is `counted`."""
        return counted

    def view(
        self,
        pattern: Pattern,  # what the model itself lets rows see
        dtype: torch.dtype,
        *,
        bias: Tensor | None = None,
        distances: Distances | None = None,
        asking: Tensor | None = None,  # [B, G]: which rows ask, where not all do; -1 is none
    ) -> View:
        return View(pattern, bias, distances)

    def only_text(self, past: int, targets: Tensor | None) -> None:
        """Refuses what cannot be known of a text with a past, or with words to guess."""


NOTHING = Known()
