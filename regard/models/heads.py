"""What stands on top of a model: one small module a kind of answer.

Names used throughout: "pool" (a vector a text), "next" (is B the continuation of A?), "classify",
"choose" (one score a choice), "tag" (a class a token), "answer" (start and end of a span).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.block import ACTIVATIONS
from regard.attention.dropout import Dropout

Heads = dict[str, int]  # name -> number of classes


def first_row(hidden: Tensor, real: Tensor | None) -> Tensor:
    """Each text's first real row: padding may stand on either side."""
    return hidden[:, 0] if real is None else pick(hidden, real.long().argmax(1))


def last_row(hidden: Tensor, real: Tensor | None) -> Tensor:
    """Each text's last real row."""
    if real is None:
        return hidden[:, -1]
    return pick(hidden, real.size(1) - 1 - real.long().flip(1).argmax(1))


def pick(hidden: Tensor, row: Tensor) -> Tensor:
    return hidden.gather(1, row[:, None, None].expand(-1, 1, hidden.size(2)))[:, 0]


ROWS = {"first": first_row, "last": last_row}


class Rows(nn.Module):
    """Classes for every row: tags, or the start and end of an answer."""

    def __init__(self, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout, self.out = Dropout(dropout), nn.Linear(width, classes)

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        y: Tensor = self.out(self.dropout(hidden))
        return y


class Last(nn.Module):
    """The last row speaks for the text, and classes come straight from it (Radford et al. 2018,
    3.2).
    """

    def __init__(self, width: int, classes: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.dropout, self.out = Dropout(dropout), nn.Linear(width, classes, bias=bias)

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        y: Tensor = self.out(self.dropout(last_row(hidden, real)))
        return y


class Summary(nn.Module):
    """One row speaks for the text: dense, tanh, then classes (or, with none, the vector itself)."""

    def __init__(
        self, width: int, classes: int, row: str, before: float = 0.0, after: float = 0.0
    ) -> None:
        super().__init__()
        self.row = ROWS[row]
        self.before, self.after = Dropout(before), Dropout(after)
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, classes) if classes else nn.Identity()

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        summary = torch.tanh(self.dense(self.before(self.row(hidden, real))))
        y: Tensor = self.out(self.after(summary))
        return y


class Transform(nn.Module):
    """What BERT and its kin do to a row before they guess its word."""

    def __init__(self, width: int, activation: str, epsilon: float) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width, epsilon)
        self.activation = ACTIVATIONS[activation]

    def forward(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.norm(self.activation(self.dense(hidden)))
        return y


class Span(nn.Module):
    """XLNet's answer: the end is sought for a given start, and there may be no answer at all."""

    def __init__(self, width: int, epsilon: float, dropout: float) -> None:
        super().__init__()
        self.start = nn.Linear(width, 1)
        self.end_dense, self.end_norm = nn.Linear(2 * width, width), nn.LayerNorm(width, epsilon)
        self.end = nn.Linear(width, 1)
        self.none_dense, self.none = nn.Linear(2 * width, width), nn.Linear(width, 1, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """Scores of the starts [B, T]."""
        y: Tensor = self.start(hidden)[..., 0]
        return y

    def ends(self, hidden: Tensor, start: Tensor) -> Tensor:
        """Scores of the ends [B, T] of an answer that begins at row `start` [B]."""
        begun = pick(hidden, start)[:, None].expand_as(hidden)
        y: Tensor = self.end(
            self.end_norm(torch.tanh(self.end_dense(torch.cat([hidden, begun], -1))))
        )
        return y[..., 0]

    def unanswerable(self, hidden: Tensor, starts: Tensor, real: Tensor | None = None) -> Tensor:
        """A score [B] that there is no answer, from the expected start and the last row."""
        starts = starts if real is None else starts.masked_fill(~real, -torch.inf)
        expected = (starts.softmax(-1)[..., None] * hidden).sum(1)
        both = torch.cat([expected, last_row(hidden, real)], -1)
        y: Tensor = self.none(self.dropout(torch.tanh(self.none_dense(both))))
        return y[..., 0]
