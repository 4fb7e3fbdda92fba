"""Whether lower layers want smaller rates."""

from __future__ import annotations

from regard.lab.claims.engine.claim import Chart, Claim, Said
from regard.lab.claims.engine.finetuning import GPT, TUNING, Tuned
from regard.lab.claims.engine.labelled_texts import moods
from regard.lab.claims.engine.rules import Alike

CLAIM = Claim(
    name="layer-wise-rates",
    statement=Said(
        "Rates that fall with depth, by a factor of 0.95 a layer, change a fine-tuned score by "
        "next to nothing.",
        "学习率逐层乘以 0.95 递减，对微调得分几乎没有影响。",
    ),
    source="Sun et al. 2019; Howard and Ruder 2018 (ULMFiT)",
    setting=Said(
        "A pre-trained GPT of four layers learns from 256 labelled sentences which mood they are "
        "of, with one rate for all layers, with rates that fall by 0.95, and (not judged) by "
        "0.38, as ULMFiT had it.",
        "预训练的四层 GPT 用 256 个标注句学习判断情绪：各层同一学习率、逐层乘 0.95、"
        "以及 ULMFiT 的 0.38（不参与裁决）。",
    ),
    arms=("1", "0.95", "0.38"),
    experiment=Tuned(
        GPT, moods, TUNING,
        {name: {"optimizer": {"fall": float(name)}} for name in ("1", "0.95", "0.38")},
        labels=256, steps=150,
    ),
    rule=Alike("error", "0.95", "1", within=0.02),
    charts=(Chart("error", Said("share of wrong answers", "错误率")),),
    minutes=3,
)  # fmt: skip
