"""What the pages of claims say, in both languages."""

from __future__ import annotations

import re

from regard.core.bilingual import Said
from regard.lab.claims.engine.rules import NOT, REPRODUCED, UNDECIDED

VERDICTS = {
    REPRODUCED: Said("reproduced", "得到复现"),
    NOT: Said("not reproduced", "未能复现"),
    UNDECIDED: Said("inconclusive at this scale", "在此规模下无法判定"),
}
MARKS = {REPRODUCED: ("yes", "✓"), NOT: ("no", "✗"), UNDECIDED: ("open", "~")}

WORDS = {
    "source": Said("Source", "出处"),
    "setting": Said("What is done here", "这里怎么做"),
    "rule": Said("The rule, fixed before the run", "运行前就定下的规则"),
    "noise": Said(
        "A difference counts where it is larger than twice its standard error over the seeds; a "
        "bound is kept or broken where twice the standard error does not reach across it.",
        "差别大于各随机种子间标准误的两倍才算数；两倍标准误的范围不跨过界限，才算守住或越过界限。",
    ),
    "first look": Said(
        "This is a first look: with less than the usual effort models have learned too little to "
        "say much for or against.",
        "这只是初看：工作量少于通常，模型学得太少，还说明不了什么。",
    ),
    "one seed": Said(
        "With a single seed nobody knows the noise: the smallest difference decides.",
        "只有一个随机种子时无从知道噪声：再小的差别也会被当真。",
    ),
    "because": Said("What decided", "判定依据"),
    "figures": Said("Figures", "图"),
    "band": Said(
        "Lines and bars are means over the seeds, bands and thin lines their whole spread.",
        "线与条是各随机种子的均值，色带与细线是其全部范围。",
    ),
    "means": Said("Means over the seeds", "各随机种子的均值"),
    "cells": Said("All measurements", "全部测量值"),
    "printed": Said("What the source prints", "原文所载数字"),
    "notes": Said("To be kept in mind", "需要注意"),
    "repeat": Said("To repeat it", "如何重复"),
    "arm": Said("arm", "组别"),
    "seed": Said("seed", "种子"),
    "value": Said("figures", "数字"),
    "all": Said("all claims", "全部论断"),
    "title": Said("What papers say, tried here", "论文所言，在此一试"),
    "about": Said(
        "Statements of papers and tutorials about attention models, each as a small experiment "
        "whose rule was fixed before it ran. A small machine can only say what holds at its scale.",
        "关于注意力模型的论文与教程中的说法，逐一做成小实验，规则在运行之前就已定下。"
        "小机器只能说明在它的规模上是否成立。",
    ),
    "waiting": Said("Not run yet", "尚未运行"),
    "more": Said("Figures, table, rule", "图、表与规则"),
}


def effort(facts: dict[str, object]) -> Said:
    """How much work it was."""
    seeds, share = facts["seeds"], float(str(facts["effort"]))
    en = "1 seed" if seeds == 1 else f"{seeds} seeds"
    if share == 1:
        return Said(en, f"{seeds} 个随机种子")
    return Said(
        f"{en}, {share:g} times the usual effort",
        f"{seeds} 个随机种子，通常工作量的 {share:g} 倍",
    )


def reasons(because: str, along: bool) -> list[Said]:
    """The numbers that decided, one sentence a part; without an axis no place is named."""
    made = []
    for part in (because if along else because.replace(": 0: ", ": ")).split("; "):
        zh = re.sub(r"^(\S+) of (.+?) grows with the power ", r"\2 的 \1 的幂指数为 ", part)
        zh = re.sub(
            r"^(\S+) of (.+?) is at most (\S+) from a power", r"\2 的 \1 与幂函数至多相差 \3", zh
        )
        zh = re.sub(r"^(\S+), difference at (\S+): (\S+), at (\S+): (\S+), noise ",
                    r"\1 之差：在 \2 处 \3，在 \4 处 \5，噪声 ", zh)  # fmt: skip
        zh = re.sub(r"^(\S+), (.+?) over (.+?): ", r"\2 与 \3 的 \1 之比：", zh)
        zh = re.sub(r"^([^:]+) at (\S+): ", r"\1（在 \2 处）：", zh)
        zh = re.sub(r"^(\S+) of (.+?):", r"\2 的 \1：", zh)
        made.append(Said(part, zh.replace(", ratio ", "，比值 ")))
    return made
