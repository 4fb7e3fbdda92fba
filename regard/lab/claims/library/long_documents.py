"""What lies behind the end of a short context."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Axis, Cell, Chart, Claim, Said
from regard.lab.claims.engine.experiment import Room
from regard.lab.claims.engine.finetuning import Start, Tuned
from regard.lab.claims.engine.labelled_texts import long_moods, mood_text
from regard.lab.claims.engine.rules import All, Less, Rising, Shrinks
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


CLAIM = Claim(
    name="long-documents",
    statement=Said(
        "On long documents a model with a window over all of the text beats one that reads its "
        "beginning only, the more the longer they are.",
        "在长文档上，以窗口读完全文的模型胜过只读开头的模型，文档越长差距越大。",
    ),
    source="Beltagy et al. 2020, table 7",
    setting=Said(
        "Texts of which four words, wherever they stand, tell the mood. A Longformer of two "
        f"layers and a window of 32, its first token global, reads all of them or {SHORT} tokens. "
        "It has read nothing before.",
        "文本中仅有四个词透露情绪，位置不定。两层、窗口 32、首词全局的 Longformer 读全文，"
        f"或只读 {SHORT} 个词元。事先没有读过文本。",
    ),
    arms=("window", "truncated"),
    axis=Axis(Said("words of a text", "文本词数"), (64, 128, 256, 512), logarithmic=True),
    experiment=Truncating(
        START, long_moods(SHORT), {"examples": {"task": "classify"}, "optimizer": {"rate": 1e-3}},
        {"window": {}, "truncated": {}}, labels=1500, steps=250, scratch=("window", "truncated"),
    ),
    rule=All((
        Less("error", "window", "truncated", at=512),
        Rising("error", "truncated"),
        Shrinks("error", "window", "truncated", 512, 64),
    )),
    printed={"truncated": "Hyperpartisan 87.4 (RoBERTa)", "window": "94.8"},
    charts=(Chart("error", Said("share of wrong answers", "错误率")),),
    minutes=5,
)  # fmt: skip
