"""Whether the lower layers need to learn."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.finetuning import GPT, TUNING, Tuned
from regard.lab.claims.engine.labelled_texts import same_moods
from regard.lab.claims.engine.rules import All, Less

CLAIM = Claim(
    name="freezing",
    statement=Said(
        "Freezing lower layers makes fine-tuning cheaper, and fine-tuning all of them scores "
        "better.",
        "冻结底层使微调更省，而全部微调得分更高。",
    ),
    source="Devlin et al. 2018, 5.3; common advice of tutorials",
    setting=Said(
        "A GPT of four layers has read texts of one mood each. It learns from 1,000 pairs whether "
        "two sentences are of the same mood, which it never had to tell: with all layers, with "
        "the last one, or with the head alone, all at the same rate. Seconds are those of the "
        "steps.",
        "四层 GPT 读过的文本每篇只有一种情绪。它用 1,000 对句子学习判断两句情绪是否相同，"
        "这是它从不需要判断的：全部层、仅最后一层、或仅分类头，学习率相同。秒数为各步之和。",
    ),
    arms=("all layers", "last layer", "head alone"),
    experiment=Tuned(
        GPT, same_moods,
        TUNING | {
            "examples": {"task": "similar", "classes": True},
            "objective": {"both_orders": False},
            "batch": {"samples": 32, "length": 20}, "optimizer": {"name": "adamw", "rate": 2e-3},
        },
        {
            "all layers": {}, "last layer": {"optimizer": {"frozen": 3}},
            "head alone": {"optimizer": {"frozen": 4}},
        },
        labels=1000, steps=300,
    ),
    rule=All((
        Less("seconds", "last layer", "all layers"),
        Less("seconds", "head alone", "last layer"),
        Less("error", "all layers", "last layer"),
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
            "In a first version it was asked for the mood of single sentences, which its reading "
            "had taught it already: the head alone was as good as all layers (0.055 and 0.065 "
            "wrong, three seeds). How much freezing costs depends on how far the task is from "
            "what was read.",
            "在第一个版本里问的是单句的情绪，而这一点它在阅读中已经学会：仅分类头与全部层一样好"
            "（错误率 0.055 与 0.065，三个种子）。冻结的代价取决于任务离所读的内容有多远。",
        ),
    ),
)  # fmt: skip
