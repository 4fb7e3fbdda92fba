"""Long documents: what a short context cuts off."""

from __future__ import annotations

from regard.lab.claims.engine.claim import ClaimCell
from regard.lab.claims.engine.experiment import Workspace
from regard.lab.claims.engine.finetuning import FinetunedExperiment, PretrainedStart
from regard.lab.claims.engine.labeled_texts import long_moods, mood_text
from regard.training.recipe import Table

SHORT, LONG = 64, 514  # tokens of a truncated text, and of the longest text
START = PretrainedStart(
    "long",
    mood_text,
    {
        "model": "longformer",
        "shape": {"layers": 2, "width": 64, "heads": 4, "ffn_size": 128, "window": 32},
        "batch": {"size": 2, "seq_len": LONG}, "objective": {"name": "masked"},
        "validation": {"samples": 2},
    },
    steps=1,
)  # fmt: skip


class Truncating(FinetunedExperiment):
    """The axis is the length of the texts, which also decides how much of them each arm reads."""

    def figures(self, cell: ClaimCell, room: Workspace) -> dict[str, float]:
        most = int(cell.at) + 2 if cell.arm == "window" else SHORT
        reading: Table = {"batch": {"size": 16, "seq_len": min(most, int(cell.at) + 2)}}
        own = FinetunedExperiment(
            self.start, long_moods(int(cell.at)), self.common | reading, self.arms,
            labels=self.labels, steps=self.steps, scratch=self.scratch,
        )  # fmt: skip
        return own.figures(cell, room)


EXPERIMENT = Truncating(
    START,
    long_moods(SHORT),
    {"examples": {"task": "classify"}, "optimizer": {"lr": 1e-3}},
    {"window": {}, "truncated": {}},
    labels=1500,
    steps=250,
    scratch=("window", "truncated"),
)
