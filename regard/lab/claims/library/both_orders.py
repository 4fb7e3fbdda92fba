"""Two texts whose order has no meaning, read by a model from left to right."""

from __future__ import annotations

import json
from pathlib import Path

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import Workspace
from regard.lab.claims.engine.labeled_texts import Files


def turned(run: Path, files: Files, cell: ClaimCell, room: Workspace) -> dict[str, float]:
    """Measures how far the probability of "same" moves when the two texts are swapped."""
    from regard.data.examples import LabeledExample
    from regard.evaluation.predictors import predictor_for
    from regard.formats.directory import load

    lines = files["test"].read_text(encoding="utf-8").splitlines()[:200]
    pairs = [json.loads(line) for line in lines]
    first, second = ([pair[f"sentence{i}"] for pair in pairs] for i in (1, 2))
    predict = predictor_for(load(run))
    both = [
        [answer.scores["same"] for answer in predict(list(map(LabeledExample, a, b)))]
        for a, b in ((first, second), (second, first))
    ]
    moved = [abs(a - b) for a, b in zip(*both, strict=True)]
    return {"asymmetry": sum(moved) / len(moved)}
