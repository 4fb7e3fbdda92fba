"""The top of a model: the output to the vocabulary with the loss of targets, and the heads, one
small module per kind of answer.

Logits are computed only at targets, and only for a few rows at a time: for a large vocabulary this
saves more than any kernel. The gradient is computed in the same pass, so a chunk of logits is never
in memory twice.

Names of heads: "pool" (one vector per text), "next" (does B follow A?), "classify", "choose" (one
score per choice), "tag" (one class per token), "answer" (start and end of a span).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import linear
from regard.attention.block import ACTIVATIONS
from regard.attention.dropout import Dropout
from regard.attention.kernels import wide_dtype, working_dtype
from regard.attention.linear import Linear
from regard.attention.memory import KVCache
from regard.attention.native import passes
from regard.core.errors import InputError
from regard.models.state import State

CHUNK = 2**25  # so many logits are in memory at a time, …
MORE = 1.1  # … or up to this factor more: a chunk of few rows costs as much traffic as a whole one
ALIGNED = 64  # rows of logits begin at multiples of this: other products are a third slower


def chunk_rows(rows: int, words: int) -> int:
    """Returns for how many rows logits are in memory at a time: about as many in each chunk."""
    chunks = math.ceil(rows * words / (MORE * CHUNK))
    return -(-rows // max(1, chunks))


class SoftTarget(NamedTuple):
    """The loss of a row in which other words than the target count, too. With s_k = -log p_k and Z
    = Σ_k exp(logit_k) it is own · s_target + other · Σ_k s_k + z · (log Z)²; the sum leaves out the
    word `without`."""

    own: float = 1.0
    other: float = 0.0
    without: int | None = None
    z: float = 0.0

    def cost(self, log_p: Tensor, target_log_p: Tensor, log_z: Tensor) -> Tensor:
        """Returns the loss [N, 1] from log_p [N, V] and the targets' log-probabilities [N, 1]."""
        rest = log_p.sum(-1, keepdim=True)
        if self.without is not None:
            rest = rest - log_p[:, self.without, None]
        return self.z * log_z**2 - self.own * target_log_p - self.other * rest

    def slope_(self, p: Tensor, log_z: Tensor) -> None:
        """Turns probabilities into the gradient at the logits, without the targets' term -own."""
        words = p.size(1) - (self.without is not None)
        p.mul_(self.own + self.other * words + 2 * self.z * log_z).sub_(self.other)
        if self.without is not None:
            p[:, self.without] += self.other


class Surprisal(torch.autograd.Function):
    """Σ share · -log softmax(hidden Wᵀ + b)[target], computed in chunks with its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # [N, d]
        weight: Tensor,  # [V, d]
        bias: Tensor | None,  # [V]
        targets: Tensor,  # [N]
        shares: Tensor | None,  # [N]: the weight of each target
        soft: SoftTarget | None,
        learn: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        exact = torch.promote_types(dtype, torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):
            table, words = weight.to(dtype), weight.size(0)
            offset = None if bias is None else bias.to(dtype)
            total = torch.zeros((), dtype=exact, device=hidden.device)
            grad_hidden = torch.empty_like(hidden) if learn else None  # every row is written below
            grad_weight: Tensor | None = None  # the first product becomes the sum of all
            grad_bias = torch.zeros_like(bias) if learn and bias is not None else None
            rows = chunk_rows(hidden.size(0), words)
            own = linear.serves(hidden.to(dtype), table)  # that library brings its own room
            room = table.new_empty(0 if own else rows, -(-words // ALIGNED) * ALIGNED)  # for all
            part = torch.empty_like(table) if learn and dtype != weight.dtype else None
            for start in range(0, hidden.size(0), max(rows, 1)):
                chosen = slice(start, start + rows)
                h, target = hidden[chosen].to(dtype), targets[chosen]
                share = None if shares is None else shares[chosen].to(exact)
                scores = product(h, table, offset, room[: h.size(0), :words])
                total += losses(scores, target, share, soft, learn).sum()
                if grad_hidden is None:
                    continue
                grad = scores  # the losses have overwritten them
                grad_hidden[chosen] = linear.product(grad, table.t())
                grad_weight = with_outer(grad_weight, grad, h, part, weight.dtype)
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
            if learn and grad_weight is None:  # there are no targets
                grad_weight = torch.zeros_like(weight)
            ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
            return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [None if g is None else g.mul_(grad.to(g.dtype)) for g in ctx.saved_tensors]
        return (*scaled, *[None] * 5)  # scaled in place: a second backward is refused


def product(h: Tensor, table: Tensor, offset: Tensor | None, room: Tensor) -> Tensor:
    """Returns h · tableᵀ + offset, in `room` if the library can write there."""
    if linear.serves(h, table):
        return linear.product(h, table, offset)
    out = room if len(room) == len(h) else None
    if offset is None:
        return torch.mm(h, table.mT, out=out)
    return torch.addmm(offset, h, table.mT, out=out)


def with_outer(
    total: Tensor | None, grad: Tensor, h: Tensor, part: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Returns gradᵀ · h, added to the total if there is one. `part` is where a product of another
    dtype than the total's is written first."""
    if part is not None:
        outer = torch.mm(grad.mT, h, out=part)
    elif linear.serves(grad.t(), h.t()):
        outer = linear.product(grad.t(), h.t())
    else:
        return torch.mm(grad.mT, h) if total is None else total.addmm_(grad.mT, h)
    return outer.to(dtype) if total is None else total.add_(outer)


def losses(
    scores: Tensor, targets: Tensor, shares: Tensor | None, soft: SoftTarget | None, learn: bool
) -> Tensor:
    """Returns the loss [N] of each row of logits [N, V]; to learn, writes the gradient there."""
    if passes.serves(scores):
        return passes.surprisal(scores, targets, shares, *(soft or SoftTarget()), learn)
    target, share = targets[:, None], None if shares is None else shares[:, None]
    log_p = torch.log_softmax(scores, -1, dtype=wide_dtype(scores.dtype))
    target_log_p = log_p.gather(1, target)
    log_z = scores.gather(1, target) - target_log_p
    cost = -target_log_p if soft is None else soft.cost(log_p, target_log_p, log_z)
    if learn:
        grad = log_p.exp_()
        if soft is not None:
            soft.slope_(grad, log_z)
        own = -1.0 if soft is None else -soft.own
        grad.scatter_add_(1, target, torch.full_like(target_log_p, own))
        scores.copy_(grad if share is None else grad.mul_(share))
    return (cost if share is None else cost * share)[:, 0]


def surprisal(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    shares: Tensor | None = None,
    soft: SoftTarget | None = None,
) -> Tensor:
    """Returns the summed negative log-likelihood of the targets in nats; `soft` is another loss."""
    taught = [t for t in (hidden, weight, bias) if t is not None and t.requires_grad]
    learn = torch.is_grad_enabled() and bool(taught)
    if torch.compiler.is_compiling():  # the compiler plans its own memory
        logits = F.linear(hidden, weight, bias).float()
        each = F.cross_entropy(logits, targets, reduction="none")
        if soft is not None:
            log_z = logits.logsumexp(-1, keepdim=True)
            each = soft.cost(logits - log_z, -each[:, None], log_z)[:, 0]
        return (each if shares is None else each * shares).sum()
    total: Tensor = Surprisal.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, targets, shares, soft, learn, working_dtype(hidden)
    )
    return total


class Output(nn.Module):
    """logits = transform(hidden) · scale · Wᵀ + b; W is usually the embedding itself."""

    def __init__(
        self,
        weight: Tensor,
        *,
        bias: str = "none",  # "learned", or "fixed": loaded with the weights and never trained
        scale: float = 1.0,
        transform: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.bias: Tensor | None = None
        if bias == "learned":
            self.bias = nn.Parameter(torch.zeros(weight.size(0)))
        elif bias == "fixed":
            del self.bias
            self.register_buffer("bias", torch.zeros(weight.size(0)))
        self.scale = scale
        self.transform = nn.Identity() if transform is None else transform

    def rows(
        self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor | None, state: State | None
    ) -> Tensor:
        """Returns what a model's forward returns for its hidden states [B, T, width]: the same
        states, unless an output needs more per row. A model that generates text ends its forward
        with this call and passes the tokens, mask and state of its own call."""
        return hidden

    def caches(self, batch: int, capacity: int) -> list[KVCache]:
        """Returns the caches of `rows`, which come after those of the layers; here none."""
        return []

    def prepare(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.transform(hidden)
        return y if self.scale == 1.0 else y * self.scale

    def forward(self, hidden: Tensor) -> Tensor:
        return linear.linear(self.prepare(hidden), self.weight, self.bias)

    def surprisal(self, hidden: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
        """Returns the summed loss of the targets [N] at the rows `hidden` [N, width]."""
        return surprisal(self.prepare(hidden), self.weight, self.bias, targets, shares)

    def softened(
        self, hidden: Tensor, targets: Tensor, soft: SoftTarget, shares: Tensor | None = None
    ) -> Tensor:
        """Returns the same sum for a softer loss."""
        return surprisal(self.prepare(hidden), self.weight, self.bias, targets, shares, soft)

    def each(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Returns the loss of every single target [N], without gradient."""
        with torch.no_grad():
            rows = max(1, CHUNK // self.weight.size(0))
            parts = zip(hidden.split(rows), targets.split(rows), strict=True)
            return torch.cat(
                [F.cross_entropy(self(h).float(), t, reduction="none") for h, t in parts]
            )


# -- heads

Heads = dict[str, int]  # name -> number of classes


def answering_head(model: Any) -> str | None:
    """Returns the head that answers for a model: the head of its task; None: its output over the
    vocabulary."""
    heads = [name for name in getattr(model, "heads", ()) if name != "pool"]
    if hasattr(model, "output"):
        heads = [name for name in heads if name != "next"]
    elif not heads:
        raise InputError(
            "this model has no output over the vocabulary and no head of a task; call .model, "
            "which returns the hidden states, or load it with a head: heads={'classify': 2}"
        )
    return next(iter(heads), None)


def first_row(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Returns each text's first row that is not padding: padding may be on either side."""
    return hidden[:, 0] if attention_mask is None else pick(hidden, attention_mask.long().argmax(1))


def last_row(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Returns each text's last row that is not padding."""
    if attention_mask is None:
        return hidden[:, -1]
    return pick(hidden, attention_mask.size(1) - 1 - attention_mask.long().flip(1).argmax(1))


def pick(hidden: Tensor, row: Tensor) -> Tensor:
    return hidden.gather(1, row[:, None, None].expand(-1, 1, hidden.size(2)))[:, 0]


ROWS = {"first": first_row, "last": last_row}


class TokenHead(nn.Module):
    """Scores of classes for every row: tags, or the start and end of an answer."""

    def __init__(self, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout, self.out = Dropout(dropout), nn.Linear(width, classes)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        y: Tensor = self.out(self.dropout(hidden))
        return y


class LastRowHead(nn.Module):
    """Scores of classes, computed directly from a text's last row (Radford et al. 2018, 3.2)."""

    def __init__(self, width: int, classes: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.dropout, self.out = Dropout(dropout), nn.Linear(width, classes, bias=bias)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        y: Tensor = self.out(self.dropout(last_row(hidden, attention_mask)))
        return y


class SummaryHead(nn.Module):
    """One row represents the text: dense, tanh, then classes (with 0 classes: the vector)."""

    def __init__(
        self, width: int, classes: int, row: str, before: float = 0.0, after: float = 0.0
    ) -> None:
        super().__init__()
        self.row = ROWS[row]
        self.before, self.after = Dropout(before), Dropout(after)
        self.dense = Linear(width, width)
        self.out = nn.Linear(width, classes) if classes else nn.Identity()

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        summary = torch.tanh(self.dense(self.before(self.row(hidden, attention_mask))))
        y: Tensor = self.out(self.after(summary))
        return y


class Transform(nn.Module):
    """The layer that BERT and related models apply to a row before they predict its word."""

    def __init__(self, width: int, activation: str, norm_eps: float) -> None:
        super().__init__()
        self.dense, self.norm = Linear(width, width), nn.LayerNorm(width, norm_eps)
        self.activation = ACTIVATIONS[activation]

    def forward(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.norm(self.activation(self.dense(hidden)))
        return y


class SpanHead(nn.Module):
    """XLNet's answer head: it scores the end for a given start, and whether there is no answer."""

    def __init__(self, width: int, norm_eps: float, dropout: float) -> None:
        super().__init__()
        self.start = nn.Linear(width, 1)
        self.end_dense, self.end_norm = nn.Linear(2 * width, width), nn.LayerNorm(width, norm_eps)
        self.end = nn.Linear(width, 1)
        self.none_dense, self.none = nn.Linear(2 * width, width), nn.Linear(width, 1, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Returns the scores of the starts [B, T]."""
        y: Tensor = self.start(hidden)[..., 0]
        return y

    def ends(self, hidden: Tensor, start: Tensor) -> Tensor:
        """Returns the scores of the ends [B, T] of an answer that begins at row `start` [B]."""
        begun = pick(hidden, start)[:, None].expand_as(hidden)
        y: Tensor = self.end(
            self.end_norm(torch.tanh(self.end_dense(torch.cat([hidden, begun], -1))))
        )
        return y[..., 0]

    def unanswerable(
        self, hidden: Tensor, starts: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Returns a score [B] that there is no answer, from the expected start and the last row."""
        starts = (
            starts if attention_mask is None else starts.masked_fill(~attention_mask, -torch.inf)
        )
        expected = (starts.softmax(-1)[..., None] * hidden).sum(1)
        both = torch.cat([expected, last_row(hidden, attention_mask)], -1)
        y: Tensor = self.none(self.dropout(torch.tanh(self.none_dense(both))))
        return y[..., 0]
