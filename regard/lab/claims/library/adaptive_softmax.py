"""Adaptive softmax: a cheaper output for rare words."""

from __future__ import annotations

from pathlib import Path

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import opened, seconds

ROWS = 2048


def output(run: Path, cell: ClaimCell) -> dict[str, float]:
    """Measures the seconds of the output layer alone, forward and backward, with the word
    frequencies of the text."""
    import torch

    corpus, loaded = opened(run)
    model = loaded.model
    words = torch.from_numpy(corpus.read(0, ROWS)).long()
    draw = torch.Generator().manual_seed(cell.seed)
    rows = torch.randn(ROWS, model.config.width, generator=draw, requires_grad=True)

    def once() -> None:
        model.zero_grad()
        model.output.surprisal(rows, words).backward()

    return {"output": seconds(once, least=1.0)}
