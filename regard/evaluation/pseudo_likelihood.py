"""The pseudo-log-likelihood of models that fill blanks (Salazar et al. 2020).

Each token is hidden in turn, and the model predicts it from all other tokens. The sum of these
log-probabilities is no likelihood of a text, so whoever shows it says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from regard.data.batching import by_tokens
from regard.decoding.decode_state import at_rest, right_padded
from regard.decoding.filling import MaskedFiller

Blank = tuple[list[int], int]  # a row of tokens with one mask, and the position of the mask


def blank_scores(
    filler: MaskedFiller, rows: Sequence[Blank], gold: Sequence[int]
) -> list[tuple[float, bool]]:
    """Returns for each row the log-probability of its gold token, and whether no token is likelier.

    No result depends on the other rows, except for rounding.
    """
    scores: list[tuple[float, bool]] = [(0.0, False)] * len(rows)
    with torch.inference_mode(), at_rest(filler.model):
        for part in by_tokens(np.array([len(row) for row, _ in rows])) if rows else ():
            batch = [rows[i][0] for i in part]
            tokens, attention_mask = right_padded(
                batch, filler.model.device, filler.special.pad or 0
            )
            places = [[rows[i][1]] for i in part]
            logits = filler.model.logits(filler.rows(tokens, attention_mask, places))
            exact = torch.promote_types(logits.dtype, torch.float32)
            targets = torch.tensor([gold[i] for i in part], device=logits.device)
            log_p = logits.to(exact).log_softmax(-1)
            values = log_p.gather(1, targets[:, None])[:, 0].tolist()
            best = (log_p.argmax(-1) == targets).tolist()
            for i, value, likeliest in zip(part, values, best, strict=True):
                scores[i] = value, likeliest
    return scores
