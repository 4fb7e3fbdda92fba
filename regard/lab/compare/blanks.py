"""Tests a model that sees both sides: one token is hidden, all others are visible.

For BERT and Longformer the token is masked, XLNet predicts it last, and T5 writes it after its
sentinel. A model that only continues a text cannot be tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.data.corpus import Special
from regard.decoding.decode_state import at_rest, right_padded
from regard.formats.directory import Checkpoint

TOKENS = 8192  # tokens of a batch


class BlankGuess(NamedTuple):
    """The prediction of a hidden token."""

    logprob: float
    right: bool  # whether it was the likeliest token


Ask = Callable[[list[list[int]], list[int]], Tensor]  # rows, places -> hidden states [N, width]


def sees_both_sides(model: Any) -> bool:
    return bool(model.fills) and hasattr(model, "output")


class BlankScorer:
    """Predicts single hidden tokens in rows of ids, which have no special tokens around them."""

    def __init__(self, loaded: Checkpoint, special: Special) -> None:
        model = self.model = loaded.model
        if not sees_both_sides(model):
            raise InputError(
                f"{type(model).__name__} cannot see the text after a blank; use a model that sees "
                "both sides"
            )
        self.special = special
        self.ask: Ask
        if model.fills == "sentinels":
            if not special.sentinels:
                raise InputError("the tokenizer has no sentinels for blanks (<extra_id_0>, …)")
            self.ask = self.written
        elif model.fills == "queries":
            self.model, self.ask = model.unlimited(), self.asked
        else:
            self.ask = self.masked

    def __call__(self, rows: Sequence[Sequence[int]], places: Sequence[int]) -> list[BlankGuess]:
        """Returns the prediction for the token at `places[i]` of `rows[i]`."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        guesses: list[BlankGuess | None] = [None] * len(rows)
        with torch.inference_mode(), at_rest(self.model):
            while order:
                size = max(1, TOKENS // (len(rows[order[-1]]) + 2))
                part, order = order[-size:], order[:-size]
                batch = [list(rows[i]) for i in part]
                at = [places[i] for i in part]
                gold = torch.tensor([row[p] for row, p in zip(batch, at, strict=True)])
                log_p = self.model.logits(self.ask(batch, at)).float().log_softmax(-1).cpu()
                own = log_p.gather(1, gold[:, None])[:, 0].tolist()
                first = (log_p.argmax(-1) == gold).tolist()
                for i, logprob, right in zip(part, own, first, strict=True):
                    guesses[i] = BlankGuess(logprob, right)
        return [guess for guess in guesses if guess is not None]

    def masked(self, rows: list[list[int]], places: list[int]) -> Tensor:
        cls, sep, mask = (self.special.need(role) for role in ("cls", "sep", "mask"))
        framed = [[cls, *row, sep] for row in rows]
        for row, place in zip(framed, places, strict=True):
            row[place + 1] = mask
        tokens, attention_mask = right_padded(framed, self.model.device, self.special.pad or 0)
        more: dict[str, Tensor] = {}
        if "global_tokens" in self.model.accepts:  # as in training: all rows see the first
            more["global_tokens"] = tokens.new_zeros(len(rows), 1)
        hidden: Tensor = self.model(tokens, attention_mask=attention_mask, **more)
        return hidden[range(len(rows)), [place + 1 for place in places]]

    def asked(self, rows: list[list[int]], places: list[int]) -> Tensor:
        cls, sep = self.special.need("cls"), self.special.need("sep")
        framed = [[*row, sep, cls] for row in rows]
        tokens, attention_mask = right_padded(framed, self.model.device, self.special.pad or 0)
        asking = torch.tensor(places, device=tokens.device)[:, None]
        order = torch.full_like(tokens, -1).scatter(1, asking, 0)
        hidden: Tensor = self.model(
            tokens, attention_mask=attention_mask, order=order, targets=asking
        )
        return hidden[:, 0]

    def written(self, rows: list[list[int]], places: list[int]) -> Tensor:
        """Gives the decoder its start token and the sentinel; its next token is the prediction."""
        mark, end = self.special.sentinels[0], self.special.end
        marked = [[*row, end] for row in rows]
        for row, place in zip(marked, places, strict=True):
            row[place] = mark
        tokens, attention_mask = right_padded(marked, self.model.device, self.special.pad or 0)
        begun = torch.tensor([[self.model.config.start_id, mark]], device=tokens.device)
        hidden: Tensor = self.model(tokens, begun.expand(len(rows), -1), attention_mask)
        return hidden[:, 1]
