"""Next sentence prediction and sentence order prediction."""

from __future__ import annotations

from pathlib import Path

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import opened

TASKS = {"next": "trained on next", "order": "trained on order"}
LENGTH = 30


def both(run: Path, cell: ClaimCell) -> dict[str, float]:
    """Returns how often one model answers each of the two questions correctly. The pairs of either
    answer count for half, however many there are, so a constant answer is right half of the time.
    """
    import torch

    from regard.objectives.sentences import Sentences, SentencesOptions

    corpus, loaded = opened(run)
    model = loaded.model.eval()
    shares = {}
    for task in TASKS:
        options = SentencesOptions(task=task, short=0.0)
        questions = Sentences(
            corpus, options, seq_len=LENGTH, batch_size=32, seed=1, learning=False
        )
        right: dict[int, list[bool]] = {0: [], 1: []}
        for first in range(0, len(questions), questions.batch_size):
            numbers = range(first, min(first + questions.batch_size, len(questions)))
            batch = questions.collate([questions.get(number) for number in numbers])
            with torch.inference_mode():
                answers = model.read(
                    "next", questions.read(model, batch), batch["attention_mask"]
                ).argmax(-1)
            for truth, answer in zip(batch["next"].tolist(), answers.tolist(), strict=True):
                right[truth].append(answer == truth)
        shares[task] = sum(sum(each) / len(each) for each in right.values()) / 2
    return shares
