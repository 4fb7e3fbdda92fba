"""Whether the lower layers need to learn."""

from __future__ import annotations

from regard.claims.claim import Chart, Claim, Said
from regard.claims.labelled_texts import moods
from regard.claims.rules import All, Less
from regard.claims.starts import GPT, TUNING
from regard.claims.tuned import Tuned

CLAIM = Claim(
    name="freezing",
    statement=Said(
        "Freezing lower layers makes fine-tuning cheaper, and fine-tuning all of them scores "
        "better.",
        "冻结底层使微调更省，而全部微调得分更高。",
    ),
    source="Devlin et al. 2018, 5.3; common advice of tutorials",
    setting=Said(
        "A pre-trained GPT of four layers learns from 256 labelled sentences which mood they are "
        "of: with all layers, with the upper two, or with the head alone, all at the same rate. "
        "Seconds are those of the steps.",
        "预训练的四层 GPT 用 256 个标注句学习判断情绪：全部层、仅上面两层、或仅分类头，学习率相同。"
        "秒数为各步之和。",
    ),
    arms=("all layers", "upper two", "head alone"),
    experiment=Tuned(
        GPT, moods, TUNING,
        {
            "all layers": {}, "upper two": {"optimizer": {"frozen": 2}},
            "head alone": {"optimizer": {"frozen": 4}},
        },
        labels=256, steps=150,
    ),
    rule=All((
        Less("seconds", "upper two", "all layers"),
        Less("seconds", "head alone", "upper two"),
        Less("error", "all layers", "head alone"),
    )),
    charts=(
        Chart("error", Said("share of wrong answers", "错误率")),
        Chart("seconds", Said("seconds", "秒")),
    ),
    minutes=3,
    timed=True,
    notes=(
        Said(
            "Four words in ten are drawn from all moods, so that even who knows every word's mood "
            "is wrong about 4.1 % of the sentences. The text that the model has read is made in "
            "the same way: little is left for its layers to learn.",
            "每十个词有四个取自全部情绪，因此即使知道每个词的情绪，也会判错约 4.1% 的句子。"
            "模型读过的文本也是这样造的：各层几乎没有什么可再学的。",
        ),
    ),
)  # fmt: skip
