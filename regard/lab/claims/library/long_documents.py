"""What lies behind the end of a short context."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Cell
from regard.lab.claims.engine.experiment import Room
from regard.lab.claims.engine.finetuning import Start, Tuned
from regard.lab.claims.engine.labelled_texts import long_moods, mood_text
from regard.training.recipe import Table

SHORT, LONG = 64, 514  # tokens of a truncated text, and of the longest
START = Start(
    "long",
    mood_text,
    {
        "model": "longformer",
        "shape": {"layers": 2, "width": 64, "heads": 4, "hidden": 128, "window": 32},
        "batch": {"samples": 2, "length": LONG}, "objective": {"name": "masked"},
        "validation": {"samples": 2},
    },
    steps=1,
)  # fmt: skip


class Truncating(Tuned):
    """The axis is the length of the texts, and with it what each arm reads of them."""

    def figures(self, cell: Cell, room: Room) -> dict[str, float]:
        most = int(cell.at) + 2 if cell.arm == "window" else SHORT
        reading: Table = {"batch": {"samples": 16, "length": min(most, int(cell.at) + 2)}}
        own = Tuned(
            self.start, long_moods(int(cell.at)), self.common | reading, self.arms,
            labels=self.labels, steps=self.steps, scratch=self.scratch,
        )  # fmt: skip
        return own.figures(cell, room)


EXPERIMENT = Truncating(
    START,
    long_moods(SHORT),
    {"examples": {"task": "classify"}, "optimizer": {"rate": 1e-3}},
    {"window": {}, "truncated": {}},
    labels=1500,
    steps=250,
    scratch=("window", "truncated"),
)
