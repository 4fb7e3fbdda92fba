"""What reading before learning is worth."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.finetuning import GPT, LABELS, TUNING, Tuned
from regard.lab.claims.engine.labelled_texts import moods
from regard.lab.claims.engine.rules import All, Less, Shrinks

CLAIM = Claim(
    name="pretraining",
    statement=Said(
        "A model that has read unlabelled text and is then fine-tuned beats one that only learns "
        "the task, and the gain shrinks as labels grow.",
        "先读无标注文本再微调的模型，胜过只学任务的模型；标注越多，差距越小。",
    ),
    source="Radford et al. 2018, table 5",
    setting=Said(
        "A GPT of four layers reads made texts whose words go together by mood; then it, and one "
        "that has read nothing, learn from few to many labelled sentences which mood a sentence "
        "is of.",
        "四层 GPT 先读词语按情绪聚集的人造文本；随后它与没读过的模型，"
        "从少到多的标注句中学习判断情绪。",
    ),
    arms=("pre-trained", "from scratch"),
    axis=Axis(Said("labelled sentences", "标注句数"), (16, 64, 256, 1024), logarithmic=True),
    experiment=Tuned(
        GPT, moods, TUNING, {"pre-trained": {}, "from scratch": {}}, along=LABELS, steps=150,
        scratch=("from scratch",),
    ),
    rule=All((
        Less("error", "pre-trained", "from scratch", at=64),
        Shrinks("error", "pre-trained", "from scratch", 64, 1024),
    )),
    charts=(Chart("error", Said("share of wrong answers", "错误率")),),
    minutes=4,
    notes=(
        Said(
            "The text is made so that reading can help: in two earlier versions of it the reader "
            "learned next to nothing, and nothing was gained.",
            "文本是有意造成读了有用的：在它更早的两个版本里，预训练几乎什么也没学到，也就没有收益。",
        ),
    ),
)  # fmt: skip
