"""Whether B follows A, or A and B are in order."""

from __future__ import annotations

from pathlib import Path

from regard.lab.claims.engine.claim import Cell
from regard.lab.claims.engine.experiment import opened

TASKS = {"next": "trained on next", "order": "trained on order"}
LENGTH = 30


def both(run: Path, cell: Cell) -> dict[str, float]:
    """Of one model: how often each of the two questions is answered right. Pairs with either answer
    count for half, however many there are: who always says the same is right half of the time.
    """
    import torch

    from regard.objectives.sentences import Options, Sentences

    corpus, loaded = opened(run)
    model = loaded.model.eval()
    found = {}
    for task in TASKS:
        options = Options(task=task, short=0.0)
        asked = Sentences(corpus, options, length=LENGTH, batch=32, seed=1, learning=False)
        right: dict[int, list[bool]] = {0: [], 1: []}
        for first in range(0, len(asked), asked.batch):
            numbers = range(first, min(first + asked.batch, len(asked)))
            batch = asked.collate([asked.get(number) for number in numbers])
            with torch.inference_mode():
                said = model.read("next", asked.read(model, batch), batch["real"]).argmax(-1)
            for truth, answer in zip(batch["next"].tolist(), said.tolist(), strict=True):
                right[truth].append(answer == truth)
        found[task] = sum(sum(each) / len(each) for each in right.values()) / 2
    return found
