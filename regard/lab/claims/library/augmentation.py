"""Whether small changes of a text are worth labels."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Axis, Chart, Claim, Said
from regard.lab.claims.engine.finetuning import GPT, LABELS, TUNING, Tuned
from regard.lab.claims.engine.labelled_texts import moods
from regard.lab.claims.engine.rules import All, Less, Shrinks

METHODS = ["synonyms", "insert", "swap", "delete"]

CLAIM = Claim(
    name="augmentation",
    statement=Said(
        "Easy data augmentation (synonyms, insertions, swaps, deletions) helps where labels are "
        "few, and little where there are many.",
        "简易数据增强（同义词、插入、交换、删除）在标注少时有帮助，标注多时帮助很小。",
    ),
    source="Wei and Zou 2019",
    setting=Said(
        "A GPT of four layers that has read nothing learns from few to many labelled sentences, as "
        "they are, or half of the time as variants. The thesaurus gives two words of the same "
        "shade for each. As many steps each.",
        "没读过任何文本的四层 GPT，从少到多的标注句学习：原样，或一半时间读变体。"
        "同义词表为每个词给出两个同类词。步数相同。",
    ),
    arms=("plain", "augmented"),
    axis=Axis(Said("labelled sentences", "标注句数"), (50, 200, 1600), logarithmic=True),
    experiment=Tuned(
        GPT, moods, TUNING,
        {
            "plain": {},
            "augmented": {"augment": {"methods": METHODS, "thesaurus": "{synonyms}",
                                      "language": "en"}},
        },
        along=LABELS, steps=200, scratch=("plain", "augmented"),
    ),
    rule=All((
        Less("error", "augmented", "plain", at=50),
        Shrinks("error", "augmented", "plain", 50, 1600),
    )),
    charts=(Chart("error", Said("share of wrong answers", "错误率")),),
    minutes=5,
)  # fmt: skip
